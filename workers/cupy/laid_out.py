"""Products whose operands do not lie as matrices: windows that share no element, written out as rows, some at a time.

    y[n, k, p, q] = sum[c, s, r]  x[n, c, 16*p + s, 16*q + r] * w[k, c, s, r]
    x[n, c, 16*p + s, 16*q + r] = sum[k]  y[n, k, p, q] * w[k, c, s, r]

A copy of x with (c, s, r) next to one another is a matrix. A library's product of it and w is several times as quick as
the convolution, and one into it as many products as a window has rows. Filters' gradients are products of the same
matrix, whose rows are folded: parts of them are added up in f32.
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
from .products import Factor, factors, located, products_of, without_steps

# Bytes of a matrix that is written out: what it takes is read again while it is in the cache, and leaves room for the
# library of products in what a plan has for it.
ROOM = 16 << 20
# The names of what is written out, which no tensor has: rows of windows, and sums of products of some of them.
MATRIX, SUMS = "(rows)", "(sums)"
# Channels that a library of convolutions takes at its best: multiples of so many.
AT_BEST = 8

Take = Callable[[int, DType], DeviceArray]


@dataclass(frozen=True)
class Rows:
    """Some rows: the products, with what writes out their factor before, or their result behind them."""

    before: Job | None
    products: tuple[Product, ...]
    after: Job | None


@dataclass(frozen=True)
class _Matrix:
    """What is written out, a factor or, where ``read`` is None, the result: its axes, and those of them of one of which
    it has some values at a time, the outermost first."""

    read: Read | None
    rows: Dims
    axes: Dims
    dtype: str


def rows_of_windows(job: Job, take: Take, room: int) -> list[Rows] | None:
    """A product of windows that share no element, or into them; None of any other job, and where not one row has room.

    ``take`` gives elements for the matrix, which all the rows have in turn: no more than ``room`` bytes.
    """
    if not _is_sum(job):
        return None
    found = _factor(job)
    if found is not None:
        return _by_rows(job, found, take, room)
    if (folded := _folded(job)) is not None:
        return _by_folds(job, *folded, take, room)
    job = without_steps(job)
    found = _result(job)
    return None if found is None else _by_rows(job, found, take, room)


def has_windows_apart(job: Job) -> bool:
    """Whether `rows_of_windows` may have a job."""
    return _is_sum(job) and (_factor(job) or _folded(job) or _result(without_steps(job))) is not None


def _is_sum(job: Job) -> bool:
    """Of products of two arrays, at every point."""
    if job.record is None or job.record.monoid.function != "add" or len(job.folds) != 1 or len(job.stores) != 1:
        return False
    reads = factors(job.folds[0].values[0]) if not job.folds[0].where else None
    if reads is None or any(read.guard for read in reads) or reads[0].tensor == reads[1].tensor:
        return False
    return all(isinstance(job.fields[read.tensor].stored.array, DeviceArray) for read in reads)


def _sides(job: Job) -> tuple[tuple[Read, Read], list[Factor | None]]:
    """The reads of the two factors; and where these and the result lie."""
    reads = factors(job.folds[0].values[0])
    assert reads is not None
    fields = [job.fields[read.tensor] for read in reads]
    found = [located(job, read.index, field.stored, field.dtype) for read, field in zip(reads, fields, strict=True)]
    [store] = job.stores
    return reads, [*found, located(job, store.index, store.into.stored, store.into.dtype)]


def _factor(job: Job) -> _Matrix | None:
    """The factor that is read in windows, what is folded being their places."""
    found = _windowed(job)
    if found is None:
        return None
    read, side, other, out = found
    rows = _lying([dim for dim in job.kept if dim[0] in side.steps], out)
    folded = _lying(job.folds[0].dims, other)
    own = tuple(dim for dim in rows if dim[0] not in other.steps)
    if not own or len(folded) < len(job.folds[0].dims) or _closest(side) not in dict(folded):
        return None
    return _Matrix(read, own, (*rows, *folded), side.dtype)


def _folded(job: Job) -> tuple[_Matrix, Dims] | None:
    """The factor that is read in windows, what is folded being places of a result, and what the other factor has of the
    product. A library of convolutions is quicker where it likes the channels."""
    found = _windowed(job)
    if found is None:
        return None
    read, side, other, _ = found
    along = frozenset[str]().union(*(row.dims for row in read.index if len(row.dims) > 1))
    rows = _lying([dim for dim in job.kept if dim[0] in side.steps], side)
    channels = prod(n for name, n in rows if name not in along)
    folded = _lying(job.folds[0].dims, other)
    columns = _lying([dim for dim in job.kept if dim[0] in other.steps], other)
    if channels % AT_BEST == 0 or set(rows) & set(columns) or len(rows) + len(columns) < len(job.kept):
        return None
    if len(folded) < len(job.folds[0].dims) or _closest(side) not in dict(rows) or not columns:
        return None
    return _Matrix(read, folded, (*folded, *rows), side.dtype), (*rows, *columns)


def _windowed(job: Job) -> tuple[Read, Factor, Factor, Factor] | None:
    """The read of a factor in windows that share no element, where it lies, the other factor, and the result."""
    reads, (left, right, out) = _sides(job)
    for read, side, other in ((reads[0], left, right), (reads[1], right, left)):
        windowed = any(len(row.dims) > 1 for row in read.index)
        if windowed and side is not None and other is not None and out is not None and _apart(job, side):
            return read, side, other, out
    return None


def _closest(side: Factor) -> str:
    """The dimension along which elements lie closest."""
    return min(side.steps, key=lambda name: side.steps[name])


def _result(job: Job) -> _Matrix | None:
    """The result, where it is stored in windows: its rows as they lie in the longer factor, its columns as in the
    other."""
    _, (left, right, out) = _sides(job)
    if left is None or right is None or out is None or not _apart(job, out):
        return None
    if not any(len(row.dims) > 1 for row in job.stores[0].index):
        return None
    sides = [_lying(job.kept, side) for side in (left, right)]
    if set(sides[0]) & set(sides[1]) or len(sides[0]) + len(sides[1]) < len(job.kept):
        return None
    columns, rows = sorted(sides, key=lambda dims: prod(n for _, n in dims))
    return _Matrix(None, rows, (*rows, *columns), out.dtype) if rows and columns else None


def _apart(job: Job, side: Factor) -> bool:
    """Whether no two values of the dimensions come to one element."""
    extents, reached = {name: hi for name, (_, hi) in job.ranges.items()}, 0
    for step, extent in sorted((step, extents[name]) for name, step in side.steps.items()):
        if step <= reached:
            return False
        reached += step * (extent - 1)
    return bool(side.steps)


def _lying(dims: Sequence[tuple[str, int]], factor: Factor) -> Dims:
    """Of these the dimensions that a factor has, those furthest apart first."""
    having = [dim for dim in dims if factor.steps.get(dim[0], 0) > 0]
    return tuple(sorted(having, key=lambda dim: -factor.steps[dim[0]]))


def _by_rows(job: Job, found: _Matrix, take: Take, room: int) -> list[Rows] | None:
    parts = _parts(found, room)
    if parts is None:
        return None
    name, runs, elements = parts
    matrix = take(elements, numpy_dtype(found.dtype))
    made = []
    for run in runs:
        rows = _some(job, found, name, run, matrix)
        if rows is None:
            return None
        made.append(rows)
    return made


def _parts(found: _Matrix, room: int) -> tuple[str, list[range], int] | None:
    """Values of a dimension of rows, the outermost one that will do, and the elements of the largest part; None where
    none has room."""
    whole = prod(n for _, n in found.axes)
    for name, extent in found.rows:
        many = min(extent, room // (whole // extent * numpy_dtype(found.dtype).itemsize))
        if many > 0:
            runs = [range(start, min(extent, start + many)) for start in range(0, extent, many)]
            return name, runs, whole // extent * many
    return None


def _by_folds(job: Job, found: _Matrix, sums: Dims, take: Take, room: int) -> list[Rows] | None:
    """Sums in f32 of parts of what is folded; the last part's are the result."""
    assert job.record is not None
    [dtype], [store] = job.record.dtypes, job.stores
    size = prod(n for _, n in sums)
    parts = _parts(found, room - size * numpy_dtype(dtype).itemsize)
    if parts is None:
        return None
    name, runs, elements = parts
    into = _dense(take(size, numpy_dtype(dtype)), sums, dtype)
    matrix = take(elements, numpy_dtype(found.dtype))
    index = tuple(Affine.dim(dim) for dim, _ in sums)
    summing = replace(job, stores=(replace(store, index=index, into=into),))
    made: list[Rows] = []
    for run in runs:
        rows = _some(summing, found, name, run, matrix)
        if rows is None:
            return None
        more = tuple(replace(one, added=one.out) for one in rows.products) if made else rows.products
        made.append(replace(rows, products=more))
    stored = Job(sums, (), {SUMS: into}, (replace(store, value=Read(SUMS, index)),))
    return [*made[:-1], replace(made[-1], after=stored)]


