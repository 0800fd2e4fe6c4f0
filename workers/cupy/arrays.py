"""Arrays of the device: dense stretches of memory, by their address.

An array holds any dtype that plans have, records of folds too. Kernels are given its address; NumPy sees it only where
it lies in host memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ..device import DType

Host = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Memory:
    """A stretch of bytes. ``owner`` frees them when nothing refers to it any more; ``host``: the bytes for NumPy.
    ``far``: they are of another GPU. Two are equal where they are the same bytes.
    """

    pointer: int
    nbytes: int
    owner: Any = field(compare=False)
    host: Host | None = field(default=None, compare=False)
    far: bool = False


@dataclass(frozen=True)
class DeviceArray:
    """A dense row-major array at a byte of a memory."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def pointer(self) -> int:
        return self.memory.pointer + self.offset

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def reshape(self, shape: Sequence[int]) -> DeviceArray:
        """The same elements with other axes."""
        assert prod(shape) == self.size
        return replace(self, shape=tuple(shape))

    def view(self, dtype: DType) -> DeviceArray:
        """The bytes as another dtype, of which those along the last axis are a multiple."""
        last = self.shape[-1] * self.dtype.itemsize // dtype.itemsize
        return replace(self, shape=(*self.shape[:-1], last), dtype=dtype)

    def __getitem__(self, part: slice) -> DeviceArray:
        """A stretch of an array of one axis."""
        start, stop, _ = part.indices(self.shape[0])
        return replace(self, offset=self.offset + start * self.dtype.itemsize, shape=(max(0, stop - start),))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The bytes of the array, for libraries that share it."""
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}


def of_memory(memory: Memory) -> DeviceArray:
    """The bytes of a memory."""
    return DeviceArray(memory, 0, (memory.nbytes,), np.dtype(np.uint8))


def apart(array: DeviceArray, others: Sequence[DeviceArray], *, or_same: bool = False) -> bool:
    """Whether an array shares no byte with others, or (``or_same``) is at the very address of one."""
    first, last = array.pointer, array.pointer + array.nbytes
    return all(
        (or_same and other.pointer == first and other.nbytes == array.nbytes)
        or other.pointer >= last
        or other.pointer + other.nbytes <= first
        for other in others
    )
