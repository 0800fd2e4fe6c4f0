"""NumPy's folds of the records of single points (`Monoid.rows`): ``f(components) -> components``, along the first axis.

Points that do not count are the identity. Sums are taken in f64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .monoids import LAST

Array = NDArray[Any]
State = tuple[Array, ...]


def moments(rows: State) -> State:
    """Count, mean, and sum of squared deviations, in two passes.

    What the mean loses where it is rounded is taken out of the squares: Chan, Golub and LeVeque 1983, equation 1.7.
    """
    count, value, _ = rows
    every = not any(count.strides)  # one number, repeated
    n = len(count) * count[0].astype(np.float64) if every else np.add.reduce(count, axis=0, dtype=np.float64)
    mean = np.add.reduce(value, axis=0, dtype=np.float64) / np.maximum(n, 1)
    far = value - mean.astype(value.dtype)
    if not every:
        far *= count
    off = np.add.reduce(far, axis=0, dtype=np.float64)
    squares = np.add.reduce(np.square(far, out=far), axis=0, dtype=np.float64)
    return n, mean, np.maximum(squares - off * off / np.maximum(n, 1), 0.0)


def minmax(rows: State) -> State:
    """The least and the largest."""
    low, high = rows
    return np.minimum.reduce(low, axis=0), np.maximum.reduce(high, axis=0)


def argmax(rows: State) -> State:
    """The largest and its position."""
    return _first(rows, np.maximum.reduce(rows[0], axis=0))


def argmin(rows: State) -> State:
    """The least and its position."""
    return _first(rows, np.minimum.reduce(rows[0], axis=0))


def _first(rows: State, best: Array) -> State:
    """The first position of a value; that of NaN is where there is any."""
    value, index = rows
    found = value == best
    if value.dtype.kind == "f":
        found |= np.isnan(value)
    return best, np.where(found, index, LAST).min(axis=0)


def top(rows: State) -> State:
    """The largest, from the largest down; the later components of a single point are the identity."""
    count, value = len(rows), rows[0]
    kept = value if len(value) <= count else np.partition(value, len(value) - count, axis=0)[-count:]
    falling = np.sort(kept, axis=0)[::-1]
    return *falling, *(rows[k][0] for k in range(len(falling), count))
