"""Folds: the monoids on wide arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DTYPES, numpy_dtype
from .values import Array, round_to, wide_dtype, widen

Combine = Callable[[Array, Array], Array]

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def accumulator_dtype(monoid: str | None, dtype: str) -> np.dtype[Any]:
    """The type partial results are held in: counts of truths are integers, everything else the wide type."""
    if monoid in ("any", "all"):
        return np.dtype(np.bool_)
    wide = wide_dtype(dtype)
    return np.dtype(np.int64) if wide == np.bool_ and monoid in ("sum", "prod") else wide


def identity(monoid: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """An array of identities: what a reduction over nothing gives. For max and min that of the stored dtype."""
    if monoid == "online_softmax":
        state = np.zeros(shape)
        state[..., -1] = -np.inf
        return state
    neutral: Any = {"sum": 0, "prod": 1, "any": False, "all": True}.get(monoid)
    if monoid in ("max", "min"):
        neutral = _extreme(dtype, low=monoid == "max")
    return np.full(shape, neutral, dtype=accumulator_dtype(monoid, dtype))


def _extreme(dtype: str, *, low: bool) -> Any:
    kind = DTYPES[dtype].kind
    if kind == "float":
        return -np.inf if low else np.inf
    if kind == "bool":
        return not low
    info = np.iinfo(numpy_dtype(dtype))
    return info.min if low else info.max


def prepare(monoid: str | None, dtype: str, values: Array) -> Array:
    """Body values in the accumulator's type.

    For max and min they are stored values first: integers wrap before they are compared, so that any grouping agrees.
    """
    if monoid in ("max", "min"):
        return widen(round_to(values, dtype), dtype)
    if monoid in ("any", "all"):
        return np.not_equal(values, 0)
    return values.astype(accumulator_dtype(monoid, dtype))


def reduce_axes(monoid: str, values: Array, axes: tuple[int, ...], start: Array) -> Array:
    """Fold full arrays over some axes, from the identity (a 0-d array)."""
    return np.asarray(_UFUNCS[monoid].reduce(values, axis=axes, initial=start.item()))


def combine(monoid: str, a: Array, b: Array) -> Array:
    """Fold two arrays of partial results element by element (state by state for online softmax)."""
    if monoid == "online_softmax":
        return _merge_softmax(a, b)
    return np.asarray(_UFUNCS[monoid](a, b))


def _merge_softmax(a: Array, b: Array) -> Array:
    """States [..., (o, l, m)]: m = max(m1, m2); l and o are scaled by exp(m_k - m) and added; no key seen counts 0."""
    m = np.maximum(a[..., -1:], b[..., -1:])
    finite = np.where(np.isfinite(m), m, 0.0)
    sums = a[..., :-1] * np.exp(a[..., -1:] - finite) + b[..., :-1] * np.exp(b[..., -1:] - finite)
    return np.concatenate([sums, m], axis=-1)
