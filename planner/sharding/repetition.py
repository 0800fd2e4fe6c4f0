"""Repeated layers, found by structure: the longest stretch of operations that repeats with the same wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...program import Operation, Program
from ..strategy.strategies import StrategyTable


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


def find_repetition(program: Program, table: StrategyTable) -> Repetition:
    """The repetition that covers most operations (count >= 2), or one of count 0."""
    made_at = {op.output: index for index, op in enumerate(program.operations)}
    marks = [_wiring(program, table, made_at, op) for op in program.operations]
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


def _wiring(program: Program, table: StrategyTable, made_at: Mapping[str, int], op: Operation) -> str:
    """Structure of an operation, how far back each operand was made (or which role it has), and whether it is an
    output.

    Operands that earlier layers share (a table of positions) have no fixed distance: they are marked by name.
    """
    here = made_at[op.output]
    sources = [str(here - made_at[n]) if n in made_at else _source_mark(program, n) for n in op.operands]
    return f"{table.signature(op)}|{sources}|{op.output in program.outputs}"


def _source_mark(program: Program, name: str) -> str:
    """A tensor used once is marked by its role; one that several operations share, by its name."""
    return program.tensor(name).role if len(program.consumers[name]) == 1 else name
