"""Counting: how many elements have a value, or fall between two. Folds into places that the data say."""

from __future__ import annotations

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import Element, combine, element
from ..dsl.index import Index
from ..dsl.reducer import Reducer
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import Affine


@door
def bincount(x: Tensor, length: int, *, weights: Tensor | None = None, name: str = "") -> Tensor:
    """How often each of 0:length is among the integers of x, or the sum of its weights: [length], int64 or as weights.

    What is outside counts nowhere. Weights that are floats are added up in the order of the elements.
    """
    if DTYPES[x.dtype].kind == "float":
        raise UsageError("bincount counts integers", sides={"x": repr(x)}, hint="cast it, or tp.histogram(x, 10, 0, 1)")
    if weights is not None and weights.shape != x.shape:
        raise UsageError("bincount takes a weight for each element", sides={"x": repr(x), "weights": repr(weights)})
    every = axes_of(x)
    value = combine("where", True, 1, 0).astype("int64") if weights is None else weights[every]
    return _counts("bincount", element(x[every]), every, element(value), length, name)


@door
@composite
def histogram(x: Tensor, bins: int, low: float, high: float, *, name: str = "") -> Tensor:
    """How many elements are in each of ``bins`` intervals of one width from low to high, high included: [bins], int64.

    What is outside, and NaN, counts nowhere.
    """
    if bins < 1 or not low < high:
        sides = {"bins": bins, "low": low, "high": high}
        raise UsageError("a histogram has at least one bin, and its low end is below its high one", sides=sides)
    every = axes_of(x)
    value = element(x[every])
    if DTYPES[x.dtype].kind != "float":
        value = element(value.astype("f32"))
    place = combine("floor", combine("multiply", combine("subtract", value, low), bins / (high - low)))
    inside = combine("logical_and", combine("greater_equal", value, low), combine("less_equal", value, high))
    found = combine("where", inside, combine("minimum", place, bins - 1), -1)
    bin_of = define("bin", every, element(found).astype("int64"))
    return _counts("count", element(bin_of[every]), every, element(1), bins, "")


def _counts(function: str, place: Element, every: tuple[Index, ...], value: Element, length: int, name: str) -> Tensor:
    """out[v] = sum of the values whose place is v."""
    *_, axis = unique_names((*map(str, every), "value"))
    v = Index(Affine.dim(axis), {axis: length})
    chosen = combine("where", combine("equal", place, v), value, 0)
    return define(function, (v,), Reducer("sum")[every](chosen), explicit=name)
