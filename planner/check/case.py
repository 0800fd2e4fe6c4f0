"""The plan as the proofs see it: regions interned, and for every task the memory it touches on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ...expr import Expr, Read, rewrite
from ...program import Block, Operation, Program
from ..format.document import Buffer, Compute, Document, Task, Transfer
from .algebra import EMPTY, Algebra
from .shape import Shape
from .storage import BYTES, record_size


@dataclass(frozen=True)
class Memory:
    """A tier as the plan's machine describes it: what it holds on each rank; ``shared`` by the devices of a host."""

    capacities: tuple[int, ...]
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
        kinds: tuple[int, ...] = (),
    ) -> None:
        """``kinds``: per rank which of the machine's devices it is, 0 the first described."""
        self.document, self.program, self.tiers = document, program, tiers
        self.kinds = kinds or (0,) * len(document.devices)
        self.algebra, self.layouts = algebra, layouts
        self.ranks = len(document.devices)
        self.tasks = document.tasks
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in document.buffers}
        self._shapes: dict[object, Shape] = {}
        self._shape_of: dict[str, Shape] = {}
        self._beyond: dict[tuple[str, str, tuple[int, ...] | None], list[tuple[int, int]]] = {}
        self._distinct: dict[tuple[str, tuple[int, ...] | None], frozenset[int]] = {}

    @cached_property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.ranks))

    def participants(self, task: Task) -> tuple[int, ...]:
        return self.everyone if task.ranks is None else task.ranks

    def held(self, buffer: str) -> tuple[int, ...]:
        """Per rank the elements that a buffer is laid out for."""
        return self.layouts[self.buffers[buffer].layout]

    def item_bytes(self, tensor: str) -> int:
        """Bytes of one element of a tensor."""
        return BYTES[self.program.tensor(tensor).dtype]

    def record_bytes(self, tensor: str) -> int:
        """Bytes of one element of a partial result of a tensor."""
        record = self.program.records.get(tensor)
        return self.item_bytes(tensor) if record is None else record_size(record)[0]

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

    def distinct(self, layout: str, ranks: tuple[int, ...] | None) -> frozenset[int]:
        """The different regions of a layout on these ranks (None: on all)."""
        key = layout, ranks
        if key not in self._distinct:
            regions = self.layouts[layout]
            self._distinct[key] = frozenset(regions if ranks is None else (regions[rank] for rank in ranks))
        return self._distinct[key]

    def beyond(self, layout: str, other: str, ranks: tuple[int, ...] | None) -> list[tuple[int, int]]:
        """Ranks (None: of all) on which a layout has elements that another has not, with these elements."""
        key = layout, other, ranks
        if key not in self._beyond:
            some, allowed = self.layouts[layout], self.layouts[other]
            every = () if layout == other else self.everyone if ranks is None else ranks
            extras = [(rank, self.algebra.minus(some[rank], allowed[rank])) for rank in every]
            self._beyond[key] = [(rank, extra) for rank, extra in extras if extra != EMPTY]
        return self._beyond[key]

    def meeting(self, task: Transfer) -> list[tuple[int, ...]]:
        """The ranks that fold among themselves: all of them, or those of each share that they fold to."""
        onward = self.parts(task.need)
        if onward is None:
            return [self.participants(task)]
        found: dict[int, list[int]] = {}
        for rank in self.participants(task):
            found.setdefault(onward[rank], []).append(rank)
        return [tuple(found[number]) for number in sorted(found)]

    def wanted(self, task: Transfer) -> int:
        """All elements that some participant needs."""
        return self.algebra.join(self.distinct(task.need, task.ranks))


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
