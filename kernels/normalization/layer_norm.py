"""Layer norm of rows whose channels are dense, in training: its cut, source and launches.

    y = (x - mean) / sqrt(variance + epsilon) * weight + bias

with mean and variance of each row; x, y and parameters of types of their own. A row is read once, forward and backward,
by neighbouring threads of a warp (`layer_norm.cu`). Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from ..elementwise.types import ELEMENT_TYPES
from ..runtime.compiler import Recipe
from . import stretches
from .stretches import FOLD_CHANNELS, FOLD_THREADS, Cut, Launch

Kernel = Literal["layer_norm", "layer_norm_gradient", "layer_norm_fold"]
KERNELS: tuple[Kernel, ...] = Kernel.__args__  # type: ignore[attr-defined]
WARP = 32
MOST_VALUES = 32  # of a row that a thread holds: more, and their sums find no place in registers
SHARES = ((8, stretches.SIZES), (16, stretches.Sizes(256, 2)), (MOST_VALUES, stretches.Sizes(256, 1)))  # of registers
UNDER_WAY = {"forward_rows": 4, "gradient_rows": 2}  # vectors of a tensor that a thread has under way


@dataclass(frozen=True)
class RowKind:
    """What the source of the kernels depends on: types, the width of an access, and how a row is shared out."""

    dtype: str
    result: str
    vector: int
    lanes: int
    turns: int
    parameters: str = "f32"

    @classmethod
    def of(cls, channels: int, dtype: str, result: str, parameters: str = "f32") -> RowKind | None:
        """The kind for rows of so many channels; None where they are too long."""
        widest = max(dtype, result, key=lambda name: ELEMENT_TYPES[name].bytes)
        vector = stretches.vector_of(channels, widest)
        vectors = channels // vector
        lanes = min(WARP, 1 << (vectors - 1).bit_length())
        turns = ceil(vectors / lanes)
        return cls(dtype, result, vector, lanes, turns, parameters) if turns * vector <= MOST_VALUES else None

    @property
    def sizes(self) -> stretches.Sizes:
        """Threads, fewer where each has more to hold."""
        return next(sizes for most, sizes in SHARES if self.turns * self.vector <= most)

    def cut(self, rows: int, channels: int, sms: int) -> Cut:
        """Rows for a GPU of so many multiprocessors: in one turn."""
        slots = self.sizes.threads // self.lanes
        steps = ceil(rows / slots)
        stretch = ceil(steps / min(steps, sms * self.sizes.residents)) * slots
        return Cut(rows, channels, self.lanes, slots, stretch, ceil(rows / stretch), 1)

    def source(self) -> str:
        """The CUDA source of all kernels."""
        facts = [f"using Result = {ELEMENT_TYPES[self.result].stored};", stretches.parameter_type(self.parameters)]
        counts = {"lanes": self.lanes, "turns": self.turns}
        counts |= {name: max(1, vectors // self.turns) for name, vectors in UNDER_WAY.items()}
        facts += [f"constexpr int {name} = {number};" for name, number in counts.items()]
        return stretches.source(self.dtype, self.vector, "layer_norm.cu", facts, self.sizes)

    def recipe(self, kernel: str) -> Recipe:
        """One of the kernels; all of a kind come out of one compilation."""
        return Recipe(kernel, self.source())


class Operands(NamedTuple):
    """Addresses: x, weight and bias (0: none), and of each row mean and one over the deviation, f32 [rows, 2]."""

    x: int
    weight: int
    bias: int
    statistics: int


def forward(kind: RowKind, cut: Cut, given: Operands, epsilon: float, y: int) -> tuple[Launch, ...]:
    """The statistics are written too."""
    arguments = (given.x, given.weight, given.bias, epsilon, y, given.statistics, cut.argument)
    return (Launch("layer_norm", cut.grid, kind.sizes.threads, arguments),)


class Gradients(NamedTuple):
    """Addresses: of dy, and of what is written: dx, those of weight and bias."""

    dy: int
    dx: int
    weight: int
    bias: int


def gradient(kind: RowKind, cut: Cut, given: Operands, made: Gradients, room: int) -> tuple[Launch, ...]:
    """`room` are `cut.workspace` f32."""
    rest = cut.argument
    rows = (given.x, made.dy, given.statistics, given.weight, made.dx, room, rest)
    fold = (room, made.weight, made.bias, rest)
    return (
        Launch("layer_norm_gradient", cut.grid, kind.sizes.threads, rows),
        Launch("layer_norm_fold", (ceil(cut.channels / FOLD_CHANNELS),), FOLD_THREADS, fold),
    )
