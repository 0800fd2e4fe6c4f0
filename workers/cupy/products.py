"""Sums of products that a library of matrix products computes: recognised by their structure, as the arrays lie.

    out[b, m, n] = sum[k] left[b, m, k] * right[b, k, n]

Every dimension is one of a batch, rows, columns or folded. What of a group lies together in memory is one axis of the
matrices, what does not is one more loop around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from ...dtypes import name_of
from ...expr import Affine, Call, Cast, Expr, Read, substitute
from ...expr.simplify import simplify_index
from ...kernels.elementwise.indices import period, simplified_body
from ..device import Stored
from .arrays import DeviceArray
from .jobs import Dims, Job
from .machine import Matrices, Product
from .places import place

# Multiplications of a matrix that make it one, and calls of one task.
LEAST, MOST_CALLS = 1 << 12, 64
# The types of operands, of what they are added up in, and of the result, that libraries have.
KNOWN = {
    ("f64", "f64"), ("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32"),
}  # fmt: skip


@dataclass(frozen=True)
class Factor:
    """An operand or the result: the array, the offset of its first element, the step along every dimension."""

    array: DeviceArray
    offset: int
    steps: dict[str, int]
    dtype: str


def products_of(job: Job) -> list[Product] | None:
    """The matrix products that a job is, or None."""
    if job.record is None or job.record.monoid.function != "add" or len(job.folds) != 1 or len(job.stores) != 1:
        return None
    dtype = job.record.dtypes[0]
    if not job.folds[0].where and factors(job.folds[0].values[0]) is not None:
        job = without_steps(job)
    [fold], [store] = job.folds, job.stores
    reads = factors(fold.values[0]) if not fold.where else None
    if reads is None or any(read.guard for read in reads) or store.into.offset or store.into.stored.array.dtype.names:
        return None
    left, right = (_factor(job, read) for read in reads)
    out = located(job, store.index, store.into.stored, store.into.dtype)
    if left is None or right is None or out is None or left.dtype != right.dtype:
        return None
    if (left.dtype, out.dtype) not in KNOWN or (left.dtype == "f64") != (dtype == "f64"):
        return None
    return _matrices(job.kept, fold.dims, left, right, out)


def multiplications(products: Sequence[Product]) -> int:
    """How many there are in all."""
    return sum(one.batches * one.rows * one.columns * one.folded for one in products)


def without_steps(job: Job) -> Job:
    """With two dimensions for each along which a read steps at regular distances: heads that share keys, in groups."""
    for _ in range(8):
        rows = [(row, dim) for read in job.reads() for row in read.index for dim in (*job.kept, *job.folds[0].dims)]
        found = next(((dim, step) for row, dim in rows if (step := period(row, *dim)) is not None), None)
        if found is None:
            return job
        job = _split(job, *found)
    return job


def _split(job: Job, dim: tuple[str, int], step: int) -> Job:
    name, extent = dim
    outer, inner = f"{name}q", f"{name}r"
    parts = ((outer, extent // step), (inner, step))
    values = {name: Affine.dim(outer) * step + Affine.dim(inner)}
    [fold] = job.folds
    kept, folded = (
        tuple(part for one in dims for part in (parts if one == dim else (one,))) for dims in (job.kept, fold.dims)
    )
    ranges = {part: (0, n) for part, n in (*kept, *folded)}
    dtypes = {tensor: field.dtype for tensor, field in job.fields.items()}
    value = simplified_body(substitute(fold.values[0], values), ranges, dtypes)
    stores = [
        replace(store, index=tuple(simplify_index(row.substitute(values), ranges) for row in store.index))
        for store in job.stores
    ]
    return replace(job, kept=kept, stores=tuple(stores), folds=(replace(fold, dims=folded, values=(value,)),))


def factors(value: Expr) -> tuple[Read, Read] | None:
    """Two reads whose product is folded; casts that only say in which type are looked through."""
    while isinstance(value, Cast) and value.dtype in ("f32", "f64"):
        value = value.arg
    if not isinstance(value, Call) or value.function != "multiply":
        return None
    found = [arg.arg if isinstance(arg, Cast) and arg.dtype in ("f32", "f64") else arg for arg in value.args]
    a, b = found
    return (a, b) if isinstance(a, Read) and isinstance(b, Read) else None


def _factor(job: Job, read: Read) -> Factor | None:
    field = job.fields[read.tensor]
    if isinstance(field.stored.array, np.ndarray):
        return None
    return located(job, read.index, field.stored, field.dtype)


def located(job: Job, index: Sequence[Affine], stored: Stored, dtype: str) -> Factor | None:
    """Where the elements of an index lie; None unless they are steps apart along every dimension."""
    at = place(index, stored, job.ranges)
    if at.broken or not at.plain.is_affine:
        return None
    return Factor(stored.array, at.plain.const, {str(name): c for name, c in at.plain.terms}, dtype)


def _matrices(kept: Dims, folded: Dims, left: Factor, right: Factor, out: Factor) -> list[Product] | None:
    """Dimensions sorted into groups, groups made one axis each, the rest loops."""
    if not all(name in left.steps and name in right.steps for name, _ in folded) or not folded:
        return None
    if not all(name in left.steps or name in right.steps for name, _ in kept):
        return None
    if any(step < 0 for factor in (left, right, out) for step in factor.steps.values()):
        return None
    k, k_left = joined(folded, (left, right))
    if k_left:
        return None
    found = (_with_axes(kept, k, left, right, out, closest=closest) for closest in (False, True))
    return next((products for products in found if products is not None), None)


def _with_axes(kept: Dims, k: Dims, left: Factor, right: Factor, out: Factor, *, closest: bool) -> list[Product] | None:
    """With the axes of the matrices the longest there are, or those whose elements lie closest together."""
    rows = tuple(dim for dim in kept if dim[0] not in right.steps)
    columns = tuple(dim for dim in kept if dim[0] not in left.steps)
    batch = tuple(dim for dim in kept if dim[0] in left.steps and dim[0] in right.steps)
    m, m_left = joined(rows, (left, out), closest=closest)
    n, n_left = joined(columns, (right, out), closest=closest)
    b, b_left = joined(batch, (left, right, out))
    loops = (*m_left, *n_left, *b_left)
    if not b and loops:
        longest = max(loops, key=lambda dim: dim[1])
        b, loops = (longest,), tuple(dim for dim in loops if dim != longest)
    sizes = [prod(extent for _, extent in dims) for dims in (b, m, n, k)]
    if sizes[1] * sizes[2] * sizes[3] < LEAST or prod(extent for _, extent in loops) > MOST_CALLS:
        return None
    made = Product(
        _matrix(left, b, m, k), _matrix(right, b, k, n), _matrix(out, b, m, n),
        sizes[0], sizes[1], sizes[2], sizes[3],
    )  # fmt: skip
    if not all(_taken(x, *shape) for x, shape in _shapes(made)):
        return None
    return [
        _moved(made, dict(zip([name for name, _ in loops], at, strict=True)), (left, right, out))
        for at in _points(loops)
    ]


def joined(dims: Dims, factors: Sequence[Factor], *, closest: bool = False) -> tuple[Dims, Dims]:
    """The dimensions that are one axis for all factors, from far apart to close together; and the others. Of several
    such axes the longest, or the one whose elements lie ``closest``."""
    ordered = sorted(dims, key=lambda dim: tuple(-factor.steps.get(dim[0], 0) for factor in factors))
    joined: list[tuple[str, int]] = []
    left: list[tuple[str, int]] = []
    for name, extent in reversed(ordered):
        whole = prod(n for _, n in joined)
        if not joined or all(f.steps.get(name, 0) == f.steps.get(joined[0][0], 0) * joined[0][1] for f in factors):
            joined.insert(0, (name, extent))
        elif extent > whole and not closest:  # the longer one is the better axis
            left += joined
            joined = [(name, extent)]
        else:
            left.append((name, extent))
    return tuple(joined), tuple(left)


def _matrix(factor: Factor, batch: Dims, rows: Dims, columns: Dims) -> Matrices:
    steps = [factor.steps.get(dims[-1][0], 0) if dims else 0 for dims in (batch, rows, columns)]
    return Matrices(factor.array, factor.offset, *steps)


def _shapes(made: Product) -> list[tuple[Matrices, tuple[int, int]]]:
    m, n, k = made.rows, made.columns, made.folded
    return [(made.left, (m, k)), (made.right, (k, n)), (made.out, (m, n))]


def _taken(x: Matrices, rows: int, columns: int) -> bool:
    """Whether a library takes the matrix as it lies: line after line along one of its axes, lines apart."""
    by_rows = (columns == 1 or x.column == 1) and (rows == 1 or x.row >= columns)
    by_columns = (rows == 1 or x.row == 1) and (columns == 1 or x.column >= rows)
    return by_rows or by_columns


def _points(loops: Dims) -> list[tuple[int, ...]]:
    return list(product(*(range(extent) for _, extent in loops)))


def _moved(made: Product, at: dict[str, int], factors: Sequence[Factor]) -> Product:
    """The same product at other places."""
    sides = []
    for x, factor in zip((made.left, made.right, made.out), factors, strict=True):
        sides.append(replace(x, offset=x.offset + sum(value * factor.steps.get(name, 0) for name, value in at.items())))
    return replace(made, left=sides[0], right=sides[1], out=sides[2])


def dtype_of(x: Matrices) -> str:
    """The name of the dtype of a matrix."""
    return name_of(x.array.dtype)
