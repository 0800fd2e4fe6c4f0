"""`tapestry diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .guard import guarded
from .options import Force
from .plan_file import Json, given_plan
from .talk import demand_place, put, put_file, put_json, working


@guarded
def diff(
    before: Annotated[Path, typer.Argument(metavar="a.json", help="A plan that `tapestry plan -o` wrote.")],
    after: Annotated[Path, typer.Argument(metavar="b.json", help="Another.")],
    json: Json = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="F", help="One page with both plans side by side.")
    ] = None,
    force: Force = False,
) -> None:
    """Say what is different between two plans.

    What was asked otherwise, what the second takes more or less, which operations are cut and which tensors lie
    otherwise, the largest change of time first. With --html both timelines, on one scale.
    """
    if html is not None:
        demand_place(html, force=force)
    with working("comparing"):
        plans = given_plan(before), given_plan(after)
        found = plans[0].diff(plans[1])
    if html is not None:
        from ..views.comparison import diff_html

        with working("drawing"):
            page = diff_html(*plans)
        put_file(html, page, force=force)
    if json:
        put_json(found.to_json())
    elif html is None:
        put(str(found))
