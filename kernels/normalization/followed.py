"""What follows a convolution or a product that is there already, in place: cut, source and launch.

    y = activation(y + bias + residual)

of tensors whose channels are dense (`followed.cu`). Rows are everything but channels. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def launch(cut: Cut, y: int, bias: int, residual: int) -> tuple[Launch, ...]:
    """y, of addresses, 0 for none: bias [channels], of the type of parameters, and a residual that lies as y does."""
    return (Launch(KERNEL, cut.grid, THREADS, (y, residual, bias, cut.argument)),)
