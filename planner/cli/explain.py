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
    kernels: Annotated[
        str, typer.Option("--kernels", metavar="DEVICE", help="Name what computes each on a device: cupy.")
    ] = "",
    more: Annotated[
        str, typer.Option("--more", metavar="SIZE", help="Plan again with so much more memory on each device: 1GiB.")
    ] = "0",
    json: Json = False,
) -> None:
    """Say what holds a plan back, and why each operation is cut as it is.

    The memory that is full and at which task, and what 1 GB/s more of a link saves. For each operation: its time, its
    traffic, the next best strategy and what that would cost.
    """
    from dataclasses import replace

    with working("explaining"):
        loaded = given_plan(plan)
        explanation = loaded.explain(op, more=more)
        if kernels:
            from ...workers.naming import kernels_of_plan

            named = kernels_of_plan(loaded.resolved, kernels)
            rows = tuple(replace(row, kernels=named.get(row.op, ())) for row in explanation.rows)
            explanation = replace(explanation, rows=rows)
    if json:
        put_json(explanation.to_json())
    else:
        put(str(explanation))
