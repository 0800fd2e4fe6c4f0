"""The commands, one module each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import bench, check, diff, explain, machine, plan, rewrite, run, schema, show, simulate
from .guard import guarded
from .talk import put

app = typer.Typer(
    help="Plan, prove, draw and run tensor programs on a described machine.",
    epilog="Exit codes: 0 done, 1 a check or run failed, 2 bad input, 3 infeasible, 4 no plan within the time limit.",
    rich_markup_mode=None,  # rich would double the time to start
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
for command in (
    plan.plan,
    check.check,
    simulate.simulate,
    explain.explain,
    diff.diff,
    show.show,
    rewrite.rewrite,
    run.run,
    schema.schema,
):
    app.command()(command)
app.add_typer(machine.app, name="machine")
app.add_typer(bench.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from ... import __version__

        put(f"tapestry {__version__}")
        raise typer.Exit


@app.callback()
@guarded
def root(
    version: Annotated[  # noqa: ARG001  (done by its callback)
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", metavar="FILE.py", help="A file that declares block operations. Repeatable."),
    ] = None,
) -> None:
    """Plan, prove, draw and run tensor programs on a described machine."""
    if imports:
        from .program_file import import_file

        for file in imports:
            import_file(file)
