"""Repeated layers, found by structure: the longest stretch of operations that repeats with the same wiring, and after
it those that are wired to it alike: the layers of a backward pass, in their reverse order, and the updates of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...program import Program


@dataclass(frozen=True)
class Repetition:
    """Operations start .. start + period * count - 1 are ``count`` copies of one stretch of ``period`` operations.

    ``head``: so many before it end one more copy. ``tail``: so many after it begin one.
    """

    start: int
    period: int
    count: int
    head: int = 0
    tail: int = 0

    @property
    def begin(self) -> int:
        return self.start - self.head

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count + self.tail

    def representative(self, index: int) -> int:
        """The operation of the first copy that stands for this one; itself outside the stretch."""
        return self.start + (index - self.start) % self.period if self.begin <= index < self.stop else index


@dataclass(frozen=True)
class Repetitions:
    """Stretches that repeat, none within another."""

    stretches: tuple[Repetition, ...]

    def representative(self, index: int) -> int:
        """The operation that stands for this one; itself outside all stretches."""
        return next((s.representative(index) for s in self.stretches if s.begin <= index < s.stop), index)

    def telling(self, count: int) -> list[int]:
        """Of so many operations those at which memory tells what it does at all: it rises or falls from copy to copy.

        So the first two copies tell, and where there are several stretches, what the one leaves for the other being
        most where one ends and the other begins, the last two as well.
        """
        last = 2 if len(self.stretches) > 1 else 0
        hidden: set[int] = set()
        for s in self.stretches:
            copies_end = s.start + s.period * s.count
            hidden |= set(range(s.start + 2 * s.period, copies_end - last * s.period))
        return [k for k in range(count) if k not in hidden]


def find_repetition(program: Program) -> Repetition:
    """The repetition that covers most operations (count >= 2), or one of count 0."""
    return _longest(program.graph.marks)


def find_repetitions(program: Program) -> Repetitions:
    """That one, and after it stretches that read from those before them, the one that covers most first."""
    found = [first] if (first := find_repetition(program)).count else []
    while found:
        following = _following(program, found)
        if following is None:
            break
        found.append(following)
    if len(found) > 1:  # all that the later ones read is one copy's
        found[0] = _with_ends(program, found[0])
    return Repetitions(tuple(found))


def _following(program: Program, found: Sequence[Repetition]) -> Repetition | None:
    """The longest stretch after those found whose copies read what lies before it alike; None if none reads any."""
    before = max(found[0].stop + found[0].period, *(stretch.stop for stretch in found))  # one more copy may have begun
    marks = [f"{k} before" for k in range(before)]
    made_at = {op.output: k for k, op in enumerate(program.operations)}
    reading = []
    for here, op in enumerate(program.operations[before:], before):
        far = [name in made_at and made_at[name] < before for name in op.operands]
        # One number that is made once, such as the rate of a step, is read at any distance.
        loose = [f or n not in made_at or not program.tensor(n).shape for n, f in zip(op.operands, far, strict=True)]
        sources = [
            program.graph.origin(name) if is_loose else str(here - made_at[name])
            for name, is_loose in zip(op.operands, loose, strict=True)
        ]
        marks.append(f"{program.graph.structure(op)}|{sources}|{op.output in program.outputs}")
        reading += [here] if any(far) else []
    best = _longest(marks)
    if best.count == 0 or best.period == 1 or not any(best.start <= k < best.stop for k in reading):
        return None
    return _with_ends(program, best, before)


def _with_ends(program: Program, stretch: Repetition, after: int = 0) -> Repetition:
    """With what ends a copy before the stretch, from operation ``after`` on, and what begins one behind it.

    These are operations of the same structures, though they may be wired otherwise.
    """
    structures = [program.graph.structure(op) for op in program.operations]
    start, stop, period = stretch.start, stretch.stop, stretch.period
    following = [structures[k] == structures[k - period] for k in range(stop, min(stop + period - 1, len(structures)))]
    leading = [structures[k] == structures[k + period] for k in range(start - 1, max(start - period, after - 1), -1)]
    head, tail = ([*alike, False].index(False) for alike in (leading, following))
    return replace(stretch, head=head, tail=tail)


def _longest(marks: list[str]) -> Repetition:
    best = Repetition(0, 1, 0)
    for period in _periods(marks):
        run = start = 0
        for index in range(len(marks) - period + 1):
            alike = index + period < len(marks) and marks[index] == marks[index + period]
            if alike:
                start, run = (index, 1) if run == 0 else (start, run + 1)
                continue
            count = run // period + 1 if run >= period else 0
            if count * period > best.count * best.period:
                best = Repetition(start, period, count)
            run = 0
    return best


def _periods(marks: list[str]) -> list[int]:
    """Candidate periods: distances between equal marks, the smallest first."""
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for index, mark in enumerate(marks):
        if mark in last:
            found[index - last[mark]] = found.get(index - last[mark], 0) + 1
        last[mark] = index
    return sorted(period for period, votes in found.items() if votes >= period)
