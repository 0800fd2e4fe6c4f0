"""The largest of each window of channels-last images, or the mean: kinds of windows, source and launches.

    y[n, p, q, c] = max over r, s of x[n, p * down - above + r, q * right - before + s, c]

or the sum by a divisor, of what is in the image, as torch has it: of several the first is the largest, and what is no
number wins. Beside maxima one byte a value says where it came from, and the gradient goes there (`windows.cu`). Needs
no GPU.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from typing import Literal, NamedTuple

from ..elementwise.types import ELEMENT_TYPES
from ..normalization.stretches import Launch, vector_of
from ..runtime.compiler import Recipe

Kernel = Literal["maximum", "maximum_gradient", "average", "average_gradient"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]
THREADS = 256  # of a block at most
MOST_TAPS, MOST_STEP = 9, 3  # of a window, and rows or columns from one to the next: what threads have room for
MOST_ROWS = 1 << 31  # of windows or cells
MOST_CHUNKS = 65535  # blocks along a row


class Window(NamedTuple):
    """(rows, columns) of windows, from one to the next, and of padding on either side."""

    size: tuple[int, int]
    step: tuple[int, int]
    padding: tuple[int, int]

    @property
    def is_computed(self) -> bool:
        """Whether the kernels take it. torch refuses more padding than half of a window."""
        rows, columns = self.size
        fits = all(0 <= 2 * pad <= size for pad, size in zip(self.padding, self.size, strict=True))
        return fits and 0 < rows * columns <= MOST_TAPS and all(1 <= step <= MOST_STEP for step in self.step)

    def counts(self, height: int, width: int, whole: bool = True) -> tuple[int, int]:
        """(rows, columns) of windows over an image: `whole` ones alone, or parts of such too that begin ahead of what
        is padding behind the image.
        """
        sides = zip((height, width), self.size, self.step, self.padding, strict=True)
        down, right = (_count(*side, whole=whole) for side in sides)
        return down, right


def _count(extent: int, size: int, step: int, padding: int, *, whole: bool) -> int:
    room = extent + 2 * padding - size
    return room // step + 1 if whole else min(ceil(room / step) + 1, ceil((extent + padding) / step))


@dataclass(frozen=True)
class PoolKind:
    """What the source of the kernels depends on."""

    dtype: str
    vector: int
    window: Window

    @classmethod
    def of(cls, channels: int, dtype: str, window: Window) -> PoolKind:
        """That of so many channels, which a vector divides."""
        return cls(dtype, vector_of(channels, dtype), window)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        (rows, columns), (down, right), (above, before) = self.window
        numbers = {
            "vector": self.vector, "threads": THREADS, "rows": rows, "columns": columns, "down": down, "right": right,
            "above": above, "before": before,
        }  # fmt: skip
        lines = [
            "#include <tapestry/scalar.cuh>",
            "namespace tapestry::parameters {",
            f"using Element = {ELEMENT_TYPES[self.dtype].stored};",
            *(f"constexpr int {name} = {number};" for name, number in numbers.items()),
            "}",
        ]
        return "\n".join([*lines, files(__package__).joinpath("windows.cu").read_text()])

    def recipe(self, kernel: str) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


class Extents(NamedTuple):
    """Of images, of windows over them, and the channels; of means, what sums are divided by."""

    images: int
    height: int
    width: int
    windows_down: int
    windows_right: int
    channels: int
    divisor: int = 0  # 0: how many were summed,
    padded: bool = False  # with those in the padding or without

    @property
    def argument(self) -> bytes:
        return struct.pack("<7i", *self[1:])


def finds_room(kind: PoolKind, of: Extents) -> bool:
    """Whether the launches find it in a grid."""
    vectors = of.channels // kind.vector
    rows, places = of.images * max(of.height, of.windows_down), max(of.width, of.windows_right) * vectors
    return 0 < rows < MOST_ROWS and 0 < places <= THREADS * MOST_CHUNKS


def maxima(kind: PoolKind, of: Extents, x: int, y: int, taps: int = 0) -> tuple[Launch, ...]:
    """y of x, addresses; `taps` [like y] of one byte, or none."""
    return (Launch("maximum", *_over_windows(kind, of), (x, y, taps, of.argument)),)


def maxima_gradient(kind: PoolKind, of: Extents, dy: int, taps: int, dx: int) -> tuple[Launch, ...]:
    """dx of dy, and of what was written to `taps`."""
    return (Launch("maximum_gradient", *_over_cells(kind, of), (dy, taps, dx, of.argument)),)


def averages(kind: PoolKind, of: Extents, x: int, y: int) -> tuple[Launch, ...]:
    """y of x."""
    return (Launch("average", *_over_windows(kind, of), (x, y, of.argument)),)


def averages_gradient(kind: PoolKind, of: Extents, dy: int, dx: int) -> tuple[Launch, ...]:
    """dx of dy."""
    return (Launch("average_gradient", *_over_cells(kind, of), (dy, dx, of.argument)),)


def _over_windows(kind: PoolKind, of: Extents) -> tuple[tuple[int, int], int]:
    return _blocks(of.images * of.windows_down, of.windows_right * (of.channels // kind.vector))


def _over_cells(kind: PoolKind, of: Extents) -> tuple[tuple[int, int], int]:
    down, right = (ceil(extent / step) for extent, step in zip(of[1:3], kind.window.step, strict=True))
    return _blocks(of.images * down, right * (of.channels // kind.vector))


def _blocks(rows: int, places: int) -> tuple[tuple[int, int], int]:
    """The grid and the threads of a block: as few blocks a row as can be, alike."""
    chunks = ceil(places / THREADS)
    return (rows, chunks), 32 * ceil(places / chunks / 32)
