"""What follows a convolution or a product that is there already, in place or not: cut, source and launch.

    y = activation(x * scale + bias + residual)

of tensors whose channels are dense (`followed.cu`). Rows are everything but channels. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..runtime.compiler import Recipe
from . import stretches
from .stretches import RESIDENTS, THREADS, Cut, Launch

KERNEL = "followed"


@dataclass(frozen=True)
class FollowedKind:
    """What the source of the kernel depends on."""

    dtype: str
    vector: int
    activation: str = ""
    residual: bool = False
    parameters: str = "f32"

    @classmethod
    def of(cls, channels: int, dtype: str, activation: str, residual: bool, parameters: str) -> FollowedKind:
        """The kind for so many channels: a vector divides them."""
        return cls(dtype, stretches.vector_of(channels, dtype), activation, residual, parameters)

    def cut(self, rows: int, channels: int, sms: int) -> Cut:
        """Rows for a GPU of so many multiprocessors: in one turn."""
        return stretches.balanced(rows, channels, self.vector, RESIDENTS * sms)

    def source(self) -> str:
        """The CUDA source."""
        facts = (
            f"constexpr bool with_residual = {str(self.residual).lower()};",
            f"constexpr Activation activation = Activation::{self.activation or 'none'};",
            stretches.parameter_type(self.parameters),
        )
        return stretches.source(self.dtype, self.vector, "followed.cu", facts)

    def recipe(self, kernel: str = KERNEL) -> Recipe:
        """The kernel."""
        return Recipe(kernel, self.source())


class Operands(NamedTuple):
    """Addresses, 0 for none: x, scale and bias [channels], of the type of parameters, and a residual that lies as x."""

    x: int
    scale: int
    bias: int
    residual: int


def launch(cut: Cut, given: Operands, y: int) -> tuple[Launch, ...]:
    """y, which may be x."""
    x, scale, bias, residual = given
    return (Launch(KERNEL, cut.grid, THREADS, (x, residual, scale, bias, y, cut.argument)),)
