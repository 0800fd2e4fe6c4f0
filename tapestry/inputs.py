"""Random inputs of a program: the same values for the same seed on every machine."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .dtypes import DTYPES, numpy_dtype
from .expr import Call, Const, Read, children_first
from .program import Block, Program, Tensor


def random_inputs(program: Program, seed: int = 0, *, block: int | None = None) -> dict[str, NDArray[Any]]:
    """Values of all inputs, params and states by name. ``block``: floats of more elements than that are so many, over
    and over, which takes a fraction of the time where tensors are large.

    Floats are uniform in [-1, 1), those of params with several axes divided by the square root of the elements that one
    output sums (taken as the size over the longest axis), vectors of params uniform in [0.5, 1.5) so that gains do not
    vanish; integers are uniform in -4, ..., 4, those without a sign in 0, ..., 8, and those that have to be indices of
    an axis in 0, ..., 8 as far as it goes; truths are even odds. A tensor's values depend on the seed, its name, shape
    and dtype and such an axis, and on nothing else of the program.
    """
    extents = _indexed(program)
    given = program.of_role("input", "param", "state")
    return {tensor.name: _values(tensor, seed, extents.get(tensor.name), block) for tensor in given}


def _indexed(program: Program) -> dict[str, int]:
    """Of tensors whose elements have to be within an extent, as ``table[ids[t]]`` demands: the least such extent."""
    found: dict[str, int] = {}
    for op in program.operations:
        done: set[int] = set()
        for node in () if isinstance(op.body, Block) else children_first(op.body, done):
            done.add(id(node))
            if isinstance(node, Call) and node.function == "within":
                value, extent = node.args
                if isinstance(value, Read) and isinstance(extent, Const):
                    found[value.tensor] = min(int(extent.value), found.get(value.tensor, int(extent.value)))
    return found


def _values(tensor: Tensor, seed: int, extent: int | None, block: int | None) -> NDArray[Any]:
    rng = np.random.default_rng([seed, crc32(tensor.name.encode())])
    kind = DTYPES[tensor.dtype].kind
    if kind == "bool":
        return rng.random(tensor.shape) < 0.5
    if kind == "int":
        dtype = numpy_dtype(tensor.dtype)
        if extent:
            return rng.integers(0, min(extent, 9), tensor.shape).astype(dtype)
        least = 0 if np.issubdtype(dtype, np.unsignedinteger) else -4
        return rng.integers(least, least + 9, tensor.shape).astype(dtype)
    precise = np.float64 if tensor.dtype == "f64" else np.float32
    shape = tensor.shape if block is None or prod(tensor.shape) <= block else (block,)
    drawn = rng.random(shape, dtype=precise) * 2 - 1
    found = np.asarray(_scaled(tensor, drawn)).astype(numpy_dtype(tensor.dtype))
    return found if shape == tensor.shape else np.resize(found, tensor.shape)


def _scaled(tensor: Tensor, drawn: NDArray[Any]) -> NDArray[Any]:
    """Weights keep the size of what they multiply, gains stay near 1."""
    if tensor.role != "param" or not tensor.shape:
        return drawn
    if len(tensor.shape) == 1:
        return 1 + drawn / 2
    return drawn / max(1.0, sqrt(prod(tensor.shape) / max(1, *tensor.shape)))
