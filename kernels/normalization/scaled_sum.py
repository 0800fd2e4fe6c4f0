"""A layer scale and the sum behind it, of tensors whose channels are dense: its cut, source and launches.

    y = x * gamma * factor + residual

gamma is a number a channel, factor one an image, as stochastic depth draws them, or none. x, residual, y and gamma are
of types of their own: under autocast x is bf16 and the rest f32. One launch forward, two backward (`scaled_sum.cu`).
Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from ..elementwise.types import ELEMENT_TYPES
from ..runtime.compiler import Recipe
from . import stretches
from .stretches import FOLD_CHANNELS, FOLD_THREADS, RESIDENTS, THREADS, Cut, Launch

Kernel = Literal["scaled_sum", "scaled_sum_gradient", "scaled_sum_fold"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ScaleKind:
    """What the source of the kernels depends on: types of x, residual, y and gamma, and whether there are factors."""

    dtype: str
    added: str
    result: str
    parameters: str
    vector: int
    factors: bool = False

    @classmethod
    def of(
        cls, channels: int, dtype: str, added: str, result: str, parameters: str, *, factors: bool = False
    ) -> ScaleKind:
        """The kind for so many channels: a vector divides them."""
        widest = max(dtype, added, result, key=lambda name: ELEMENT_TYPES[name].bytes)
        return cls(dtype, added, result, parameters, stretches.vector_of(channels, widest), factors)

    def cut(self, rows: int, channels: int, sms: int) -> Cut:
        """Rows for a GPU of so many multiprocessors: in one turn."""
        return stretches.balanced(rows, channels, self.vector, RESIDENTS * sms)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        types = {"Added": self.added, "Result": self.result}
        facts = [f"using {name} = {ELEMENT_TYPES[dtype].stored};" for name, dtype in types.items()]
        facts += [stretches.parameter_type(self.parameters)]
        facts += [f"constexpr bool with_factors = {str(self.factors).lower()};"]
        return stretches.source(self.dtype, self.vector, "scaled_sum.cu", facts)

    def recipe(self, kernel: Kernel) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


class Operands(NamedTuple):
    """Addresses: x, gamma, and of each image a factor, f32 (0: none); and the rows of an image."""

    x: int
    gamma: int
    factors: int
    pixels: int


def forward(cut: Cut, given: Operands, residual: int, y: int) -> tuple[Launch, ...]:
    """y, of addresses."""
    x, gamma, factors, pixels = given
    return (Launch("scaled_sum", cut.grid, THREADS, (x, residual, gamma, factors, _word(pixels), y, cut.argument)),)


def workspace(cut: Cut) -> int:
    """f32 of a sum of every block."""
    return cut.channels * cut.blocks


def gradient(cut: Cut, given: Operands, dy: int, dx: int, to_gamma: int, room: int) -> tuple[Launch, ...]:
    """The gradients of x and gamma; that of the residual is dy. `room` are `workspace(cut)` f32."""
    x, gamma, factors, pixels = given
    rest = cut.argument
    return (
        Launch("scaled_sum_gradient", cut.grid, THREADS, (x, dy, gamma, factors, _word(pixels), dx, room, rest)),
        Launch("scaled_sum_fold", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, (room, to_gamma, rest)),
    )


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")
