"""`tapestry show`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from .guard import guarded
from .options import Force, is_setting, parse_settings
from .plan_file import given_plan
from .talk import demand_place, put, put_file, working

if TYPE_CHECKING:
    from ...program import Program
    from ..interface import Plan


@guarded
def show(
    what: Annotated[list[str], typer.Argument(metavar="plan.json|FILE.py:PROGRAM", help="A saved plan, or a program.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Extents and settings of a program; further ones may follow."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="F", help="One page with everything in it.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="F", help="The pictures.")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="F", help="The timeline for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print it; this is done where no file is asked for.")] = False,
    force: Force = False,
) -> None:
    """Draw a plan or a program.

    For a plan: figures, timeline, shard map of every tensor, graph, memory over time, reasons.
    For a program: its graph.
    """
    specs = [word for word in what if not is_setting(word)]
    if len(specs) != 1:
        raise UsageError(f"one plan or one FILE.py:PROGRAM is shown, not {len(specs)}")
    given = parse_settings([*(settings or []), *(word for word in what if is_setting(word))])
    files = {name: path for name, path in {"html": html, "svg": svg, "trace": trace}.items() if path is not None}
    for path in files.values():
        demand_place(path, force=force)
    found = (_of_program if ".py:" in specs[0] else _of_plan)(specs[0], given, files)
    for name, path in files.items():
        put_file(path, found[name], force=force)
    if text or not files:
        put(found["text"])


def _of_program(spec: str, settings: dict[str, str], files: dict[str, Path]) -> dict[str, str]:
    from ...drawing.program import program_html, program_svg
    from .program_file import load_program

    if "trace" in files:
        raise UsageError(
            "a program has no timeline to trace", where=spec, hint="plan it first: tapestry plan ... -o plan.json"
        )
    program: Program = load_program(spec, settings)
    found = {"text": str(program)}
    if "html" in files:
        found["html"] = program_html(program)
    if "svg" in files:
        found["svg"] = program_svg(program)
    return found


def _of_plan(path: str, settings: dict[str, str], files: dict[str, Path]) -> dict[str, str]:
    from ..views.text import plan_text

    if settings:
        raise UsageError("--set is for programs; a plan has its extents", where=path)
    plan = given_plan(Path(path))
    with working("drawing"):
        found = _pictures(plan, files)
    return {**found, "text": plan_text(plan)}


def _pictures(plan: Plan, files: dict[str, Path]) -> dict[str, str]:
    """The contents of the files that are asked for."""
    from ..views.html import plan_html, plan_svg
    from ..views.trace import plan_trace

    makers: dict[str, Callable[[Plan], str]] = {"html": plan_html, "svg": plan_svg, "trace": plan_trace}
    return {name: makers[name](plan) for name in files}
