"""Sums over the pixels of each image by channel, and maps by numbers a channel: what squeeze-and-excitation does.

And sums over all pixels of all images, as gradients of biases are. Tensors are [images, pixels, channels], dense; the
numbers [images, channels], of the same type or f32. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from ..elementwise.types import ELEMENT_TYPES
from ..runtime.compiler import Recipe
from . import stretches
from .stretches import DEEP, FOLD_CHANNELS, FOLD_THREADS, RESIDENTS, THREADS, Cut, Launch

Kernel = Literal[
    "image_sums", "image_fold", "image_sums_fold", "image_products", "image_both_sums", "image_map", "image_blend"
]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ImageKind:
    """What the source of the kernels depends on."""

    dtype: str
    vector: int
    numbers: str

    @classmethod
    def of(cls, channels: int, dtype: str, numbers: str | None = None) -> ImageKind:
        """`numbers` are of the same type unless another is given."""
        return cls(dtype, stretches.vector_of(channels, dtype), numbers or dtype)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        return stretches.source(
            self.dtype, self.vector, "images.cu", (f"using Number = {ELEMENT_TYPES[self.numbers].stored};",)
        )

    def recipe(self, kernel: str) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


def room_of(cut: Cut, sums: int = 1) -> int:
    """f32 that so many sums of images are to be given, where several blocks have an image."""
    return sums * cut.blocks * cut.channels if cut.splits > 1 else 0


def means(cut: Cut, x: int, out: int, room: int = 0) -> tuple[Launch, ...]:
    """The mean over the pixels of each image."""
    factor = 1.0 / _pixels(cut)
    first = Launch("image_sums", cut.grid, THREADS, (x, factor, out, room, cut.argument))
    return first, *_folded(cut, room, factor, out)


def products(cut: Cut, x: int, dy: int, out: int, room: int = 0) -> tuple[Launch, ...]:
    """The sum of x * dy over the pixels of each image."""
    first = Launch("image_products", cut.grid, THREADS, (x, dy, out, room, cut.argument))
    return first, *_folded(cut, room, 1.0, out)


def both_sums(cut: Cut, x: int, dy: int, products: int, sums: int, room: int = 0) -> tuple[Launch, ...]:
    """The sums of x * dy and of dy over the pixels of each image."""
    first = Launch("image_both_sums", cut.grid, THREADS, (x, dy, products, sums, room, cut.argument))
    other = room + 4 * room_of(cut)  # behind what is left of the products
    return first, *_folded(cut, room, 1.0, products), *_folded(cut, other, 1.0, sums)


def _folded(cut: Cut, room: int, factor: float, out: int) -> tuple[Launch, ...]:
    """The sums of images of which several blocks left parts."""
    if cut.splits == 1:
        return ()
    blocks = ceil(cut.blocks // cut.splits * cut.channels / THREADS)
    return (Launch("image_fold", (blocks,), THREADS, (room, factor, out, cut.argument)),)


def _pixels(cut: Cut) -> int:
    """Of an image."""
    return cut.stretch * cut.splits


def over_all(rows: int, kind: ImageKind, channels: int, sms: int) -> Cut:
    """All rows for a GPU of so many multiprocessors: as many blocks as have rows enough for every thread."""
    return stretches.balanced(rows, channels, kind.vector, RESIDENTS * sms, least=DEEP)


def room_of_totals(cut: Cut) -> int:
    """f32 that sums over all rows are to be given: none where one block has them all."""
    return cut.channels * cut.blocks if cut.blocks > 1 else 0


def totals(cut: Cut, x: int, room: int, out: int) -> tuple[Launch, ...]:
    """The sums over all rows, f32 [channels], of a kind whose numbers are f32; `room` are `room_of_totals` f32."""
    if not room_of_totals(cut):
        return (Launch("image_sums", cut.grid, THREADS, (x, 1.0, out, 0, cut.argument)),)
    fold = Launch("image_sums_fold", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, (room, out, cut.argument))
    return Launch("image_sums", cut.grid, THREADS, (x, 1.0, room, 0, cut.argument)), fold


def mapped(cut: Cut, x: int, gate: int, added: int, y: int, spread: bool = True) -> tuple[Launch, ...]:
    """x * gate + added, that divided by the pixels where it is `spread` over them; `added` may be 0 for none."""
    factor = 1.0 / _pixels(cut) if spread else 1.0
    return (Launch("image_map", cut.grid, THREADS, (x, gate, added, factor, y, cut.argument)),)


def blended(cut: Cut, dy: int, gate: int, x: int, tilt: int, dx: int) -> tuple[Launch, ...]:
    """dy * gate + x * tilt."""
    return (Launch("image_blend", cut.grid, THREADS, (dy, gate, x, tilt, dx, cut.argument)),)
