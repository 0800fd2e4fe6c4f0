"""NumPy bodies of the functions that random numbers are made of: integers and single roundings only, so that every
device gets the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_WORD, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(seed: Any, stream: Any, position: Any, out: Array) -> Array:
    """Philox4x32 in ten rounds: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011, section 3.3.

    The key is the seed, the counter (position, stream); of the four words the first two, the second above the first.
    """
    place, flow, key = (np.asarray(word, np.int64).astype(np.uint64) for word in (position, stream, seed))
    a, b, c, d = place & _LOW, place >> _WORD, flow & _LOW, flow >> _WORD
    keys = [key & _LOW, key >> _WORD]
    with np.errstate(over="ignore"):
        for _ in range(10):
            first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
            a, b = (second >> _WORD) ^ b ^ keys[0], second & _LOW
            c, d = (first >> _WORD) ^ d ^ keys[1], first & _LOW
            keys = [(key + step) & _LOW for key, step in zip(keys, _STEPS, strict=True)]
    np.copyto(out, (a | b << _WORD).astype(np.int64))
    return out


# Wichura, algorithm AS 241 (PPND7), Applied Statistics 37 (1988), 477-484: right to about one in 10**7.
_CENTRAL = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1.0),
)
_MIDDLE = ((0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777), (0.12021132975, 0.73700164250, 1.0))
_FAR = ((0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150), (0.012258202635, 0.24197894225, 1.0))
# log m = 2 artanh s, s = (m - 1) / (m + 1), by its series in s², for m from sqrt(1/2) to sqrt(2).
_SERIES = (2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)


def normal_quantile(p: Any, out: Array) -> Array:
    """The number below which a standard normal variable lies with probability p, for 0 < p <= 1/2.

    Every step is one addition, product, quotient or root, rounded once.
    """
    kind = out.dtype.type
    p = np.asarray(p, out.dtype)
    with np.errstate(all="ignore"):
        middle = p - kind(0.5)
        central = middle * _ratio(_CENTRAL, kind(0.180625) - middle * middle)
        root = np.sqrt(-_logarithm(p))
        tail = np.where(root <= kind(5), _ratio(_MIDDLE, root - kind(1.6)), _ratio(_FAR, root - kind(5)))
        np.copyto(out, np.where(np.abs(middle) <= kind(0.425), central, -tail))
    return out


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    kind = x.dtype.type
    total: Array = x * kind(coefficients[0]) + kind(coefficients[1])
    for coefficient in coefficients[2:]:
        total = total * x + kind(coefficient)
    return total


def _ratio(sides: tuple[tuple[float, ...], ...], x: Array) -> Array:
    found: Array = _polynomial(sides[0], x) / _polynomial(sides[1], x)
    return found


def _logarithm(p: Array) -> Array:
    kind = p.dtype.type
    fraction, exponent = np.frexp(p)
    small = fraction < kind(0.70710678)
    fraction = np.where(small, fraction * kind(2), fraction)
    exponent = np.where(small, exponent - 1, exponent).astype(p.dtype)
    s = (fraction - kind(1)) / (fraction + kind(1))
    found: Array = exponent * kind(0.6931471805599453) + s * _polynomial(_SERIES, s * s)
    return found
