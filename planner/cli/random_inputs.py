"""Inputs for a run that only wants some: drawn by seed and name."""

from __future__ import annotations

from math import sqrt
from zlib import crc32

import numpy as np

from ...dtypes import DTYPES, numpy_dtype
from ...program import Program, Tensor
from .tensor_file import Array, wanted


def random_tensors(program: Program, seed: int) -> dict[str, Array]:
    """The inputs, params and states of the program, whole, by name: the same for the same seed and name.

    Floats are normal; those of params shrink with the number of elements that are summed over in a typical use (all but
    the longest axis), so that values neither grow nor vanish with depth. Integers are -4 to 4.
    """
    return {tensor.name: _draw(tensor, seed) for tensor in wanted(program)}


def _draw(tensor: Tensor, seed: int) -> Array:
    stream = np.random.default_rng([seed, crc32(tensor.name.encode())])
    kind, dtype = DTYPES[tensor.dtype].kind, numpy_dtype(tensor.dtype)
    drawn: Array
    if kind == "bool":
        drawn = stream.integers(0, 2, tensor.shape).astype(dtype)
    elif kind == "int":
        drawn = stream.integers(-4, 5, tensor.shape).astype(dtype)
    else:
        drawn = (stream.standard_normal(tensor.shape, dtype=np.float32) * _scale(tensor)).astype(dtype)
    return drawn


def _scale(tensor: Tensor) -> np.float32:
    summed = tensor.size / max(tensor.shape, default=1) if tensor.role == "param" and tensor.size else 1
    return np.float32(1 / sqrt(summed))
