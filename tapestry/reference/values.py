"""Stored arrays and the wide arrays they are computed in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DTYPES, numpy_dtype

Array = NDArray[Any]


def wide_dtype(dtype: str) -> np.dtype[Any]:
    """The type that values of a dtype are computed in: bool, int64, float32 or float64."""
    found: np.dtype[Any] = numpy_dtype(DTYPES[dtype].compute)
    return found


def widen(stored: Array, dtype: str) -> Array:
    """Stored values in their wide type, exactly."""
    return stored.astype(wide_dtype(dtype), copy=False)


def round_to(values: Array, dtype: str) -> Array:
    """Wide values as stored: truth for bool, truncation then wrapping for integers, one rounding (to even) for floats.

    >>> round_to(np.array([200, -129]), "int8").tolist(), round_to(np.array([2.7, -2.7]), "int32").tolist()
    ([-56, 127], [2, -2])
    """
    if DTYPES[dtype].kind == "bool":
        return np.not_equal(values, 0)
    if DTYPES[dtype].kind == "int":
        return values.astype(np.int64).astype(numpy_dtype(dtype))
    if DTYPES[dtype].compute != dtype and dtype != "f16":
        return _to_odd(values.astype(np.float64)).astype(numpy_dtype(dtype))
    return values.astype(numpy_dtype(dtype))


def _to_odd(values: Array) -> Array:
    """Float32 whose last bit says that something was lost: rounding it to a shorter float is rounding float64 once.

    ml_dtypes rounds to its types from float32. On the way there a value may land on a tie that it was not.

    >>> float(_to_odd(np.array(1 + 2**-8 + 2**-40)).astype(numpy_dtype("bf16")))
    1.0078125
    """
    single = values.astype(np.float32)
    lost = (single != values) & ~np.isnan(values)
    towards_zero = np.where(lost & (np.abs(single) > np.abs(values)), np.nextafter(single, np.float32(0)), single)
    bits = towards_zero.astype(np.float32).view(np.uint32) | lost.astype(np.uint32)
    found: Array = bits.view(np.float32)
    return found
