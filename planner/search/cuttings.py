"""The ways to cut an operation into pieces, by what is computed first, and the dimensions along which they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...program import Operation
from ..lowering.decisions import Pieces
from ..lowering.pieces import Cutter


@dataclass(frozen=True)
class Equal:
    """As many equal pieces along a dimension."""

    dim: str
    count: int

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.equal(self.dim, self.count) if self.count > 1 else None


@dataclass(frozen=True)
class HeldFirst:
    """First what ranks hold of an operand, then the rest in so many pieces along a dimension."""

    operand: int
    dim: str
    count: int

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.held_first(cutter.op.operands[self.operand], self.dim, self.count)

    def first(self, cutter: Cutter) -> HeldFirst:
        """In as many pieces as are tried first: a border is one."""
        halo = cutter.mostly_held(cutter.op.operands[self.operand], self.dim)
        return replace(self, count=1) if halo else self


@dataclass(frozen=True)
class SentFirst:
    """First what other ranks read of the result."""

    dim: str

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.sent_first(self.dim)


@dataclass(frozen=True)
class ReadFirst:
    """First what the first pieces of its readers read, where these are cut so that something is sent."""

    dim: str


@dataclass(frozen=True)
class MadeFirst:
    """First what reads nothing of an operand but what its producer makes first, where that is cut."""

    operand: int
    dim: str


Cutting = Equal | HeldFirst | SentFirst | ReadFirst | MadeFirst


def dims(op: Operation) -> list[str]:
    """The dimensions along which results may be made one after another."""
    return [dim.name for dim in op.dims if dim.cut and dim.extent > 1 and dim.name in op.parallel_dims]


def dims_of(op: Operation, operand: int) -> list[str]:
    """Those of them along which an operand is read."""
    read = {name for read in op.reads if read.tensor == op.operands[operand] for row in read.index for name in row.dims}
    return [dim for dim in dims(op) if dim in read]


def carried(producer: Operation, dim: str, op: Operation, operand: int) -> Iterator[str]:
    """The dimensions of a reader that run along the axis of its operand that a dimension of the producer runs along."""
    axes = [axis for axis, row in enumerate(producer.write) if dim in row.dims]
    rows = [read.index[axis] for read in op.reads if read.tensor == op.operands[operand] for axis in axes]
    yield from dict.fromkeys(name for row in rows for name in dims(op) if name in row.dims)
