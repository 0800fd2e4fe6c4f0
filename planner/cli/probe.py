"""`tapestry machine probe`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...errors import UsageError
from .guard import guarded
from .options import Force, is_setting, parse_settings
from .plan import Settings, split_programs
from .talk import demand_place, put, put_file, working

if TYPE_CHECKING:
    from ...program import Program
    from ..machine import DeviceModel, Machine

Programs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE.py:PROGRAM]", help="Measure what this program is planned to do as well."),
]


@guarded
def probe(
    program: Programs = None,
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="machine.toml", help="Write the machine; else it is printed."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, fewer repetitions.")] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="What computes: numpy, cupy, or module:Class.")] = "numpy",
    engine: Annotated[
        Literal["local", "torchrun"], typer.Option(help="Ranks that take turns in one process, or a process each.")
    ] = "torchrun",
    ranks: Annotated[int | None, typer.Option(min=1, metavar="N", help="Ranks: one a core, or one a GPU.")] = None,
    add_to: Annotated[
        Path | None, typer.Option(metavar="machine.toml", help="Add the program to a machine that was probed before.")
    ] = None,
    devices_from: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="What the devices are; transfers between them alone are measured."),
    ] = None,
    rewrites: Annotated[
        bool, typer.Option("--rewrites", help="The program is cleaned and fused first, as `plan --rewrites` does.")
    ] = False,
    force: Force = False,
) -> None:
    """Measure this computer and write a machine file with curves.

    Kernels of all classes over sizes and dtypes, copies, starts of tasks, with one rank and with all ranks at work;
    transfers of every kind over sizes. With a program, also each of its operations as it is planned on this machine.
    """
    if output is not None:
        demand_place(output, force=force)
    if add_to is not None and devices_from is not None:
        raise UsageError("--add-to and --devices-from: a machine that was probed, or one whose links are measured")
    if add_to is not None and not program:
        raise UsageError("--add-to adds a program", hint="name it: FILE.py:PROGRAM")
    found = _program(program or [], settings or [])
    text = _probed(found, output, device, engine, ranks, add_to, devices_from, quick=quick, rewrite=rewrites)
    if output is None:
        put(text.rstrip())
    else:
        put_file(output, text, force=force)


def _program(texts: list[str], settings: list[str]) -> Program | None:
    """Before anything is measured: the cheaper mistake first."""
    from .program_file import load_program

    if not any(not is_setting(text) for text in texts):
        if texts or settings:
            raise UsageError("--set is of a program, and none is given", sides={"given": " ".join([*settings, *texts])})
        return None
    spec, more = split_programs(texts)
    return load_program(spec, parse_settings([*settings, *more]))


def _probed(
    program: Program | None,
    output: Path | None,
    device: str,
    engine: str,
    ranks: int | None,
    add_to: Path | None,
    devices_from: str | None,
    *,
    quick: bool,
    rewrite: bool,
) -> str:
    """The text of the machine file."""
    from .. import load_machine
    from ..machine.write import machine_toml
    from ..probe.here import measured_program, probe_machine

    known = load_machine(add_to) if add_to is not None else None
    if known is not None and not known.device.paces:
        raise UsageError("was not probed: it has no paces", where=str(add_to), hint="leave out --add-to")
    name = output.stem if output is not None and re.fullmatch(r"[A-Za-z0-9][\w.-]*", output.stem) else "probed"
    names: dict[str, str] = {}
    devices = _devices(load_machine(devices_from), devices_from, program) if devices_from is not None else None
    with working("probing") as say:
        machine = known or probe_machine(
            name=name, device=device, engine=engine, ranks=ranks, quick=quick, devices=devices, say=say
        )
        if program is not None:
            machine, made = measured_program(
                machine, program, device=device, engine=engine, quick=quick, ranks=ranks, rewrite=rewrite, say=say
            )
            names = {made.program.graph.digest(op): f"{program.name}.{op.name}" for op in made.program.operations}
    return machine_toml(machine, COMMENT, names)


def _devices(machine: Machine, name: str, program: Program | None) -> DeviceModel:
    """What the devices of a machine are, if they are alike; with paces, where a program is to be measured on them."""
    if machine.others:
        raise UsageError("has several kinds of devices", where=name, hint="--devices-from takes a machine of one kind")
    if program is not None and not machine.device.paces:
        raise UsageError("was not probed: it has no paces", where=name, hint="leave out --devices-from, or the program")
    return machine.device


COMMENT = """Written by `tapestry machine probe`; the description says when and of what.
Rates are the best of the curves, with all ranks at work. Assumed and not measured: the disk."""
