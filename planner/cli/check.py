"""`tapestry check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import CheckFailed
from .guard import guarded
from .options import parse_settings
from .plan_file import Json, PlanFile, read_plan
from .talk import put, put_json, working

if TYPE_CHECKING:
    from ..format import Document


@guarded
def check(
    plan: PlanFile,
    program: Annotated[
        str | None, typer.Option(metavar="FILE.py:PROGRAM", help="Prove that the plan was made from this program, too.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Extents and settings of the program.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove a plan from its document alone: that it computes the program that it embeds.

    The proof shares no code with the solver. Exit code 1, and every verdict with its place, when it fails.
    """
    from ..check import check as prove
    from ..format.codec import read

    with working("checking"):
        document, changed = read(read_plan(plan), str(plan))
        report = prove(document)
    ok = report.ok and not changed
    origin = _origin(document, program, settings) if ok else None
    if json:
        put_json({**report.to_json(), "ok": ok, "changed": list(changed), "origin": origin})
    else:
        if changed:
            put(f"digest: changed after it was written: {', '.join(changed)}")
        put(str(report))
        if origin is not None:
            put(origin)
    if not ok:
        raise typer.Exit(CheckFailed.exit_code)


def _origin(document: Document, spec: str | None, settings: list[str] | None) -> str | None:
    """What is known of the program as it was written; None where it is the embedded one and no other is given."""
    from ...serialize import program_from_json
    from ..origin import origin_text, prove_origin
    from .program_file import load_program

    origin = document.claims.origin
    if spec is None:
        rewritten = None if origin is None else origin_text(origin, len(document.program["operations"]))
        return rewritten and f"the embedded program is proved, not that it is the one written ({rewritten}): --program"
    embedded = program_from_json(document.program)
    return str(prove_origin(document, embedded, load_program(spec, parse_settings(settings or []))))
