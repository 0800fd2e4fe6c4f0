"""The arguments of `plan`, validated at the door: a wrong one is refused by name, with what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

from ..errors import UsageError
from ..program import Pin, Program
from .machine import Machine, load_machine
from .machine.units import format_seconds, parse_budgets
from .sharding.bound import alone_s
from .strategy.mesh import MAX_RANKS

OBJECTIVES = ("time", "bytes")
# The solver takes its seed as a 32-bit number.
LARGEST_SEED = 2**31 - 1
# Seconds of a step on one device: the picoseconds of longer ones do not fit 64 bits.
LONGEST = 1e6


def given_program(program: object) -> Program:
    """A bound program."""
    if isinstance(program, Program):
        return program
    binds = hasattr(program, "bind")
    raise UsageError(
        f"a program is what bind returns, not {_named(program)}",
        where="program",
        hint="bind its extents first: plan(net.bind(n=8), ...)" if binds else None,
    )


def given_machine(machine: object) -> Machine:
    """A machine, or one by its name or file."""
    if isinstance(machine, Machine):
        return machine
    if isinstance(machine, (str, Path)):
        return load_machine(machine)
    raise UsageError(f"a machine is a name, a file or a Machine, not {_named(machine)}", where="machine")


def given_memory(memory: object, machine: Machine) -> Machine:
    """The machine with the budgets: by tier, "hbm=3.5GiB,host=0", or "8GiB" or bytes of the tier that compute uses."""
    if memory is None:
        return machine
    budgets = parse_budgets(memory) if isinstance(memory, str) else memory
    if isinstance(budgets, int) and not isinstance(budgets, bool):
        budgets = {machine.device.tiers[0].name: budgets}
    if not isinstance(budgets, Mapping):
        raise UsageError(f'memory is "8GiB", bytes, or {{"hbm": "8GiB"}}, not {_named(memory)}', where="memory")
    return machine.with_memory(budgets)


def given_mesh(mesh: object, devices: int) -> dict[str, int]:
    """Axes by name. (2, 4) names them mesh0, mesh1; by default one row of all devices, as far as a mesh may have."""
    if mesh is None:
        mesh = (min(devices, MAX_RANKS),)
    if isinstance(mesh, Mapping):
        axes = dict(mesh)
    elif isinstance(mesh, Sequence) and not isinstance(mesh, str):
        axes = {f"mesh{k}": size for k, size in enumerate(mesh)}
    else:
        raise UsageError(f'a mesh is (2, 4) or {{"data": 2, "model": 4}}, not {_named(mesh)}', where="mesh")
    bad = [name for name in axes if not isinstance(name, str) or not name.isidentifier()]
    if bad:
        raise UsageError(f"mesh axes need names that are identifiers, not {bad[0]!r}", where="mesh")
    return axes


def demand_short(program: Program, machine: Machine) -> None:
    """One device takes no longer for a program than can be counted."""
    seconds = alone_s(program, machine)
    if seconds > LONGEST:
        sides = {"one device": f"{format_seconds(seconds)} at least", "counted": f"up to {format_seconds(LONGEST)}"}
        raise UsageError("a step of the program takes too long to be planned", where=program.name, sides=sides)


def given_pins(pins: object) -> tuple[Pin, ...]:
    """Pins, in order."""
    if isinstance(pins, Sequence) and all(isinstance(pin, Pin) for pin in pins):
        return tuple(pins)
    raise UsageError(f"pins are a list of Pin, not {_named(pins)}", where="pins")


def demand_limits(objective: object, time_limit: object, seed: object, jobs: object) -> None:
    """The objective is known, the time limit positive, seed and number of jobs whole numbers in their ranges."""
    if objective not in OBJECTIVES:
        raise UsageError(f"unknown objective {objective!r}", where="objective", sides={"known": ", ".join(OBJECTIVES)})
    if type(time_limit) not in (int, float) or not isfinite(time_limit) or time_limit <= 0:  # type: ignore[arg-type, operator]
        raise UsageError(f"the time limit must be positive, in seconds; got {time_limit!r}", where="time_limit")
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"the seed is a whole number from 0 to {LARGEST_SEED}, not {seed!r}", where="seed")
    if type(jobs) is not int or jobs < 1:
        raise UsageError(f"jobs are a whole number, 1 or more, not {jobs!r}", where="jobs")


def _named(value: object) -> str:
    return f"{value!r} ({type(value).__name__})" if value is not None else "None"
