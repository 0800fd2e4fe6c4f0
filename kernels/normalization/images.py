"""Sums over the pixels of each image by channel, and maps by a number a channel: what squeeze-and-excitation does.

Tensors are [images, pixels, channels], dense; the numbers [images, channels], of the same type. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..runtime.compiler import Recipe
from . import stretches
from .stretches import THREADS, Cut, Launch

Kernel = Literal["image_sums", "image_products", "image_map"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ImageKind:
    """What the source of the kernels depends on."""

    dtype: str
    vector: int

    @classmethod
    def of(cls, channels: int, dtype: str) -> ImageKind:
        return cls(dtype, stretches.vector_of(channels, dtype))

    def source(self) -> str:
        """The CUDA source of all kernels."""
        return stretches.source(self.dtype, self.vector, "images.cu")

    def recipe(self, kernel: str) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


def means(cut: Cut, x: int, out: int) -> Launch:
    """The mean over the pixels of each image."""
    return Launch("image_sums", cut.grid, THREADS, (x, 1.0 / cut.stretch, out, cut.argument))


def products(cut: Cut, x: int, dy: int, out: int) -> Launch:
    """The sum of x * dy over the pixels of each image."""
    return Launch("image_products", cut.grid, THREADS, (x, dy, out, cut.argument))


def mapped(cut: Cut, x: int, gate: int, added: int, y: int) -> Launch:
    """x * gate + added / pixels; `added` may be 0 for none."""
    return Launch("image_map", cut.grid, THREADS, (x, gate, added, 1.0 / cut.stretch, y, cut.argument))
