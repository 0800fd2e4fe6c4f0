"""NumPy bodies of the scalar functions that NumPy and SciPy have under no name, as ``f(*args, out=array)``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IndexOutside

Array = NDArray[Any]


def where(condition: Array, yes: Any, no: Any, out: Array) -> Array:
    """``out = yes where condition else no``; ``out`` may be ``no`` but neither of the others."""
    if out is not no:
        np.copyto(out, no)
    np.copyto(out, yes, where=condition)
    return out


def rsqrt(x: Array, out: Array) -> Array:
    """1 / sqrt(x), two roundings."""
    np.sqrt(x, out=out)
    return np.reciprocal(out, out=out)


def within(index: Array, extent: Any, out: Array) -> Array:
    """The index itself. `IndexOutside`, with the first such index, unless all are in 0:extent."""
    found, end = np.asarray(index), np.asarray(extent).flat[0]
    if found.size and (found.min() < 0 or found.max() >= end):
        raise IndexOutside(int(found[(found < 0) | (found >= end)][0]), int(end))
    np.copyto(out, index)
    return out


def ordered(x: Array, out: Array) -> Array:
    """Integers in the order of the numbers, equal where these are; NaN above all. Of integers: themselves.

    The bits of a float without its sign grow with its size (IEEE 754-2019, section 5.10, has the order).
    """
    given = np.asarray(x)
    if given.dtype.kind != "f":
        np.copyto(out, given)
        return out
    size = np.abs(given).view(f"i{given.itemsize}").astype(np.int64)
    np.copyto(out, np.where(given < 0, -size, size))
    np.copyto(out, np.array(np.nan, given.dtype).view(f"i{given.itemsize}"), where=np.isnan(given))
    return out


def first(a: Array, b: Array, out: Array) -> Array:  # noqa: ARG001
    """The first of two values."""
    np.copyto(out, a)
    return out
