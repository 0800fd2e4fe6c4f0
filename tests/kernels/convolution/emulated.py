"""Convolutions on the emulated machine: what a source depends on, what stands for a tensor map, and a launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from types import ModuleType
from typing import Generic, TypeVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from tapestry.kernels.convolution.launch import SWIZZLES, View
from tapestry.kernels.convolution.problem import ConvolutionProblem

Cut = TypeVar("Cut")
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Kind(Generic[Cut]):
    """What a source depends on, and which cut to take."""

    cut: Cut
    r: int
    s: int
    width: int = 8
    width_out: int = 0  # as the width
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    dtype: str = "f16"

    def octets(self) -> int:
        """The fewest channels in whole octets whose groups write whole octets."""
        groups = lcm(*(8 // gcd(8, width) for width in (self.width, self.width_out or self.width)))
        return groups * self.width

    def problem(self, n: int, h: int, w: int, c: int, padding: tuple[int, int, int, int]) -> ConvolutionProblem:
        groups, steps = c // self.width, (self.stride, self.dilation, padding)
        out = groups * (self.width_out or self.width)
        return ConvolutionProblem(n, h, w, c, groups, self.r, self.s, *steps, self.dtype, channels_out=out)


SIDE = st.integers(0, 2)


@st.composite
def wide_problems(draw: st.DrawFn, kind: Kind[Cut], tile: int) -> ConvolutionProblem:
    """Problems that a cut of wide groups fits, mostly those no wider than one `tile` of columns where there is one."""
    padding = (draw(SIDE), draw(SIDE), draw(SIDE), draw(SIDE))
    spans = [(taps - 1) * step + 1 for taps, step in zip((kind.r, kind.s), kind.dilation, strict=True)]
    widest = tile or 20
    h, w = draw(st.integers(spans[0], spans[0] + 6)), draw(st.integers(spans[1], max(spans[1], widest - 2)))
    channels = kind.octets() * draw(st.integers(1, 2))
    return kind.problem(draw(st.integers(1, 3)), h, w, channels, padding)


def tensor_map(view: View, box: tuple[int, int, int], channels: int, swizzled: bool = True) -> bytes:
    """What `emulation/tapestry/async.cuh` reads in the place of a tensor map: the narrowest swizzle that has room."""
    if not swizzled:
        return row_map(view, box, channels)
    span = next(span for span in sorted(SWIZZLES) if span >= 2 * channels)
    return _map(view, box, channels, 0 if SWIZZLES[span] == "none" else span)


def row_map(view: View, box: tuple[int, int, int], channels: int) -> bytes:
    """The same of a map without a swizzle."""
    return _map(view, box, channels, 0)


def use_maps(patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Have modules describe boxes to the emulated machine."""
    for module in modules:
        for name, made in (("row_map", row_map), ("tensor_map", tensor_map)):
            if hasattr(module, name):
                patch.setattr(module, name, made)


def _map(view: View, box: tuple[int, int, int], channels: int, swizzle: int) -> bytes:
    n, h, w, c = view.shape
    images, rows, columns = box
    strides = (1, view.strides[2], view.strides[1], view.strides[0])
    numbers = (view.pointer, c, w, h, n, *strides, channels, columns, rows, images, swizzle)
    return struct.pack("<Q4q4q4ii", *numbers).ljust(128, b"\0")


def start(
    entry: Callable[..., bytes], grid: tuple[int, ...], block: tuple[int, ...], given: Sequence[bytes | int], seed: int,
    cluster: int = 1,
) -> None:  # fmt: skip
    """One launch on the emulated machine. Each argument lies at a multiple of 64 bytes, as tensor maps have to."""
    triple = ctypes.c_uint * 3
    held = [value if isinstance(value, bytes) else int(value).to_bytes(8, "little", signed=True) for value in given]
    for number, (data, size) in enumerate(zip(held, entry.sizes, strict=True)):  # type: ignore[attr-defined]
        assert len(data) == size or not isinstance(given[number], bytes), f"argument {number}: {len(data)}, not {size}"
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
