"""Products whose factors do not lie as matrices: one is written out as rows of a matrix first, some rows at a time.

    y[n, k, p, q] = sum[c, s, r]  x[n, c, 16*p + s, 16*q + r] * w[k, c, s, r]

Windows that share no element are such a factor: a copy of x with (c, s, r) next to one another is a matrix, and a
library's product of it and w is several times as quick as the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...dtypes import numpy_dtype
from ...expr import Affine, Expr, Read, rewrite
from ...space import Grid, IntSet
from ..device import DType, Stored
from .arrays import DeviceArray
from .jobs import Dims, Field, Job, Store, with_values
from .machine import Product
from .products import Factor, factors, located, products_of

# Bytes of a matrix that is written out: what it takes is read again while it is in the cache, and leaves room for the
# library of products in what a plan has for it.
ROOM = 16 << 20
# The name of what is written out, which no tensor has.
MATRIX = "(rows)"

Take = Callable[[int, DType], DeviceArray]


@dataclass(frozen=True)
class Rows:
    """Some rows of a factor: what writes them out, and the products of them."""

    writing: Job
    products: tuple[Product, ...]


@dataclass(frozen=True)
class _Written:
    """A factor to write out: the read, its dimensions that the other factor does not have, along the longest of which
    it is written out in parts, and the axes of the copy."""

    read: Read
    rows: Dims
    axes: Dims
    dtype: DType


def rows_of_windows(job: Job, take: Take, room: int) -> list[Rows] | None:
    """A product of windows that share no element; None of any other job, and where not one row has room.

    ``take`` gives elements for the matrix, which all the rows have in turn: no more than ``room`` bytes.
    """
    found = _factor_of_windows(job)
    return None if found is None else _by_rows(job, found, take, room)


def has_windows_apart(job: Job) -> bool:
    """Whether `rows_of_windows` may have a job."""
    return _factor_of_windows(job) is not None


def _factor_of_windows(job: Job) -> _Written | None:
    """The factor that is read in windows, where no two points of windows are one element."""
    if job.record is None or job.record.monoid.function != "add" or len(job.folds) != 1 or len(job.stores) != 1:
        return None
    [fold], [store] = job.folds, job.stores
    reads = factors(fold.values[0]) if not fold.where else None
    if reads is None or any(read.guard for read in reads) or reads[0].tensor == reads[1].tensor:
        return None
    fields = [job.fields[read.tensor] for read in reads]
    if not all(isinstance(field.stored.array, DeviceArray) for field in fields):
        return None
    sides = [located(job, read.index, field.stored, field.dtype) for read, field in zip(reads, fields, strict=True)]
    out = located(job, store.index, store.into.stored, store.into.dtype)
    for read, side, other in zip(reads, sides, sides[::-1], strict=True):
        windowed = any(len(row.dims) > 1 for row in read.index)
        if windowed and side is not None and other is not None and out is not None and _apart(job, side):
            return _axes(job, read, side, other, out)
    return None


def _apart(job: Job, side: Factor) -> bool:
    """Whether no two values of the dimensions come to one element."""
    extents, reached = {name: hi for name, (_, hi) in job.ranges.items()}, 0
    for step, extent in sorted((step, extents[name]) for name, step in side.steps.items()):
        if step <= reached:
            return False
        reached += step * (extent - 1)
    return True


def _axes(job: Job, read: Read, side: Factor, other: Factor, out: Factor) -> _Written | None:
    """Rows as they lie in the result, what is folded as it lies in the other factor; last what lies closest in it."""
    folded = _lying(job.folds[0].dims, other)
    rows = _lying([dim for dim in job.kept if dim[0] in side.steps], out)
    if len(folded) < len(job.folds[0].dims) or any(name not in side.steps for name, _ in folded):
        return None
    own = tuple(dim for dim in rows if dim[0] not in other.steps)
    closest = min(side.steps, key=lambda name: side.steps[name])
    axes = (*rows, *folded) if any(name == closest for name, _ in folded) else (*folded, *rows)
    return _Written(read, own, axes, numpy_dtype(side.dtype)) if own else None


def _lying(dims: Sequence[tuple[str, int]], factor: Factor) -> Dims:
    """Of these the dimensions that a factor has, those furthest apart first."""
    having = [dim for dim in dims if factor.steps.get(dim[0], 0) > 0]
    return tuple(sorted(having, key=lambda dim: -factor.steps[dim[0]]))


def _by_rows(job: Job, found: _Written, take: Take, room: int) -> list[Rows] | None:
    longest, extent = max(found.rows, key=lambda dim: dim[1])
    elements = prod(n for _, n in found.axes) // extent
    many = min(extent, room // (elements * found.dtype.itemsize))
    if not many:
        return None
    matrix = take(many * elements, found.dtype)
    made = []
    for start in range(0, extent, many):
        rows = _some(job, found, longest, range(start, min(extent, start + many)), matrix)
        if rows is None:
            return None
        made.append(rows)
    return made


def _some(job: Job, found: _Written, name: str, run: range, matrix: DeviceArray) -> Rows | None:
    """The rows of a run of values of a dimension."""
    fewer = tuple((dim, len(run) if dim == name else n) for dim, n in job.kept)
    part = with_values(replace(job, kept=fewer), {name: Affine.dim(name) + run.start})
    axes = tuple((dim, len(run) if dim == name else n) for dim, n in found.axes)
    shape = tuple(n for _, n in axes)
    array = DeviceArray(matrix.memory, matrix.offset, shape, matrix.dtype)
    index = tuple(Affine.dim(dim) for dim, _ in axes)
    stored = Stored(array, Grid(tuple(IntSet.interval(0, n) for n in shape)))
    [fold] = part.folds
    [read] = [read for read in factors(fold.values[0]) or () if read.tensor == found.read.tensor]
    field = job.fields[read.tensor]
    target = Field(stored, field.dtype)
    writing = Job(axes, (), {read.tensor: field}, (Store(read, index, target),))

    def leaf(node: Expr) -> Expr:
        return Read(MATRIX, index) if isinstance(node, Read) and node.tensor == read.tensor else node

    values = (rewrite(fold.values[0], leaf),)
    made = products_of(replace(part, fields={**part.fields, MATRIX: target}, folds=(replace(fold, values=values),)))
    return Rows(writing, tuple(made)) if made else None
