"""Numbers with types, and the folding of constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dtypes import DTYPES, name_of, numpy_dtype
from ...expr import FUNCTIONS, Call, Cast, Const, Expr, Monoid

Array = NDArray[Any]
Scalar = float | int | bool | np.generic
"""A number: Python's takes the type of what it meets, NumPy's has its own."""

BOOL, INT = np.dtype(np.bool_), np.dtype(np.int64)
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_ORDER = (BOOL, INT, SINGLE, DOUBLE)
# Floats that ml_dtypes rounds to from float32, and types whose values may have been rounded on the way there.
_BY_SINGLE = tuple(
    numpy_dtype(d.name) for d in DTYPES.values() if d.kind == "float" and d.bytes < 4 and d.name != "f16"
)
_BEYOND_SINGLE = (INT, DOUBLE)


def compute_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type in which values of a dtype are computed."""
    found: np.dtype[Any] = numpy_dtype(DTYPES[dtype].compute)
    return found


def together(function: str, types: list[np.dtype[Any]], numbers: list[float | int | bool]) -> np.dtype[Any]:
    """The type in which a function computes: the widest of its arguments', which numbers of Python's join."""
    weak = [DOUBLE if isinstance(n, float) else BOOL if isinstance(n, bool) else INT for n in numbers]
    found = max(types or weak, key=_ORDER.index)
    if types and found in (BOOL, INT):
        higher = max([found, *weak], key=_ORDER.index)
        found = SINGLE if higher == DOUBLE else higher
    rule = FUNCTIONS[function].result
    if FUNCTIONS[function].truths == "only":
        return BOOL
    if rule == "float" and found in (BOOL, INT):
        return SINGLE if types else DOUBLE
    return INT if rule in ("same", "bool") and found == BOOL else found


def result_in(function: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of what a function gives that computes in one."""
    fixed = FUNCTIONS[function].fixed
    return dtype if fixed is None else compute_dtype(fixed)


def scalar(array: Array) -> np.generic:
    """The number that an array without axes holds, with its type."""
    return array.dtype.type(array[()])  # type: ignore[no-any-return]


def number(value: float | int | bool | np.generic, dtype: str) -> np.generic:
    """A number rounded or wrapped to a dtype, in its compute type."""
    rounded = np.empty((), numpy_dtype(dtype))
    round_into(np.asarray(value), rounded)
    return scalar(rounded.astype(compute_dtype(dtype)))


def constant(expr: Expr) -> Scalar | None:
    """The number that a constant expression is: one of Python's, or, under a cast, one with a type."""
    if isinstance(expr, Const):
        return expr.value
    return number(expr.arg.value, expr.dtype) if isinstance(expr, Cast) and isinstance(expr.arg, Const) else None


def constant_expr(value: Scalar) -> Expr:
    """The expression of a number; the inverse of `constant`."""
    if not isinstance(value, np.generic):
        return Const(value)
    return Cast(name_of(value.dtype), Const(value.item()))


def fold_call(node: Call) -> Expr:
    """A call on constants only is a constant, in the type that the function computes in; a decided choice is made."""
    if node.function not in FUNCTIONS:
        return node
    if FUNCTIONS[node.function].result == "branch":
        chosen = constant(node.args[0])
        if chosen is not None:
            return node.args[1] if chosen else node.args[2]
    values: list[Scalar] = []
    for arg in node.args:
        value = constant(arg)
        if value is None:
            return node
        values.append(value)
    return constant_expr(fold_numbers(node.function, values))


def fold_numbers(function: str, values: list[Scalar]) -> Scalar:
    """A function of numbers; Python's give one of Python's."""
    entry = FUNCTIONS[function]
    compared = values[1:] if entry.result == "branch" else values
    types = [value.dtype for value in compared if isinstance(value, np.generic)]
    dtype = together(function, types, [value for value in compared if not isinstance(value, np.generic)])
    arrays = [np.asarray(value).astype(dtype) for value in values]
    if entry.result == "branch":
        arrays[0] = np.asarray(values[0]) != 0
    out = np.empty((), result_in(function, dtype))
    with np.errstate(all="ignore"):
        entry.compute(*arrays, out=out)
    return out.item() if not types and entry.fixed is None else scalar(out)


def round_into(value: Any, out: Array) -> None:
    """Stored form of wide values: truth, truncation then wrapping, or one rounding."""
    if out.dtype.kind in "iu" and getattr(value, "dtype", DOUBLE).kind == "f":
        np.copyto(out, np.asarray(value).astype(np.int64), casting="unsafe")
    elif out.dtype.kind == "b":
        np.not_equal(value, 0, out=out)
    elif out.dtype in _BY_SINGLE and getattr(value, "dtype", DOUBLE) in _BEYOND_SINGLE:
        np.copyto(out, _single(np.asarray(value, DOUBLE)), casting="unsafe")
    else:
        np.copyto(out, value, casting="unsafe")


def _single(values: Array) -> Array:
    """Float32 that round to a shorter float as the values do: of the two next to a value that is none, that with an odd
    last bit, which is on no tie.
    """
    found = values.astype(np.float32)
    even = (found.view(np.uint32) & 1 == 0) & (found != values) & ~np.isnan(values)
    inner: Array = np.nextafter(found, np.where(values > found, np.float32(np.inf), np.float32(-np.inf)))
    return np.where(even, inner, found)


@dataclass(frozen=True)
class Reduction:
    """How an operation folds values that are their own records: by a ufunc, in the accumulator's type."""

    function: str
    identity: float | int | bool
    accumulator: np.dtype[Any]

    @property
    def ufunc(self) -> np.ufunc:
        found = FUNCTIONS[self.function].compute
        assert isinstance(found, np.ufunc)
        return found

    @staticmethod
    def ufunc_of(monoid: Monoid) -> np.ufunc | None:
        """The ufunc that folds records; None where they are more than a value, or none does."""
        found = None if monoid.function is None else FUNCTIONS[monoid.function].compute
        return found if isinstance(found, np.ufunc) else None

    @staticmethod
    def of(monoid: Monoid, value: str, stored: str) -> Reduction | None:
        """None where a record is more than a value, or no ufunc folds it."""
        function = monoid.function
        if function is None or Reduction.ufunc_of(monoid) is None:
            return None
        [dtype] = monoid.dtypes_for(value, stored)
        return Reduction(function, monoid.components[0].identity_in(dtype), compute_dtype(dtype))
