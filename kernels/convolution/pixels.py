"""Images of few channels as blocks of pixels, whose channels lie side by side, for kernels that take whole octets.

Three channels are no octet, which the copy engine and tensor cores ask for; those of a block of 2 x 2 pixels, and four
zeros, are two. A convolution with steps of `stride` is one over blocks of `step`, with steps of stride / step: of rows
(columns alike) with blocks[j][a] = x[step * j + a] and r - top = step * j + a for every tap r,

    y[p] = sum over r of x[stride * p + r - top] * w[r]
         = sum over j, a of blocks[stride / step * p + j][a] * w[step * j + a + top]

Needs no GPU.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from typing import Any, Literal, NamedTuple

from ..elementwise.types import ELEMENT_TYPES
from ..normalization.stretches import Launch
from ..runtime.compiler import Recipe
from .problem import MAX_FILTER, MOST_WIDTH

Kernel = Literal["pixel_blocks", "pixel_taps", "pixel_taps_gradient"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]
OCTET, THREADS = 8, 256
STEPS = (4, 3, 2, 1)  # rows and columns of a block that are looked at


class Line(NamedTuple):
    """One direction of a filter over blocks: its taps, the padding on both sides, its stride, and a block's pixels."""

    taps: int
    before: int
    after: int
    stride: int
    step: int

    @property
    def first(self) -> int:
        """The first block, from that of the output's own."""
        return -self.before // self.step

    @property
    def places(self) -> int:
        """Blocks that one output meets."""
        return (self.taps - 1 - self.before) // self.step - self.first + 1

    @property
    def missing(self) -> tuple[int, int]:
        """Zeros before and after the taps, so that they fill blocks."""
        before = -self.before - self.step * self.first
        return before, self.step * self.places - self.taps - before

    @property
    def move(self) -> int:
        """Blocks from one output to the next."""
        return self.stride // self.step

    def blocks(self, extent: int) -> int:
        """Those of so many pixels, the last of which may be in part of zeros."""
        return -(-extent // self.step)

    def padding(self, extent: int) -> tuple[int, int]:
        """Blocks of zeros before and after those of so many pixels; negative where some are met by no output."""
        outputs = (extent + self.before + self.after - self.taps) // self.stride + 1
        return -self.first, self.move * (outputs - 1) + self.first + self.places - self.blocks(extent)


class Blocks(NamedTuple):
    """A filter over blocks: its rows and columns, and the channels of an image and of a block."""

    rows: Line
    columns: Line
    channels: int

    @property
    def step(self) -> int:
        return self.rows.step

    @property
    def width(self) -> int:
        """Channels of a block, zeros too: whole octets of every thread that makes one."""
        return self.parts * OCTET * ceil(self.lines * self.step * self.channels / OCTET)

    @property
    def lines(self) -> int:
        """Rows of pixels of a thread that makes blocks: the fewest that are whole octets, if any are."""
        whole = (n for n in range(1, self.step) if self.step % n == n * self.step * self.channels % OCTET == 0)
        return next(whole, self.step)

    @property
    def parts(self) -> int:
        """Threads of a block."""
        return self.step // self.lines

    @property
    def places(self) -> tuple[int, int]:
        """The blocks that one output meets: rows and columns."""
        return self.rows.places, self.columns.places

    @property
    def move(self) -> tuple[int, int]:
        return self.rows.move, self.columns.move

    @property
    def products(self) -> int:
        """Of one output, zeros too."""
        return self.rows.places * self.columns.places * self.width


def blocks_of(channels: int, taps: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Blocks | None:
    """The blocks over which the fewest products are made; None where there are none that the kernels take.

    `taps` and `stride` are of (rows, columns), `padding` is (top, bottom, left, right).
    """
    if stride[0] != stride[1]:
        return None
    found = []
    for step in STEPS:
        if stride[0] % step or stride[0] // step > 2:
            continue
        rows, columns = (Line(taps[way], padding[2 * way], padding[2 * way + 1], stride[way], step) for way in range(2))
        made = Blocks(rows, columns, channels)
        if made.width <= MOST_WIDTH and max(made.places) <= MAX_FILTER:
            found.append(made)
    return min(found, key=lambda made: made.products, default=None)


@dataclass(frozen=True)
class PixelKind:
    """What the source of the kernels depends on: types of images, of blocks and of filters, and a block's form."""

    images: str
    blocks: str
    taps: str
    channels: int
    step: int
    width: int
    lines: int

    @classmethod
    def of(cls, blocks: Blocks, images: str, computed: str, taps: str) -> PixelKind:
        """Of types by name: blocks are of halves, f16 or bf16, that is `computed` with."""
        return cls(images, computed, taps, blocks.channels, blocks.step, blocks.width, blocks.lines)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        types = {"Image": self.images, "Block": self.blocks, "Tap": self.taps}
        counts = {
            "channels": self.channels, "step": self.step, "width": self.width, "lines": self.lines, "threads": THREADS,
        }  # fmt: skip
        lines = [
            "#include <tapestry/scalar.cuh>",
            "namespace tapestry::parameters {",
            *(f"using {name} = {ELEMENT_TYPES[dtype].stored};" for name, dtype in types.items()),
            *(f"constexpr int {name} = {number};" for name, number in counts.items()),
            "}",
        ]
        return "\n".join([*lines, files(__package__).joinpath("pixels.cu").read_text(encoding="utf-8")])

    def recipe(self, kernel: Kernel) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


def _launch(kernel: Kernel, threads: int, *arguments: Any) -> Launch:
    return Launch(kernel, (-(-threads // THREADS),), THREADS, arguments)


def gathered(blocks: Blocks, shape: Sequence[int], strides: Sequence[int], x: int, out: int) -> Launch:
    """Images of `shape` [n, c, h, w], `strides` in elements, as [n, rows, columns, width]."""
    n, _, h, w = shape
    rows, columns = blocks.rows.blocks(h), blocks.columns.blocks(w)
    threads = n * rows * columns * blocks.parts
    return _launch("pixel_blocks", threads, x, out, struct.pack("<4q4iI4x", *strides, h, w, rows, columns, threads))


def taps(blocks: Blocks, shape: Sequence[int], strides: Sequence[int], w: int, out: int) -> Launch:
    """A filter of `shape` [k, c, r, s], `strides` in elements, as [k, rows, columns, width]."""
    rows, columns = blocks.places
    threads = shape[0] * rows * columns * blocks.width
    return _launch("pixel_taps", threads, w, out, _filter(blocks, shape, strides))


def taps_gradient(blocks: Blocks, shape: Sequence[int], gradient: int, out: int) -> Launch:
    """The gradient of a filter of `shape` [k, c, r, s], laid out [k, r, s, c], of that of what `taps` makes of it."""
    k, c, r, s = shape
    return _launch("pixel_taps_gradient", k * c * r * s, gradient, out, _filter(blocks, shape, (0, 0, 0, 0)))


def _filter(blocks: Blocks, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    k, _, r, s = shape
    above, ahead = blocks.rows.missing[0], blocks.columns.missing[0]
    return struct.pack("<4q7i4x", *strides, k, r, s, *blocks.places, above, ahead)
