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
    from ..format.codec import read

    with working("checking"):
        document, changed = read(read_plan(plan), str(plan))
        report = prove(document)
    ok = report.ok and not changed
    if json:
        put_json({**report.to_json(), "ok": ok, "changed": list(changed)})
    else:
        if changed:
            put(f"digest: changed after it was written: {', '.join(changed)}")
        put(str(report))
    if not ok:
        raise typer.Exit(CheckFailed.exit_code)
