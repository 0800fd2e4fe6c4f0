"""Whole tensors in host memory, as a run begins with them and ends with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..dtypes import numpy_dtype
from ..planner.format import Resolved
from ..program import Tensor
from ..space import Box, Region
from .device import Stored
from .stores.arrays import Array


def whole_array(tensor: Tensor, inputs: Mapping[str, Array]) -> Stored:
    """A whole tensor as a stored array: an input, or a constant's data."""
    dtype = numpy_dtype(tensor.dtype)
    if tensor.name in inputs:
        value = np.asarray(inputs[tensor.name])
    else:
        value = np.asarray(tensor.data or (), dtype=_wide_of(dtype)).astype(dtype)
    return Stored(value.reshape(tensor.shape), Box.of_shape(tensor.shape).grid())


def _wide_of(dtype: np.dtype[np.generic]) -> type:
    return {"b": bool, "i": int, "u": int}.get(dtype.kind, float)


def empty_whole(tensor: Tensor) -> Stored:
    """Zeros for a whole tensor, to be filled piece by piece."""
    return Stored(np.zeros(tensor.shape, numpy_dtype(tensor.dtype)), Box.of_shape(tensor.shape).grid())


def results(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """(tensor, buffer) of every output and state."""
    yield from resolved.document.outputs.items()
    yield from resolved.document.states.items()


def final_regions(resolved: Resolved, tensor: str, buffer: str) -> tuple[Region, ...]:
    """Where a finished tensor is, per rank: an output all over its buffer, a state where it was at the start."""
    starts = {b.tensor: b.initial for b in resolved.document.buffers if b.initial is not None}
    is_state = tensor in resolved.document.states and tensor in starts
    return resolved.regions(starts[tensor] if is_state else resolved.buffers[buffer].layout)
