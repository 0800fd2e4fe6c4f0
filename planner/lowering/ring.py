"""An operation in turns, as steps: the blocks of the next turn are on their way while one is computed.

    comm      block 1        block 2        block 3
    compute   turn 0         turn 1         turn 2         turn 3

Every block has a slot of its own, alive for two turns, so that packing puts the next but one into its place. Turns fold
onto the slot of the result, or, where partial results are records, onto one beside it, from which the last turn
finishes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...program import Operation, Program
from ...records import width_of
from ..strategy.strategies import Strategy
from ..strategy.traffic import Traffic
from ..strategy.turns import Stages, Turns
from .steps import ComputeStep, MoveStep, Slot, Step


class TurnSteps:
    """The steps of one operation in turns, and the ``slots`` that they bring."""

    def __init__(
        self, program: Program, traffic: Traffic, op: Operation, strategy: Strategy, turns: Turns,
        reads: tuple[Slot, ...], write: Slot,
    ) -> None:  # fmt: skip
        self.program, self.traffic, self.op, self.turns, self.write = program, traffic, op, turns, write
        self.reads = reads
        self.slots: list[Slot] = []
        self.blocks = {k: [reads[k], *self._blocks(k, found)] for k, found in turns.stages.items()}
        self.so_far = self._so_far(strategy)

    def _blocks(self, operand: int, stages: Stages) -> Iterator[Slot]:
        name = self.op.operands[operand]
        for stage, layout in enumerate(stages.layouts[1:], 1):
            yield self._slot(Slot(f"{name}~{self.op.name}.{stage}", self.program.tensor(name), layout))

    def _so_far(self, strategy: Strategy) -> Slot:
        """Where turns leave what the next one folds onto."""
        record = self.program.records.get(self.op.output)
        if record is None or self.write.record is not None:
            return self.write
        slot = Slot(f"{self.op.output}~so_far", self.program.tensor(self.op.output), strategy.writes, record=record)
        return self._slot(slot)

    def _slot(self, slot: Slot) -> Slot:
        self.slots.append(slot)
        return slot

    def steps(self) -> Iterator[Step]:
        """In an order that is that of each lane."""
        last = len(self.turns.each) - 1
        for number, turn in enumerate(self.turns.each):
            for operand, stages in self.turns.stages.items():
                stage, within = divmod(number, stages.period)
                if not within and stage + 1 < len(stages.layouts):
                    yield self._move(operand, stages, stage + 1)
            reads = tuple(self._read(k, number) for k in range(len(self.reads)))
            write = self.write if number == last else self.so_far
            yield ComputeStep(self.op, turn, reads, write, self.so_far if number else None)

    def _read(self, operand: int, turn: int) -> Slot:
        stages = self.turns.stages.get(operand)
        return self.reads[operand] if stages is None else self.blocks[operand][turn // stages.period]

    def _move(self, operand: int, stages: Stages, stage: int) -> MoveStep:
        """The transfer to a stage."""
        tensor = self.program.tensor(self.op.operands[operand])
        source, need = stages.source(stage), stages.layouts[stage]
        have, slots = stages.layouts[source], self.blocks[operand]
        kind = self.traffic.move(have, need, width_of(self.program, tensor.name)).kind
        return MoveStep(tensor, slots[source], slots[stage], have, need, need, kind, None)
