"""Statistics over axes: made of the folds of `tapestry.ops.reduction` and an expression of their results."""

from __future__ import annotations

import math
from math import prod as product

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.reducer import Axes
from ..dsl.tensor import Tensor
from ..dsl.trace import composite
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import abs as absolute
from .elementwise import cast, formula, sqrt, where
from .records import components
from .reduction import axis_positions, variance
from .reduction import max as largest
from .reduction import min as smallest
from .reduction import sum as fold


def _corrected(call: str, x: Tensor, axis: Axes, correction: int) -> float:
    """n / (n - correction) for n values folded into one."""
    count = product(x.shape[k] for k in axis_positions(x, axis))
    if count <= correction:
        sides = {"x": repr(x), "values": count, "correction": correction}
        raise UsageError(f"{call}: nothing is left to divide by", sides=sides)
    return count / (count - correction)


@door
@composite
def var(x: Tensor, axis: Axes = None, *, correction: int = 0, keepdims: bool = False, name: str = "") -> Tensor:
    """The sum of squared deviations from the mean, divided by n - correction: NumPy's with 0, torch's with 1."""
    share = _corrected("var", x, axis, correction)
    found = variance(x, axis, keepdims=keepdims)
    return formula("scale", lambda v: v * share, found) if correction else found


@door
@composite
def std(x: Tensor, axis: Axes = None, *, correction: int = 0, keepdims: bool = False, name: str = "") -> Tensor:
    """The square root of `var`."""
    share = _corrected("std", x, axis, correction)
    return formula("root", lambda v: sqrt(v * share) if correction else sqrt(v), variance(x, axis, keepdims=keepdims))


@door
@composite
def var_mean(
    x: Tensor, axis: Axes = None, *, correction: int = 0, keepdims: bool = False, name: str = ""
) -> tuple[Tensor, Tensor]:
    """`var` and the mean over the axes, in one pass: the fold "moments"."""
    _corrected("var_mean", x, axis, correction)
    dtype = x.dtype if DTYPES[x.dtype].kind == "float" else "f32"
    n, mean, squares = components("moments", x, axis, keepdims=keepdims, dtype=promote(dtype, "f32"))
    found = formula("var", lambda m2, n: cast(m2 / (n - correction), dtype), squares, n)
    return found, formula("mean", lambda m: cast(m, dtype), mean)


@door
@composite
def std_mean(
    x: Tensor, axis: Axes = None, *, correction: int = 0, keepdims: bool = False, name: str = ""
) -> tuple[Tensor, Tensor]:
    """`std` and the mean over the axes, in one pass: the fold "moments"."""
    found, mean = var_mean(x, axis, correction=correction, keepdims=keepdims)
    return sqrt(found), mean


@door
@composite
def aminmax(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "") -> tuple[Tensor, Tensor]:
    """The least and the largest element over the axes, in one pass: the fold "minmax"."""
    low, high = components("minmax", x, axis, keepdims=keepdims)
    return low, high


@door
@composite
def norm(x: Tensor, axis: Axes = None, *, order: float = 2, keepdims: bool = False, name: str = "") -> Tensor:
    """(sum of |x|**order)**(1 / order); the largest |x| for inf, the least for -inf, how many are not 0 for 0."""
    every = axes_of(x)
    folded = axis_positions(x, axis)
    size = absolute(x[every])
    if math.isinf(order):
        return (largest if order > 0 else smallest)(define("size", every, size), folded, keepdims=keepdims)
    if order == 0:
        return count_nonzero(x, axis, keepdims=keepdims, dtype=promote(x.dtype, "f32"))
    power = size if order == 1 else x[every] * x[every] if order == 2 else size**order
    total = fold(define("power", every, power), folded, keepdims=keepdims)
    return total if order == 1 else formula("root", lambda t: sqrt(t) if order == 2 else t ** (1 / order), total)


@door
@composite
def count_nonzero(
    x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str = "int64", name: str = ""
) -> Tensor:
    """How many elements are not 0."""
    return fold(formula("counted", lambda v: cast(where(v != 0, 1, 0), dtype), x), axis, keepdims=keepdims)


@door
@composite
def ptp(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "") -> Tensor:
    """The largest less the least."""
    return largest(x, axis, keepdims=keepdims) - smallest(x, axis, keepdims=keepdims)


@door
@composite
def average(x: Tensor, weight: Tensor, axis: Axes = None, *, name: str = "") -> Tensor:
    """sum of x * weight / sum of weight over the axes; x and weight of one shape."""
    if x.shape != weight.shape:
        raise UsageError("average takes a weight for each element", sides={"x": repr(x), "weight": repr(weight)})
    total = fold(formula("product", lambda a, w: a * w, x, weight), axis)
    return formula("ratio", lambda t, w: t / w, total, fold(weight, axis))


@door
@composite
def nansum(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str = "") -> Tensor:
    """The sum of what is a number."""
    if DTYPES[x.dtype].kind != "float":
        return fold(x, axis, keepdims=keepdims)
    return fold(formula("numbers", lambda v: where(v == v, v, 0.0), x), axis, keepdims=keepdims)
