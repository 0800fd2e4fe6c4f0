"""`tapestry explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from .guard import guarded
from .plan_file import Json, PlanFile, given_plan
from .talk import put, put_json, working


@guarded
def explain(
    plan: PlanFile,
    op: Annotated[
        str | None,
        typer.Argument(metavar="OP", help="One operation, or all of a composite or layer; all where left out."),
    ] = None,
    json: Json = False,
) -> None:
    """Say why each operation is cut as it is.

    For each: its time, its traffic, the next best strategy and what that would cost.
    """

    with working("explaining"):
        explanation = given_plan(plan).explain(op)
    if json:
        put_json(explanation.to_json())
    else:
        put(str(explanation))
