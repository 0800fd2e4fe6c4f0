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
    if dtype == "bf16":
        return _nearest_bf16(values.astype(np.float64))
    return values.astype(numpy_dtype(dtype))


def _nearest_bf16(values: Array) -> Array:
    """Round float64 to bf16 once.

    On the way through float32 a value may land on a tie that it was not; then step back towards it.

    >>> float(_nearest_bf16(np.array(1 + 2**-8 + 2**-40)))
    1.0078125
    """
    single = values.astype(np.float32)
    tie = (single.view(np.uint32) & 0xFFFF) == 0x8000
    away = np.where(values > single, np.float32(np.inf), np.float32(-np.inf))
    return np.where(tie & (single != values), np.nextafter(single, away), single).astype(numpy_dtype("bf16"))
