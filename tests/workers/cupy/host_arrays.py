"""Arrays of the host machine as NumPy sees them, whose elements lie inside of their memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.machine import Attention, Heads, Lines, Matrices, Strided


def words(address: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Whole numbers of 32 bits at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def host_bytes(array: DeviceArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    assert array.memory.host is not None
    return array.memory.host[array.offset : array.offset + array.nbytes]


def matrix(x: Matrices, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """A matrix as f32."""
    flat = host_bytes(x.array).view(x.array.dtype)[x.offset :]
    at = np.arange(rows)[:, None] * x.row + np.arange(columns)[None] * x.column
    return np.asarray(flat[at], np.float32)


def strided(x: Strided) -> np.ndarray[Any, Any]:
    """The elements, none of them outside of the array."""
    item = x.array.dtype.itemsize
    flat = host_bytes(x.array).view(x.array.dtype)
    assert x.offset >= 0
    assert x.offset + sum((n - 1) * step for n, step in zip(x.extents, x.steps, strict=True)) < flat.size
    return np.lib.stride_tricks.as_strided(flat[x.offset :], x.extents, tuple(step * item for step in x.steps))


def heads(a: Attention, x: Heads, rows: int, count: int, width: int) -> np.ndarray[Any, Any]:
    """The vectors [batch, head, row, element] of an array."""
    item = x.array.dtype.itemsize
    flat = host_bytes(x.array).view(x.array.dtype)
    steps = (x.batch, x.head, x.row, 1)
    shape = (a.batches, count, rows, width)
    assert x.offset + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) < flat.size
    return np.lib.stride_tricks.as_strided(flat[x.offset :], shape, tuple(step * item for step in steps))


def steps_of(lines: Lines) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return lines.source_steps, lines.target_steps


def view_of(first: int, steps: tuple[int, ...], lines: Lines) -> np.ndarray[Any, Any]:
    base = np.ctypeslib.as_array((ctypes.c_uint8 * lines.width).from_address(first))
    shape = (*lines.extents, lines.width)
    return np.lib.stride_tricks.as_strided(base, shape, (*steps, 1))
