"""Tensors of rows x channels, channels dense, cut for kernels that sum over rows: what `stretches.cu` takes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib.resources import files
from math import ceil, gcd
from typing import Any, NamedTuple

from ..elementwise.types import ELEMENT_TYPES

DTYPES = ("f16", "bf16", "f32")
ACCESS = 16  # bytes
THREADS = 512
MOST_LANES = 64  # vectors of a block side by side
DEEP, SHALLOW = 8, 4  # rows of a thread under way, of one tensor and of several
MOST_BLOCKS = 65535  # along the rows: what a grid may have
SPLIT = 0.002  # what one block more of an image costs, as a part of one that has all of it
RESIDENTS = 1  # blocks of a multiprocessor
FOLD_THREADS, FOLD_CHANNELS = 1024, 32  # of a launch that folds what blocks left


class Cut(NamedTuple):
    """`Cut` of stretches.cu, and the blocks along the channels."""

    rows: int
    channels: int
    lanes: int
    slots: int
    stretch: int
    blocks: int
    parts: int
    splits: int = 1  # blocks of an image, where images are told apart

    @property
    def argument(self) -> bytes:
        return struct.pack("<q6i", *self[:6], self.splits)

    @property
    def grid(self) -> tuple[int, int]:
        return self.parts, self.blocks

    @property
    def workspace(self) -> int:
        """f32 of two sums of every block."""
        return 2 * self.channels * self.blocks


class Launch(NamedTuple):
    """One launch: operands are given as addresses, 0 for none."""

    kernel: str
    grid: tuple[int, ...]
    block: int
    arguments: tuple[Any, ...]


def vector_of(channels: int, dtype: str) -> int:
    """Channels of one access: they divide all of them."""
    return gcd(channels, ACCESS // ELEMENT_TYPES[dtype].bytes)


def balanced(rows: int, channels: int, vector: int, room: int, least: int = 1) -> Cut:
    """Rows and channels for a GPU that has room for so many blocks at a time: in one turn, `least` rows a thread."""
    parts, lanes = _across(channels // vector)
    slots = THREADS // lanes
    most = max(1, min(room // parts, ceil(rows / (slots * least))))
    stretch = ceil(rows / most)
    return Cut(rows, channels, lanes, slots, stretch, ceil(rows / stretch), parts)


def by_image(images: int, pixels: int, channels: int, vector: int, room: int) -> Cut:
    """Images for a GPU that has room for so many blocks at a time: as many a block, each of as many pixels, as take the
    fewest turns for it, where a thread has a pixel at least.
    """
    parts, lanes = _across(channels // vector)
    slots = THREADS // lanes
    most = max(1, min(pixels // slots, MOST_BLOCKS // images))
    splits = [n for n in range(1, most + 1) if pixels % n == 0]
    best = min(splits, key=lambda n: ceil(images * parts * n / room) / n + SPLIT * n)
    return Cut(images * pixels, channels, lanes, slots, pixels // best, images * best, parts, best)


def _across(vectors: int) -> tuple[int, int]:
    """Blocks along the channels, and the vectors of each."""
    parts = min(range(ceil(vectors / MOST_LANES), ceil(vectors / 16) + 1), key=lambda n: (_idle(vectors, n), n))
    return parts, ceil(vectors / parts)


def _idle(vectors: int, parts: int) -> float:
    """The share of threads that have nothing to do, in steps that matter."""
    lanes = ceil(vectors / parts)
    busy = THREADS // lanes * lanes / THREADS * vectors / (parts * lanes)
    return round(1 - busy, 1)


class Sizes(NamedTuple):
    """Threads of a block, and blocks that share a multiprocessor."""

    threads: int = THREADS
    residents: int = RESIDENTS


SIZES = Sizes()


def parameter_type(dtype: str) -> str:
    """The fact that says of which type a layer's parameters are."""
    return f"using Parameter = {ELEMENT_TYPES[dtype].stored};"


def source(dtype: str, vector: int, name: str, facts: Sequence[str] = (), sizes: Sizes = SIZES) -> str:
    """The text of kernels over such tensors: what `parameters` are, stretches.cu and the file `name`."""
    counts = {"vector": vector, "deep": DEEP, "shallow": SHALLOW, **sizes._asdict()}
    lines = [
        "#include <tapestry/epilogue.cuh>",
        "#include <tapestry/scalar.cuh>",
        "namespace tapestry::parameters {",
        f"using Element = {ELEMENT_TYPES[dtype].stored};",
        *(f"constexpr int {count} = {number};" for count, number in counts.items()),
        *facts,
        "}",
    ]
    texts = [files(__package__).joinpath(part).read_text() for part in ("stretches.cu", name)]
    return "\n".join([*lines, *texts])
