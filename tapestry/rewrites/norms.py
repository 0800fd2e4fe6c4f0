"""Mean and variance in one pass: the fold "moments", whose partial results are combined as Welford's are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import tapestry as tp

from ..dsl.define import define
from ..dsl.index import indices
from ..dtypes import DTYPES, promote
from ..expr import MONOIDS, Affine, Call, Cast, Const, Expr, Read, substitute
from ..expr.simplify import Simplifier
from ..program import Block, Dim, Operation, Program
from ..result_type import result_dtype
from .drafts import drafted, fresh
from .folds import Folded, factors_of, is_sum, product_of
from .forms import known_operation
from .inlining import dtypes_of
from .rule import Change, rule

MOMENTS = "moments"
PARTS = [component.name for component in MONOIDS[MOMENTS].components]


def _two_passes(*, n: int = 3, k: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n, k), axes=("n", "k"))
    row, at = indices("n k")
    kept = dtype if DTYPES[dtype].kind == "float" else "f32"
    mean = define("mean", [row], tp.sum[at](x[row, at] / k), dtype=kept).named("mean")
    away = x[row, at] - mean[row]
    return {"mean": mean, "variance": define("variance", [row], tp.sum[at](away * away / k), dtype=kept)}


@rule(example=_two_passes, algebraic=True)
def one_pass_moments(program: Program, op: Operation) -> Iterator[Change]:
    """Fold a mean and the mean squared deviation from it in one pass over the values.

    before:
        mean[n] = sum[k] x[n, k] / 4
        variance[n] = sum[k] (x[n, k] - mean[n]) * (x[n, k] - mean[n]) / 4
    after:
        mean.moments[n, result] = moments[k] x[n, k]
        mean[n] = mean.moments[n, 1]
        variance[n] = mean.moments[n, 2] / 4
    legal: both are taken over the same values, all of them, which are kept as floats
    """
    values = _averaged(op)
    mean = Folded.of(program, op) if values is not None else None
    if values is None or mean is None or DTYPES[program.tensor(op.output).dtype].kind != "float":
        return
    for reader in program.consumers[op.output]:
        read = _subtracted(mean, reader)
        if read is not None:
            yield _one_pass(program, mean, values, reader, read)


def _averaged(op: Operation) -> Expr | None:
    """The values of which an operation computes the mean."""
    if not is_sum(op) or op.where:
        return None
    assert not isinstance(op.body, Block)
    *values, count = factors_of(op.body)
    points = prod(op.extents[name] for name in op.reduce_dims)
    whole = points and values and count.divides and count.expr == Const(points)
    return _narrow(product_of(values)) if whole else None


def _narrow(values: Expr) -> Expr:
    """Elements as they are kept, without the conversion that widens them first."""
    return values.arg if isinstance(values, Cast) and isinstance(values.arg, Read) else values


def _subtracted(mean: Folded, op: Operation) -> Read | None:
    """The read of a mean in an operation that computes the mean squared deviation from it."""
    squares = _averaged(op)
    if squares is None or not known_operation(op):
        return None
    match factors_of(squares):
        case [one, other] if one == other and not one.divides:
            away = one.expr
        case _:
            return None
    match away:
        case Call("subtract", (values, Read() as read)) if read.tensor == mean.op.output and not read.guard:
            same = _same_values(mean, op, _narrow(values), read)
            return read if same else None
    return None


def _same_values(mean: Folded, op: Operation, values: Expr, read: Read) -> bool:
    """Whether an operation goes over the values of which it reads the mean."""
    dims, body, where = mean.at(read, op.extents)
    folded = [op.dim(name) for name in op.reduce_dims]
    moves = any(row.dims & set(op.reduce_dims) for row in read.index)
    if where or moves or [dim.extent for dim in dims] != [dim.extent for dim in folded]:
        return False
    names = {dim.name: Affine.dim(own.name) for dim, own in zip(dims, folded, strict=True)}
    *of_mean, _ = factors_of(substitute(body, names))
    simple = Simplifier({dim.name: (0, dim.extent) for dim in op.dims})
    return simple.expr(_narrow(product_of(of_mean))) == simple.expr(values)


def _one_pass(program: Program, mean: Folded, values: Expr, reader: Operation, read: Read) -> Change:
    """Count, mean and squares in one record, and what both operations read of it."""
    op = mean.op
    kept = tuple(dim for dim in op.dims if dim.name not in op.reduce_dims)
    last = Dim(fresh("result", op.extents), len(PARTS), cut=False)
    dims = (*kept, last, *(op.dim(name) for name in op.reduce_dims))
    dtype = promote(result_dtype(values, dtypes_of(program, op)), program.tensor(op.output).dtype, "f32")
    fold, tensor = drafted(
        program, op, MOMENTS, dims, values, dtype, reduce_dims=op.reduce_dims, monoid=MOMENTS
    )  # fmt: skip
    axes = dict(zip(mean.axes, read.index, strict=True))
    place = tuple(mean.values[dim.name].substitute(axes) for dim in kept)
    points = prod(op.extents[name] for name in op.reduce_dims)
    part = {name: Affine.of(k) for k, name in enumerate(PARTS)}
    average = Read(tensor.name, (*(Affine.dim(dim.name) for dim in kept), part["mean"]))
    squares = Call("divide", (Read(tensor.name, (*place, part["m2"])), Const(points)))
    outer = tuple(dim for dim in reader.dims if dim.name not in reader.reduce_dims)
    added = (
        fold,
        replace(op, dims=kept, body=average, reduce_dims=(), monoid=None),
        replace(reader, dims=outer, body=squares, reduce_dims=(), monoid=None),
    )
    return Change((op.name, reader.name), added, (tensor,))
