"""Gelu of tensors whose channels are dense, and its gradient with the sum of that over rows: cut, source and launches.

A layer in front of it whose bias learns is owed that sum; so it costs no pass of its own (`gelu.cu`). Of halves. Needs
no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from ..runtime.compiler import Recipe
from . import stretches
from .stretches import FOLD_CHANNELS, FOLD_THREADS, RESIDENTS, THREADS, Cut, Launch

Kernel = Literal["gelu", "gelu_gradient", "gelu_fold"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class GeluKind:
    """What the source of the kernels depends on."""

    dtype: str
    vector: int

    @classmethod
    def of(cls, channels: int, dtype: str) -> GeluKind:
        """The kind for so many channels: a vector divides them."""
        return cls(dtype, stretches.vector_of(channels, dtype))

    def cut(self, rows: int, channels: int, sms: int) -> Cut:
        """Rows for a GPU of so many multiprocessors: in one turn."""
        return stretches.balanced(rows, channels, self.vector, RESIDENTS * sms)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        return stretches.source(self.dtype, self.vector, "gelu.cu")

    def recipe(self, kernel: str) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


def workspace(cut: Cut) -> int:
    """f32 of a sum of every block."""
    return cut.channels * cut.blocks


def forward(cut: Cut, x: int, y: int) -> tuple[Launch, ...]:
    """y, of addresses."""
    return (Launch("gelu", cut.grid, THREADS, (x, y, cut.argument)),)


def gradient(cut: Cut, x: int, dy: int, dx: int, sums: int, room: int) -> tuple[Launch, ...]:
    """dx, and its sums over rows, f32 [channels]; `room` are `workspace(cut)` f32."""
    return (
        Launch("gelu_gradient", cut.grid, THREADS, (x, dy, dx, room, cut.argument)),
        Launch("gelu_fold", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, (room, sums, cut.argument)),
    )
