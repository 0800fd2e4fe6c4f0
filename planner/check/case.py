"""The plan as the proofs see it: regions interned, and for every task the memory it touches on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ...expr import Expr, Read, rewrite
from ...program import Block, Operation, Program
from ...records import record_bytes
from ..format.document import Buffer, Compute, Document, Task, Transfer
from .algebra import EMPTY, Algebra, Shape


class Touch(NamedTuple):
    """A task reads or writes these elements of a buffer."""

    buffer: str
    write: bool
    region: int


@dataclass(frozen=True)
class Memory:
    """A tier as the plan's machine describes it; ``shared`` by the devices of a host."""

    capacity: int
    shared: bool


class Case:
    """A well-formed document under proof. Tasks are known by their position in the list."""

    def __init__(
        self,
        document: Document,
        program: Program,
        tiers: Mapping[str, Memory],
        algebra: Algebra,
        layouts: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.document, self.program, self.tiers = document, program, tiers
        self.algebra, self.layouts = algebra, layouts
        self.ranks = len(document.devices)
        self.tasks = document.tasks
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in document.buffers}
        self._shapes: dict[object, Shape] = {}
        self._shape_of: dict[str, Shape] = {}
        self._touches: dict[int, tuple[tuple[Touch, ...], ...]] = {}

    @cached_property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.ranks))

    def participants(self, task: Task) -> tuple[int, ...]:
        return self.everyone if task.ranks is None else task.ranks

    def held(self, buffer: str) -> tuple[int, ...]:
        """Per rank the elements that a buffer is laid out for."""
        return self.layouts[self.buffers[buffer].layout]

    def record_bytes(self, tensor: str) -> int:
        """Bytes of one element of a partial result of a tensor."""
        record = self.program.records.get(tensor)
        return self.program.tensor(tensor).itemsize if record is None else record_bytes(record)

    def parts(self, layout: str) -> tuple[int, ...] | None:
        return self.document.layouts[layout].parts

    def shape(self, op: Operation) -> Shape:
        """The operation's structure: the same object for the same operation of another layer."""
        if op.name not in self._shape_of:
            shapes = {name: self.program.tensor(name).shape for name in op.operands}
            output = self.program.tensor(op.output).shape
            key = _structure(op, shapes, output)
            if key not in self._shapes:
                self._shapes[key] = Shape(len(self._shapes), op, shapes, output, self.algebra)
            self._shape_of[op.name] = self._shapes[key]
        return self._shape_of[op.name]

    def shape_of(self, task: Compute) -> Shape:
        return self.shape(self.program.op_by_name[task.op])

    def touches(self, position: int) -> tuple[tuple[Touch, ...], ...]:
        """Per rank what the task touches there, nothing where it does not run. Empty regions are left out."""
        if position not in self._touches:
            task = self.tasks[position]
            found: list[tuple[Touch, ...]] = [()] * self.ranks
            for rank in self.participants(task):
                found[rank] = tuple(touch for touch in self._touched(task, rank) if touch.region != EMPTY)
            self._touches[position] = tuple(found)
        return self._touches[position]

    def _touched(self, task: Task, rank: int) -> list[Touch]:
        if isinstance(task, Compute):
            shape, points = self.shape_of(task), self.layouts[task.shards][rank]
            reads = zip(task.reads, shape.reads(points), strict=True)
            return [
                *(Touch(name, False, region) for name, region in reads),
                Touch(task.write, True, shape.image(points)),
            ]
        need = self.layouts[task.need][rank]
        if isinstance(task, Transfer):
            have = self.layouts[task.have][rank]
            written = self.algebra.minus(need, have) if task.source == task.target else need
            asked = self.algebra.meet(have, self.wanted(task))
            return [Touch(task.source, False, asked), Touch(task.target, True, written)]
        return [Touch(task.source, False, need), Touch(task.target, True, need)]

    def wanted(self, task: Transfer) -> int:
        """All elements that some participant needs."""
        return self.algebra.join(self.layouts[task.need][rank] for rank in self.participants(task))


def _structure(op: Operation, shapes: Mapping[str, tuple[int, ...]], output: tuple[int, ...]) -> object:
    """The whole operation but for names: operands are known by position, and what it is called is left out."""
    place = {name: f"operand{k}" for k, name in enumerate(op.operands)}

    def placed(expr: Expr) -> Expr:
        return replace(expr, tensor=place[expr.tensor]) if isinstance(expr, Read) else expr

    body: Expr | Block
    if isinstance(op.body, Block):
        body = replace(op.body, reads=tuple(replace(read, tensor=place[read.tensor]) for read in op.body.reads))
    else:
        body = rewrite(op.body, placed)
    return replace(op, name="", output="", body=body, group="", source=""), tuple(shapes.values()), output
