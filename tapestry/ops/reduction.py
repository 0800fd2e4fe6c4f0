"""Reductions over any axes: by every monoid of the table but those of blocks, and mean.

sum and prod of bool and integers below 32 bits are kept in int32; a fold over no element gives the monoid's identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product

from ..dsl.door import door
from ..dsl.reducer import Axes, Reducer
from ..dsl.tensor import Tensor
from ..dsl.trace import current
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import Affine, Call, Cast, Const, Expr
from ..program import Dim

sum, prod, max, min, any, all = map(Reducer, ("sum", "prod", "max", "min", "any", "all"))
argmax, argmin, logsumexp, variance = map(Reducer, ("argmax", "argmin", "logsumexp", "variance"))


def reduce(
    monoid: str, x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = ""
) -> Tensor:
    """Fold ``x`` over axes, given by position or name; over all of them when ``axis`` is None."""
    dims = _dims(x)
    body = x.at(tuple(Affine.dim(dim.name) for dim in dims))
    folded = axis_positions(x, axis)
    out = fold_of_axes(monoid, monoid, x, body, folded, dtype, name)
    return with_axes(out, x, folded) if keepdims else out


@door
def mean(x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = "") -> Tensor:
    """sum of x / N over the axes, N elements being folded into one: f32 from integers; NaN where N is 0."""
    count = product(x.shape[k] for k in axis_positions(x, axis))
    if not count:
        return _undefined_mean(x, axis, keepdims, dtype, name)
    value: Expr = x.at(tuple(Affine.dim(dim.name) for dim in _dims(x)))
    if DTYPES[x.dtype].kind == "float" and DTYPES[x.dtype].compute != x.dtype:
        # The count may be more than 16 bits of a float hold; they compute in f32 anyway.
        value, dtype = Cast(DTYPES[x.dtype].compute, value), dtype or x.dtype
    folded = axis_positions(x, axis)
    out = fold_of_axes("mean", "sum", x, Call("divide", (value, Const(count))), folded, dtype, name)
    return with_axes(out, x, folded) if keepdims else out


def _undefined_mean(x: Tensor, axis: Axes, keepdims: bool, dtype: str | None, name: str) -> Tensor:
    """0 / 0 wherever there is something to say."""
    folded = axis_positions(x, axis)
    kept = [dim for k, dim in enumerate(_dims(x)) if k not in folded]
    stored = dtype or (x.dtype if DTYPES[x.dtype].kind == "float" else "f32")
    out = current("mean").compute("mean", kept, Const(float("nan")), dtype=stored, explicit=name)
    return with_axes(out, x, folded) if keepdims else out


def _dims(x: Tensor) -> list[Dim]:
    return [Dim(axis, extent) for axis, extent in zip(x.axes, x.shape, strict=True)]


def fold_of_axes(
    function: str,
    monoid: str,
    x: Tensor,
    body: Expr,
    folded: Sequence[int],
    dtype: str | None,
    name: str,
    more: Sequence[Dim] = (),
) -> Tensor:
    """One fold of ``body``, an expression over the axes of x, along some of them; ``more`` dimensions stand last."""
    dims = _dims(x)
    inner = [dims[k].name for k in folded]
    order = [*(dim for k, dim in enumerate(dims) if k not in folded), *more, *(dims[k] for k in folded)]
    monoid_or_none = monoid if folded else None
    return current(function).compute(
        function, order, body, reduce_dims=inner, monoid=monoid_or_none, dtype=dtype, explicit=name
    )


def with_axes(out: Tensor, x: Tensor, folded: Sequence[int]) -> Tensor:
    """The folded axes again, of extent 1."""
    from .views import expand_dims

    return expand_dims(out, folded, tuple(x.axes[k] for k in folded))


def axis_positions(x: Tensor, axis: Axes) -> tuple[int, ...]:
    """Sorted positions of axes given by position or name. UsageError for unknown or repeated ones."""
    if axis is None:
        return tuple(range(x.ndim))
    asked: Sequence[int | str] = (axis,) if isinstance(axis, int | str) else tuple(axis)
    found = [axis_position(x, one) for one in asked]
    if len(set(found)) != len(found):
        raise UsageError(f"an axis is named twice in {axis!r}", sides={"tensor": repr(x)})
    return tuple(sorted(found))


def axis_position(x: Tensor, axis: int | str) -> int:
    """The position of one axis, from 0."""
    if isinstance(axis, str) and axis in x.axes:
        return x.axes.index(axis)
    if isinstance(axis, int) and -x.ndim <= axis < x.ndim:
        return axis % x.ndim
    raise UsageError(
        f"there is no axis {axis!r}", sides={"tensor": repr(x)}, hint=f"axes: {', '.join(x.axes) or 'none'}"
    )
