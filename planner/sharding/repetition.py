"""Repeated layers, found by structure: the longest stretch of operations that repeats with the same wiring."""

from __future__ import annotations

from dataclasses import dataclass

from ...program import Program


@dataclass(frozen=True)
class Repetition:
    """Operations start .. start + period * count - 1 are ``count`` copies of one stretch of ``period`` operations."""

    start: int
    period: int
    count: int

    def representative(self, index: int) -> int:
        """The operation of the first copy that stands for this one; itself outside the stretch."""
        inside = self.start <= index < self.start + self.period * self.count
        return self.start + (index - self.start) % self.period if inside else index


def find_repetition(program: Program) -> Repetition:
    """The repetition that covers most operations (count >= 2), or one of count 0."""
    marks = program.graph.marks
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
