"""Batch norm in training and what follows it, of tensors whose channels are dense: its cut, source and launches.

    y = activation((x - mean) / sqrt(variance + epsilon) * weight + bias + residual)

Each way is three launches: parts of the sums over rows, their fold, the map (`batch_norm.cu`). Rows are everything but
channels. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from ..elementwise.types import ELEMENT_TYPES
from ..runtime.compiler import Recipe
from . import stretches
from .stretches import FOLD_CHANNELS, FOLD_THREADS, THREADS, Cut, Launch

Kernel = Literal[
    "norm_statistics", "norm_fold_statistics", "norm_apply",
    "norm_gradient_sums", "norm_fold_gradient", "norm_gradient_apply",
]  # fmt: skip
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]
ACTIVATIONS = ("", "relu", "relu6", "silu", "gelu", "hardswish")
TOLD_BY_RESULT = ("relu", "relu6")  # whose derivative is known from what they made


@dataclass(frozen=True)
class NormKind:
    """What the source of the kernels depends on."""

    dtype: str
    vector: int
    activation: str = ""
    residual: bool = False
    parameters: str = "f32"

    @classmethod
    def of(
        cls, channels: int, dtype: str, activation: str = "", residual: bool = False, parameters: str = "f32"
    ) -> NormKind:
        """The kind for so many channels: a vector divides them."""
        return cls(dtype, stretches.vector_of(channels, dtype), activation, residual, parameters)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        facts = (
            f"constexpr bool with_residual = {str(self.residual).lower()};",
            f"constexpr Activation activation = Activation::{self.activation or 'none'};",
            stretches.parameter_type(self.parameters),
        )
        return stretches.source(self.dtype, self.vector, "batch_norm.cu", facts)

    def recipe(self, kernel: Kernel) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


class Remembered(NamedTuple):
    """What a layer remembers of statistics: addresses of numbers a channel, of the type of parameters, and of the
    number of batches (i64); 0 for none.

    `momentum` below 0 is the mean over all batches.
    """

    mean: int = 0
    variance: int = 0
    batches: int = 0
    momentum: float = 0.0


class Operands(NamedTuple):
    """Addresses: x, what is added before the activation, weight and bias (of the type of parameters; 0: none), mean and
    variance f32 [2, c].
    """

    x: int
    residual: int
    weight: int
    bias: int
    statistics: int
    epsilon: float


def forward(cut: Cut, given: Operands, y: int, room: int, remembered: Remembered) -> tuple[Launch, ...]:
    """The statistics are written too; `room` are `cut.workspace` f32."""
    grid, rest = cut.grid, cut.argument
    mean, variance, batches, momentum = remembered
    fold = (room, given.statistics, mean, variance, batches, momentum, rest)
    apply = (given.x, given.residual, given.statistics, given.weight, given.bias, given.epsilon, y, batches, rest)
    return (
        Launch("norm_statistics", grid, THREADS, (given.x, room, rest)),
        Launch("norm_fold_statistics", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, fold),
        Launch("norm_apply", grid, THREADS, apply),
    )


class Gradients(NamedTuple):
    """Addresses: of dy, and of what is written: dx, the residual's (0: none), those of weight and bias."""

    dy: int
    dx: int
    residual: int
    weight: int
    bias: int


def gradient_workspace(cut: Cut) -> int:
    """f32: of all blocks, and behind them the sums of both."""
    return cut.workspace + 2 * cut.channels


def gradient(cut: Cut, given: Operands, made: Gradients, room: int) -> tuple[Launch, ...]:
    """`given.residual` is the residual itself, or y where the activation is relu or relu6; `room` are
    `gradient_workspace(cut)` f32.
    """
    grid, rest, sums = cut.grid, cut.argument, room + ELEMENT_TYPES["f32"].bytes * cut.workspace
    known = (given.statistics, given.weight, given.bias, given.epsilon)
    parts = (given.x, made.dy, given.residual, *known, made.residual, room, rest)
    fold = (room, given.statistics, given.epsilon, made.weight, made.bias, sums, rest)
    apply = (given.x, made.residual or made.dy, *known, sums, made.dx, rest)
    return (
        Launch("norm_gradient_sums", grid, THREADS, parts),
        Launch("norm_fold_gradient", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, fold),
        Launch("norm_gradient_apply", grid, THREADS, apply),
    )