def _some(job: Job, found: _Matrix, name: str, run: range, matrix: DeviceArray) -> Rows | None:
    """The part of a run of values of a dimension, of rows or of what is folded."""
    [fold] = job.folds
    gone = name if len(run) == 1 else ""  # a dimension of one value is none
    kept, folded, axes = (
        tuple((dim, len(run) if dim == name else n) for dim, n in dims if dim != gone)
        for dims in (job.kept, fold.dims, found.axes)
    )
    part = replace(job, kept=kept, folds=(replace(fold, dims=folded),))
    part = with_values(part, {name: (Affine() if gone else Affine.dim(name)) + run.start})
    field = _dense(matrix, axes, found.dtype)
    whole = Read(MATRIX, tuple(Affine.dim(dim) for dim, _ in axes))
    [fold], [store] = part.folds, part.stores
    before = after = None
    if found.read is None:
        after = Job(axes, (), {MATRIX: field}, (replace(store, value=whole),))
        part = replace(part, stores=(replace(store, index=whole.index, into=field),))
    else:
        tensor = found.read.tensor
        [read] = [read for read in factors(fold.values[0]) or () if read.tensor == tensor]
        before = Job(axes, (), {tensor: job.fields[tensor]}, (Store(read, whole.index, field),))

        def leaf(node: Expr) -> Expr:
            return whole if isinstance(node, Read) and node.tensor == tensor else node

        values = (rewrite(fold.values[0], leaf),)
        part = replace(part, fields={**part.fields, MATRIX: field}, folds=(replace(fold, values=values),))
    made = products_of(part)
    return Rows(before, tuple(made), after) if made else None


def _dense(array: DeviceArray, axes: Dims, dtype: str) -> Field:
    """The first elements of an array, with axes."""
    shape = tuple(n for _, n in axes)
    held = DeviceArray(array.memory, array.offset, shape, array.dtype)
    return Field(Stored(held, Grid(tuple(IntSet.interval(0, n) for n in shape))), dtype)
