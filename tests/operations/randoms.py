"""Cases of random numbers: Philox by Python's own integers, word by word, and SciPy's quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

import tapestry as tp

from .registry import Cases, floats

CASES = Cases()
WORD = 1 << 32
ONE = np.ones((2, 3))


def philox(key: Sequence[int], counter: Sequence[int]) -> list[int]:
    """The four words of Philox4x32-10, as Salmon et al. (SC 2011) write it down."""
    left, right = list(key), list(counter)
    for _ in range(10):
        up, low = divmod(0xD2511F53 * right[0], WORD)
        over, under = divmod(0xCD9E8D57 * right[2], WORD)
        right = [over ^ right[1] ^ left[0], under, up ^ right[3] ^ left[1], low]
        left = [(left[0] + 0x9E3779B9) % WORD, (left[1] + 0xBB67AE85) % WORD]
    return right


def bits(shape: Sequence[int], seed: int, stream: int = 0) -> np.ndarray[Any, Any]:
    """The first two words of every element's counter, as one number without a sign."""
    found = [
        philox([seed % WORD, seed // WORD % WORD], [i % WORD, i // WORD, stream % WORD, stream // WORD % WORD])
        for i in range(int(np.prod(shape)))
    ]
    return np.array([words[1] * WORD + words[0] for words in found], np.uint64).reshape(shape)


def uniform(shape: Sequence[int], seed: int, count: int, stream: int = 0) -> np.ndarray[Any, Any]:
    return (bits(shape, seed, stream) >> np.uint64(64 - count)) * 2.0**-count


def normal(shape: Sequence[int], seed: int) -> np.ndarray[Any, Any]:
    drawn = bits(shape, seed)
    below = ndtri(((drawn >> np.uint64(33)).astype(float) + 0.5) / 2**32)
    return np.where(drawn % np.uint64(2) == 1, below, -below)


CASES.numpy(
    "random_bits",
    lambda _: tp.random_bits((3, 5), -7, stream=2**40 + 1),
    lambda _: bits((3, 5), -7, 2**40 + 1).view(np.int64),
    ONE,
)
CASES.numpy("uniform", lambda _: tp.uniform((4, 6), 3, dtype="f64"), lambda _: uniform((4, 6), 3, 53), ONE)
CASES.numpy(
    "uniform",
    lambda _: tp.uniform((4, 6), 3, low=-2, high=4, stream=9),
    lambda _: (uniform((4, 6), 3, 24, 9) * 6 - 2).astype("float32"),
    ONE,
    within=1e-6,
)
CASES.numpy(
    "uniform", lambda _: tp.uniform((4, 6), 3, dtype="bf16").astype("f32"), lambda _: uniform((4, 6), 3, 8), ONE
)
CASES.numpy("normal", lambda _: tp.normal((5, 40), 11, dtype="f64"), lambda _: normal((5, 40), 11), ONE, within=3e-7)
CASES.numpy(
    "random_integers",
    lambda _: tp.random_integers((4, 6), 5, -3, 8),
    lambda _: (bits((4, 6), 5) >> np.uint64(32)) * np.uint64(11) // np.uint64(WORD) - 3.0,
    ONE,
)
CASES.numpy("bernoulli", lambda _: tp.bernoulli((4, 6), 5, 0.3), lambda _: uniform((4, 6), 5, 24) < 0.3, ONE)
CASES.numpy(
    "dropout",
    lambda x: tp.dropout(x, 0.25, 8),
    lambda x: np.where(uniform((4, 6), 8, 24) < 0.25, 0, x / 0.75),
    floats(4, 6),
)
CASES.numpy(
    "dropout",
    lambda x: tp.dropout(x, 0.5, 8, shared=(2, 3)),
    lambda x: np.where(uniform((2, 3, 1, 1), 8, 24) < 0.5, 0, x * 2),
    floats(2, 3, 4, 2),
)
