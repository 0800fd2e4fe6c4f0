"""`tapestry plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...errors import UsageError
from .guard import guarded
from .options import Force, is_setting, parse_memory, parse_mesh, parse_settings
from .plan_file import Json
from .talk import STREAM, demand_place, put, put_file, put_json, say, working

if TYPE_CHECKING:
    from ..interface import Plan

Programs = Annotated[list[str], typer.Argument(metavar="FILE.py:PROGRAM", help="The program to plan.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE ...", help="Extents and keyword parameters of the program."),
]


@guarded
def plan(
    context: typer.Context,
    program: Programs,
    machine: Annotated[str, typer.Option(metavar="NAME|FILE", help="See `tapestry machine list`, or a TOML file.")],
    settings: Settings = None,
    mesh: Annotated[
        str | None,
        typer.Option(metavar="2x4", help="Mesh of the first devices; data=2,model=4 names axes."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="8GiB", help="Budget of a device; hbm=8GiB,host=64GiB names tiers."),
    ] = None,
    pin: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Shardings to keep to.")] = None,
    objective: Annotated[Literal["time", "bytes"], typer.Option(help="What to make least.")] = "time",
    rewrite: Annotated[
        bool, typer.Option("--rewrites/--no-rewrites", help="Clean and fuse the program first, where that is quicker.")
    ] = False,
    pieces: Annotated[
        bool, typer.Option("--pieces/--no-pieces", help="Hide transfers behind pieces of the operations beside them.")
    ] = True,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="S", help="Seconds for all of it, reading the program included."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads of the solver.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="plan.json", help="Write the plan.")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the best plan of a program on a machine.

    Reported with it: how far from the best it can be, what it moves, and what every device holds.
    """
    if output is not None:
        demand_place(output, force=force)
    if output == STREAM and json:
        raise UsageError("-o - and --json both write to stdout", hint="give one of them a file, or leave it out")
    spec, more = split_programs(program)
    options: dict[str, Any] = {"objective": objective, "time_limit": time_limit, "seed": seed, "jobs": jobs}
    options["since"] = context.obj
    options["rewrite"], options["pieces"] = rewrite, pieces
    options["mesh"] = parse_mesh(mesh) if mesh is not None else None
    options["memory"] = parse_memory(memory) if memory is not None else None
    found = _plan(spec, parse_settings([*(settings or []), *more]), machine, pin, options)
    if output is not None:
        put_file(output, found.to_json(), force=force)
    if json:
        put_json(found.summary())
    else:
        from .plan_text import plan_text

        (say if output == STREAM else put)(plan_text(found))


def split_programs(texts: list[str]) -> tuple[str, list[str]]:
    """The program, and the further settings of `--set a=1 b=2`."""
    programs = [text for text in texts if not is_setting(text)]
    if len(programs) != 1:
        raise UsageError(f"one FILE.py:PROGRAM is taken, not {len(programs)}", sides={"given": " ".join(programs)})
    return programs[0], [text for text in texts if is_setting(text)]


def _plan(spec: str, settings: dict[str, str], machine: str, pin: Path | None, options: dict[str, Any]) -> Plan:
    from .. import load_machine
    from .. import plan as make_plan
    from ..clock import now
    from .pin_file import load_pins
    from .program_file import load_program

    hardware = load_machine(machine)  # before the program: the cheaper mistake first
    pins = load_pins(pin) if pin is not None else ()
    program = load_program(spec, settings)
    limit, since = options["time_limit"], options["since"]
    if limit is not None and since is not None and now() > since + limit:
        say(f"reading the program took {now() - since:.1f} s of the {limit:g} s: the plan is late")
    given = {name: value for name, value in options.items() if value is not None}
    with working("planning") as progress:
        return make_plan(program, hardware, pins=pins, progress=progress, **given)
