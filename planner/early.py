"""States updated as soon as that can be, so that what they are updated with need not be kept until the end.

A step of training is written forward, backward, update: every gradient is there before the first weight changes. Here
what a state becomes in its place (`sharding.replaced`) is computed a few operations after the last of what it is made
of, and after all other operations that read the old value.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ..program import Operation, Program
from ..rewrites.forms import kept
from .sharding.replaced import replaced

DELAY = 4  # operations after what it reads: a gradient that is folded over ranks is under way for a while


def updated_early(program: Program) -> Program:
    """The same operations in that order."""
    place = replaced(program)
    states = {tensor.name for tensor in program.of_role("state")}
    updates = {op.name: place[op.output] for op in program.operations if place.get(op.output) in states}
    beside = _numbers_for(program, updates)
    at = {op.name: float(k) for k, op in enumerate(program.operations)}
    for op in program.operations:
        if op.name in updates or op.name in beside:
            waits = (at[name] + DELAY * (name not in updates) for name in _before(program, op, updates.get(op.name)))
            at[op.name] = min(at[op.name], max(waits, default=0.0))
    order = sorted(range(len(program.operations)), key=lambda k: (at[program.operations[k].name], k))
    return replace(program, operations=tuple(program.operations[k] for k in order))


def _numbers_for(program: Program, updates: Container[str]) -> set[str]:
    """Operations that make single numbers which updates alone read, as the correction of a mean for its first steps."""
    found: set[str] = set()
    for op in reversed(program.operations):
        readers = program.consumers[op.output]
        alone = all(reader.name in updates or reader.name in found for reader in readers)
        if readers and alone and program.tensor(op.output).size == 1 and not kept(program, op.output):
            found.add(op.name)
    return found


def _before(program: Program, op: Operation, state: str | None) -> list[str]:
    """The operations that make what one reads, and those that read the state whose place its result takes."""
    makers = [program.producer[name].name for name in op.operands if name in program.producer]
    readers = [] if state is None else [reader.name for reader in program.consumers[state] if reader is not op]
    return [*makers, *readers]
