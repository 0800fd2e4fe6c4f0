"""The NumPy meaning of scalar functions and monoids, and the folding of constants."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dtypes import DTYPES, numpy_dtype
from ...expr import FUNCTIONS, Call, Const, Expr

Array = NDArray[Any]
Scalar = float | int | bool

# The two-argument function that folds a monoid, by its name among the scalar functions.
FOLD_FUNCTION = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip


def where_into(condition: Array, yes: Any, no: Any, out: Array) -> Array:
    """``out = yes where condition else no``; ``out`` may be ``no`` but neither of the others."""
    if out is not no:
        np.copyto(out, no)
    np.copyto(out, yes, where=condition)
    return out


def _rsqrt_into(x: Array, out: Array) -> Array:
    np.sqrt(x, out=out)
    return np.reciprocal(out, out=out)


@cache
def compute_of(function: str) -> Callable[..., Any]:
    """The function as ``f(*args, out=array)`` on arrays of the compute type."""
    if function in ("erf", "sigmoid"):
        from scipy import special

        found: Callable[..., Any] = special.erf if function == "erf" else special.expit
        return found
    own: dict[str, Callable[..., Any]] = {"where": where_into, "rsqrt": _rsqrt_into, "abs": np.absolute}
    if function in own:
        return own[function]
    ufunc: Callable[..., Any] = getattr(np, function)
    return ufunc


def fold_ufunc(monoid: str) -> np.ufunc:
    return getattr(np, FOLD_FUNCTION[monoid])  # type: ignore[no-any-return]


def identity_of(monoid: str, dtype: str) -> Scalar:
    """What a reduction over nothing gives. For max and min that of the stored dtype."""
    if monoid in ("sum", "prod"):
        value = 0 if monoid == "sum" else 1
        return float(value) if DTYPES[dtype].kind == "float" else value
    if monoid in ("any", "all"):
        return monoid == "all"
    low = monoid == "max"
    if DTYPES[dtype].kind == "float":
        return float("-inf") if low else float("inf")
    if DTYPES[dtype].kind == "bool":
        return not low
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min if low else info.max)


def fold_call(node: Call) -> Expr:
    """Evaluate calls on constants only, in int64 and float64, and choose the branch of a decided ``where``."""
    if node.function == "where" and isinstance(node.args[0], Const):
        return node.args[1] if node.args[0].value else node.args[2]
    if not all(isinstance(arg, Const) for arg in node.args):
        return node
    values = [np.asarray(arg.value) for arg in node.args if isinstance(arg, Const)]
    if FUNCTIONS[node.function].result == "float":
        values = [value.astype(np.float64) for value in values]
    elif FUNCTIONS[node.function].result == "same":
        values = [value.astype(np.int64) if value.dtype == np.bool_ else value for value in values]
    with np.errstate(all="ignore"):
        out = np.empty((), _constant_dtype(node.function, values))
        compute_of(node.function)(*values, out=out)
    return Const(out.item())


def _constant_dtype(function: str, values: list[Array]) -> np.dtype[Any]:
    if FUNCTIONS[function].result == "bool":
        return np.dtype(np.bool_)
    return np.result_type(*values)
