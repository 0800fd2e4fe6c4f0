"""Convolutions on the emulated machine: what a source depends on, what stands for a tensor map, and a launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tapestry.kernels.convolution.launch import SWIZZLES, View
from tapestry.kernels.convolution.problem import ConvolutionProblem

Cut = TypeVar("Cut")


@dataclass(frozen=True)
class Kind(Generic[Cut]):
    """What a source depends on, and which cut to take."""

    cut: Cut
    r: int
    s: int
    width: int = 8
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    dtype: str = "f16"

    def problem(self, n: int, h: int, w: int, c: int, padding: tuple[int, int, int, int]) -> ConvolutionProblem:
        steps = {"stride": self.stride, "dilation": self.dilation, "padding": padding, "dtype": self.dtype}
        return ConvolutionProblem(n, h, w, c, c // self.width, self.r, self.s, **steps)  # type: ignore[arg-type]


def tensor_map(view: View, box: tuple[int, int, int], channels: int) -> bytes:
    """What `emulation/tapestry/async.cuh` reads in the place of a tensor map."""
    n, h, w, c = view.shape
    images, rows, columns = box
    inner = 2 * channels
    swizzle = {"none": 0, "32B": 32, "64B": 64, "128B": 128}[SWIZZLES[inner]]
    strides = (1, view.strides[2], view.strides[1], view.strides[0])
    return struct.pack("<Q4q4q4ii", view.pointer, c, w, h, n, *strides, channels, columns, rows, images, swizzle).ljust(
        128, b"\0"
    )


def start(
    entry: Callable[..., bytes], grid: tuple[int, ...], block: tuple[int, ...], given: Sequence[bytes | int], seed: int,
    cluster: int = 1,
) -> None:  # fmt: skip
    """One launch on the emulated machine. Each argument lies at a multiple of 64 bytes, as tensor maps have to."""
    triple = ctypes.c_uint * 3
    held = [value if isinstance(value, bytes) else int(value).to_bytes(8, "little", signed=True) for value in given]
    buffers = [ctypes.create_string_buffer(data, len(data) + 64) for data in held]
    addresses = []
    for buffer, data in zip(buffers, held, strict=True):
        first = -ctypes.addressof(buffer) % 64
        ctypes.memmove(ctypes.addressof(buffer) + first, data, len(data))
        addresses.append(ctypes.addressof(buffer) + first)
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    said = entry(triple(*three(grid)), triple(*three(block)), pointers, seed, cluster)
    assert said == b"", said.decode()


def three(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of a grid or block, as many as there are axes."""
    return (*extents, 1, 1)[:3]
