"""Records: how partial results of a fold are stored, element by element.

What a shard leaves of a fold that others contribute to is a record of the fold's monoid, not yet finished: the sum of
f16 so far in f32, a largest value and its position. Its components stand one after another in each element,
each at a multiple of its own size, the whole a multiple of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .dtypes import DTYPES, numpy_dtype
from .expr import MONOIDS, Monoid
from .program import Block, Operation, Program
from .result_type import result_dtype
from .space import Grid, Region


def over_records(op: Operation) -> Operation:
    """A fold of several results as one whose every element is a whole record, without the dimension of their places."""
    if op.record_dim is None:
        return op
    return replace(op, dims=tuple(dim for dim in op.dims if dim.name != op.record_dim), write=op.write[:-1])


def records_at(op: Operation, points: Region) -> Region:
    """Points of a fold of several results, without the dimension of their places."""
    place = [dim.name for dim in op.dims].index(op.record_dim or "")
    return Region.of(*(Grid((*grid.axes[:place], *grid.axes[place + 1 :])) for grid in points.grids))


@dataclass(frozen=True)
class Width:
    """Bytes of one element of a tensor, complete and as a contribution to a fold.

    ``packed``: elements along the last axis are one record while it is folded, which no share of a fold cuts.
    """

    complete: int
    partial: int
    packed: bool = False


def record_of(op: Operation, program: Program) -> tuple[str, ...] | None:
    """The dtypes of the components of the operation's partial results; None where they are elements of its output.

    `Program.records` keeps the answers.
    """
    if op.monoid is None or MONOIDS[op.monoid].packed:
        return None
    stored = program.tensor(op.output).dtype
    dtypes = {name: program.tensor(name).dtype for name in op.operands}
    value = stored if isinstance(op.body, Block) else result_dtype(op.body, dtypes)
    found = MONOIDS[op.monoid].dtypes_for(value, stored)
    return None if found == (stored,) and MONOIDS[op.monoid].function is not None else found


def free_axes(program: Program, tensor: str) -> int:
    """How many of its first axes may be cut while it is folded: all, but the last along which a record lies."""
    producer = program.producer.get(tensor)
    packed = producer is not None and producer.monoid is not None and MONOIDS[producer.monoid].packed
    return len(program.tensor(tensor).shape) - packed


def record_alignment(record: tuple[str, ...]) -> int:
    return max(DTYPES[dtype].bytes for dtype in record)


def record_bytes(record: tuple[str, ...]) -> int:
    """Bytes of one record.

    >>> record_bytes(("f16", "int64")), record_bytes(("f32",))
    (16, 4)
    """
    end = 0
    for dtype in record:
        size = DTYPES[dtype].bytes
        end = -(-end // size) * size + size
    align = record_alignment(record)
    return -(-end // align) * align


def record_dtype(record: tuple[str, ...], monoid: Monoid) -> Any:
    """NumPy's dtype of records: where they are values that a function folds its own, else a structure of components."""
    import numpy as np

    if monoid.function is not None:
        return numpy_dtype(record[0])
    return np.dtype([(f"c{k}", numpy_dtype(dtype)) for k, dtype in enumerate(record)], align=True)


def width_of(program: Program, tensor: str) -> Width:
    """Bytes of one element of a tensor, complete and as a contribution to the fold that makes it."""
    size, record = program.tensor(tensor).itemsize, program.records.get(tensor)
    packed = free_axes(program, tensor) < len(program.tensor(tensor).shape)
    return Width(size, size if record is None else record_bytes(record), packed)
