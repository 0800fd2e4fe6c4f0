"""`tapestry diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .guard import guarded
from .plan_file import Json, given_plan
from .talk import put, put_json, working


@guarded
def diff(
    before: Annotated[Path, typer.Argument(metavar="a.json", help="A plan that `tapestry plan -o` wrote.")],
    after: Annotated[Path, typer.Argument(metavar="b.json", help="Another.")],
    json: Json = False,
) -> None:
    """Say what is different between two plans.

    What was asked otherwise, what the second takes more or less, which operations are cut and which tensors lie
    otherwise, the largest change of time first.
    """
    with working("comparing"):
        found = given_plan(before).diff(given_plan(after))
    if json:
        put_json(found.to_json())
    else:
        put(str(found))
