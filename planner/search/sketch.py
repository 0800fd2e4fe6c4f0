"""A few operations by themselves, simulated without a plan: what pieces would save beside one wait, roughly.

One compute lane, one lane of transfers, each operation as long as on its slowest rank; everything that they read of
others is there at the start. It only tells which ways to cut are worth lowering.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...program import Operation
from ...records import width_of
from ..lowering.decisions import Decisions
from ..lowering.parts import Part, Reader, Written, by_piece, parts, written_by
from ..sharding.model import maximal
from ..strategy.layouts import Layout, united
from .question import Question

AHEAD = 2  # tasks that compute, by which what is there at the start is asked for before it is needed


def sketched(question: Question, decisions: Decisions, ops: Sequence[Operation], soon: Collection[str] = ()) -> float:
    """Seconds of some operations, in the order in which they are computed, in the pieces that were decided. The first
    pieces of those named ``soon`` go before all else.
    """
    return _Sketch(question, decisions, ops, soon).seconds()


class _Sketch:
    def __init__(
        self, question: Question, decisions: Decisions, ops: Sequence[Operation], soon: Collection[str]
    ) -> None:
        self.question, self.decisions, self.ops = question, decisions, ops
        units = [
            (op, number, task)
            for op in ops
            for number, piece in enumerate(decisions.pieces_of(op.name))
            for task in piece
        ]
        self.units = sorted(units, key=lambda unit: unit[1] > 0 or unit[0].name not in soon)

    def seconds(self) -> float:
        slots: dict[int, list[tuple[Part, float]]] = {}
        for op in self.ops:
            for name in op.operands:
                self._schedule(name, self._moves(name, op), slots)
            self._schedule(op.output, self._sent(op), slots)
        ends: list[float] = []
        ready = [0.0] * (len(self.units) + 1)
        compute = moved = 0.0
        for k in range(len(self.units) + 1):
            for part, seconds in slots.get(k, ()):
                moved = max(moved, ends[part.after] if part.after >= 0 else 0.0) + seconds
                ready[part.first] = max(ready[part.first], moved)
            if k < len(self.units):
                compute = max(compute, ready[k]) + self.units[k][2].slowest
                ends.append(compute)
        return max(compute, moved)

    def _schedule(self, name: str, moves: Iterator[Part], slots: dict[int, list[tuple[Part, float]]]) -> None:
        width = width_of(self.question.program, name)
        for part in moves:
            seconds = self.question.pricing.move(part.have, part.need, width).seconds
            slot = part.after + 1 if part.after >= 0 else max(0, part.first - AHEAD)
            slots.setdefault(slot, []).append((part, seconds))

    def _moves(self, name: str, op: Operation) -> Iterator[Part]:
        """What is moved of an operand for an operation."""
        have, operand = self._made(name), op.operands.index(name)
        readers = [
            Reader(k, task.needs[operand], op.name, number)
            for k, (other, number, task) in enumerate(self.units)
            if other is op and not have.satisfies(task.needs[operand])
        ]
        if readers:
            layouts = self.question.layouts
            need = united([reader.need for reader in readers], layouts)
            yield from parts(need, by_piece(readers, layouts), self._written(name, have), layouts)

    def _sent(self, op: Operation) -> Iterator[Part]:
        """What is moved of a result for others than these operations."""
        have = self._made(op.output)
        inside = {other.name for other in self.ops}
        readers = [other for other in self.question.program.consumers[op.output] if other.name not in inside]
        needs = [self.decisions.strategies[r.name].needs[r.operands.index(op.output)] for r in readers]
        if have.parts is not None and op.output in self.decisions.ends:
            needs.append(self.decisions.ends[op.output])
        for need in maximal([need for need in needs if not have.satisfies(need)]):
            reader = Reader(len(self.units), need, "")
            yield from parts(need, [reader], self._written(op.output, have), self.question.layouts)

    def _made(self, name: str) -> Layout:
        return self.decisions.made(self.question.program, name)

    def _written(self, name: str, have: Layout) -> list[Written]:
        tasks = [(k, piece, task.writes) for k, (op, piece, task) in enumerate(self.units) if op.output == name]
        return written_by(tasks, self.question.layouts) or [Written(-1, have)]
