"""A deep program with most of its repeated layers left out, by which schedules of the whole are told apart.

A layer that is repeated does the same each time, so which schedule is shortest shows in a few of them. What a plan
takes is always that of the whole program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...program import Operation, Program
from ...rewrites.bodies import reading
from ..sharding.repetition import Repetition, Repetitions

# Copies of a layer that stay, and of which part of the operations the others have to be for it to be worth anything.
KEPT, WORTH = 4, 0.5


@dataclass(frozen=True)
class _Gap:
    """Copies of a stretch that are left out: those from ``first`` on, and before ``last``."""

    stretch: Repetition
    first: int
    last: int

    @property
    def indices(self) -> range:
        """The operations that are left out."""
        start, period = self.stretch.start, self.stretch.period
        return range(start + self.first * period, start + self.last * period)

    def instead(self, index: int, reader: int) -> int:
        """What is kept of the nearest copy, and comes before the reader, in place of an operation that is not."""
        copy, phase = divmod(index - self.stretch.start, self.stretch.period)
        before, after = (self.stretch.start + k * self.stretch.period + phase for k in (self.first - 1, self.last))
        near = self.last - copy < copy - (self.first - 1) and after < reader
        return after if near else before


def _gap(stretch: Repetition, share: float) -> _Gap | None:
    """With this share of the copies kept, half of them at each end."""
    kept = max(2, round(share * stretch.count))
    first, last = (kept + 1) // 2, stretch.count - kept // 2
    return _Gap(stretch, first, last) if first < last else None


class Shallow:
    """The program with few of its layers. ``program``: None where that would be about as much, or not the same."""

    def __init__(self, whole: Program, repetitions: Repetitions) -> None:
        self.whole = whole
        most = max((stretch.count for stretch in repetitions.stretches), default=0)
        gaps = [_gap(stretch, KEPT / most) for stretch in repetitions.stretches]
        self.gap_at = {k: gap for gap in gaps if gap is not None for k in gap.indices}

    @cached_property
    def program(self) -> Program | None:
        if len(self.gap_at) < WORTH * len(self.whole.operations):
            return None
        made_at = {op.output: k for k, op in enumerate(self.whole.operations)}
        kept = [(k, op) for k, op in enumerate(self.whole.operations) if k not in self.gap_at]
        found = [self._wired(k, op, made_at) for k, op in kept]
        return _of_operations(self.whole, found) if all(map(_alike, (op for _, op in kept), found)) else None

    def _wired(self, at: int, op: Operation, made_at: Mapping[str, int]) -> Operation:
        """An operation with what it reads of layers that are left out taken from those that are kept."""
        places = {name: made_at[name] for name in op.operands if made_at.get(name, -1) in self.gap_at}
        instead = {
            name: self.whole.operations[self.gap_at[made].instead(made, at)].output for name, made in places.items()
        }
        return replace(op, body=reading(op.body, instead)) if instead else op

    @cached_property
    def instead(self) -> list[tuple[str, str]]:
        """The operations that are left out, each with what it repeats in a layer that is kept."""
        ops = self.whole.operations
        return [(ops[k].name, ops[gap.instead(k, k)].name) for k, gap in self.gap_at.items()]


def _alike(one: Operation, other: Operation) -> bool:
    """Whether operands are still as many: two of layers that are left out may have become the same."""
    return len(one.operands) == len(other.operands)


def _of_operations(whole: Program, found: Sequence[Operation]) -> Program:
    """The part of a program that is these operations."""
    made = {op.output for op in found}
    computed = {name for name in whole.producer if name not in made}
    states = tuple((state, value) for state, value in whole.states if value not in computed)
    outputs = tuple(name for name in whole.outputs if name not in computed)
    read = {name for op in found for name in op.operands}
    named = {*outputs, *made, *read, *(name for pair in states for name in pair)}
    tensors = tuple(tensor for tensor in whole.tensors if tensor.name in named)
    return replace(whole, tensors=tensors, operations=tuple(found), outputs=outputs, states=states)
