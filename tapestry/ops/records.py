"""Folds of several results: one pass over the points, a record for each element, its components read as tensors."""

from __future__ import annotations

from ..dsl.door import door
from ..dsl.reducer import Axes
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite
from ..dtypes import DTYPES
from ..errors import UsageError, close_match
from ..expr import MONOIDS, Affine, Expr
from ..program import Dim
from ..result_type import reduced_dtype, result_dtype
from .reduction import axis_positions, fold_of_axes, with_axes


@door
@composite
def components(
    monoid: str, x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = ""
) -> tuple[Tensor, ...]:
    """The results of a fold by a monoid of several, one tensor for each, all in one dtype.

    monoid  "moments" (how many, mean, sum of squared deviations), "minmax", "top4" (the largest, from the largest
            down), or one's own without a finish

    They are views of one tensor, whose last axis they lie along. UsageError for a monoid of one result: that is
    `tapestry.reduce`'s, or `Reducer`'s.
    """
    folded = axis_positions(x, axis)
    record = record_of(monoid, x, x.at(tuple(map(Affine.dim, x.axes))), folded, dtype, name)
    kept = record.ndim - 1
    found = [record[(*(slice(None),) * kept, place)] for place in range(record.shape[-1])]
    return tuple(with_axes(one, x, folded) if keepdims else one for one in found)


def record_of(
    monoid: str, x: Tensor, body: Expr, folded: tuple[int, ...], dtype: str | None = None, name: str = ""
) -> Tensor:
    """The records of a fold of ``body``, an expression over the axes of x: [kept axes of x, component]."""
    entry = MONOIDS.named(monoid)
    if entry is None or not entry.several:
        known = [one for one, other in MONOIDS.items() if other.several]
        hint = close_match(monoid, known) if entry is None else f"tp.ops.reduction.reduce({monoid!r}, x, axis)"
        raise UsageError(f"{monoid!r} is no monoid of several results", hint=hint, sides={"are": ", ".join(known)})
    value = result_dtype(body, x.trace.dtypes)
    kept = entry.dtypes_for(value, reduced_dtype(monoid, value))
    dtype = dtype or max(kept, key=lambda one: DTYPES[one].rank)
    if not folded:
        raise UsageError(f"{monoid} folds no axis", sides={"x": repr(x)}, hint="name one that x has")
    *_, last = unique_names((*x.axes, "result"))
    return fold_of_axes(monoid, monoid, x, body, folded, dtype, name, [Dim(last, len(entry.components), cut=False)])
