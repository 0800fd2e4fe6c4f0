"""`tapestry check`."""

from __future__ import annotations

import typer

from ...errors import CheckFailed
from .guard import guarded
from .plan_file import Json, PlanFile, read_plan
from .talk import put, put_json, working


@guarded
def check(plan: PlanFile, json: Json = False) -> None:
    """Prove a plan from its document alone.

    The proof shares no code with the solver. Exit code 1, and every verdict with its place, when it fails.
    """
    from ..check import check as prove
    from ..format.codec import decode

    with working("checking"):
        report = prove(decode(read_plan(plan), str(plan)))
    if json:
        put_json(report.to_json())
    else:
        put(str(report))
    if not report.ok:
        raise typer.Exit(CheckFailed.exit_code)
