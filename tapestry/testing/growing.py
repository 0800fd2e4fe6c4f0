"""A program while it is being generated: its tensors so far, and operations added one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..dtypes import DTYPES
from ..expr import Affine, Bound, Cast, Expr
from ..program import Block, Dim, Operation, Role, Tensor
from .choices import Choices
from .operands import Operand, some_view, unsigned, whole

DTYPES_OF = {
    "float": ("f32", "f32", "f64", "bf16", "f16"),
    "int": ("int32", "int8", "int64"),
    "bool": ("bool",),
}
EVERY_DTYPE_OF = DTYPES_OF | {"int": (*DTYPES_OF["int"], "uint8", "int16", "uint16", "uint32")}
GIVEN_OF = EVERY_DTYPE_OF | {"float": (*DTYPES_OF["float"], *DTYPES_OF["float"], "f8e4m3", "f8e5m2")}
"""Of what comes in. Floats of 8 bits are read only: a result that is rounded to one is far from its neighbours."""
LETTERS = "ijklmnpqrs"


@dataclass(frozen=True)
class Size:
    """How large generated programs grow: the largest extent, and what follows for elements of a tensor and points.

    ``wide``: whether of every dtype and of every kind of operation.
    """

    largest: int = 9
    wide: bool = False

    @property
    def elements(self) -> int:
        return int(300 * (self.largest / 9) ** 1.5)

    @property
    def points(self) -> int:
        return 20 * self.elements


class Growing:
    """Tensors and operations so far. Every float value stays within its tensor's bound (see `bodies`)."""

    def __init__(self, ch: Choices, size: Size) -> None:
        self.ch, self.size = ch, size
        self.tensors: list[Tensor] = []
        self.operations: list[Operation] = []
        self.readable: list[Operand] = []

    def dtype(self, kinds: Sequence[str] = ("float", "int", "float", "int", "bool")) -> str:
        return self.ch.pick((GIVEN_OF if self.size.wide else DTYPES_OF)[self.ch.pick(kinds)])

    def shape(self, ranks: tuple[int, int] = (0, 3)) -> tuple[int, ...]:
        """Extents up to the largest, few elements in all."""
        extents: list[int] = []
        for _ in range(self.ch.integer(*ranks)):
            extents.append(self.ch.integer(1, min(self.size.largest, self.size.elements // prod(extents))))
        return tuple(extents)

    def fresh(self, shape: tuple[int, ...], dtype: str | None = None) -> Operand:
        """A new input or param, rarely a constant."""
        role: Role = self.ch.pick(("input", "param", "const" if prod(shape) <= 9 else "param"))
        dtype = dtype or self.dtype()
        data = self._data(prod(shape), dtype) if role == "const" else None
        tensor = Tensor(f"x{len(self.tensors)}", dtype, shape, role, data=data)
        self.tensors.append(tensor)
        gain = role == "param" and len(shape) == 1
        self.readable.append(whole(tensor, 1.5 if gain else 1.0))
        return self.readable[-1]

    def _data(self, size: int, dtype: str) -> tuple[float | int | bool, ...]:
        scale = {"float": 0.25, "int": 1, "bool": True}[DTYPES[dtype].kind]
        least = int(max(-3, DTYPES[dtype].ends[0])) if DTYPES[dtype].kind == "int" else -3
        drawn = [self.ch.integer(least, 3) for _ in range(size)]
        return tuple(value > 0 if scale is True else value * scale for value in drawn)

    def operand(self, kinds: Sequence[str] = ("float", "int", "bool"), ranks: tuple[int, int] = (0, 3)) -> Operand:
        """Something to read: a tensor that exists or a new one, or a view or two of it."""
        able = [x for x in self.readable if x.kind in kinds and ranks[0] <= len(x.shape) <= ranks[1]]
        old = able and self.ch.chance(75)
        x = self.ch.pick(able[::-1]) if old else self.fresh(self.shape(ranks), self.dtype(kinds))
        for _ in range(self.ch.pick((0, 0, 1, 2))):
            view = some_view(self.ch, x)
            if ranks[0] <= len(view.shape) <= ranks[1] and prod(view.shape) <= self.size.elements:
                x = view
        return x

    def emit(
        self,
        extents: Mapping[str, int],
        body: Expr | Block,
        dtype: str,
        *,
        reduce: tuple[str, ...] = (),
        monoid: str | None = None,
        where: tuple[Bound, ...] = (),
        bound: float = 1.0,
    ) -> Operand:
        """Add the operation over these dimensions that writes a new tensor over those that are not reduced."""
        names = self.ch.shuffled(list(extents)) if self.ch.chance(30) else list(extents)
        kept = [name for name in names if name not in reduce]
        axes = self.ch.shuffled(kept) if self.ch.chance(30) else kept
        space = tuple(Dim(name, extents[name], cut=not self.ch.chance(5)) for name in names)
        shape, write = self._written(axes, extents)
        return self.add(space, shape, write, body, dtype, reduce, monoid, where, bound)

    def _written(self, axes: Sequence[str], extents: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[Affine, ...]]:
        """Where results go: along their dimensions, rarely backwards or two dimensions along one axis."""
        shape, rows = [extents[name] for name in axes], [Affine.dim(name) for name in axes]
        if rows and self.ch.chance(8):
            k = self.ch.integer(0, len(rows) - 1)
            rows[k] = shape[k] - 1 - rows[k]
        if len(rows) > 1 and self.ch.chance(8):
            shape[:2], rows[:2] = [shape[0] * shape[1]], [rows[0] * shape[1] + rows[1]]
        return tuple(shape), tuple(rows)

    def add(
        self,
        space: tuple[Dim, ...],
        shape: tuple[int, ...],
        write: tuple[Affine, ...],
        body: Expr | Block,
        dtype: str,
        reduce: tuple[str, ...] = (),
        monoid: str | None = None,
        where: tuple[Bound, ...] = (),
        bound: float = 1.0,
    ) -> Operand:
        """Add an operation and the tensor it writes, as they are; integers without a sign wrap when they are stored."""
        if not isinstance(body, Block) and unsigned(dtype):
            body = Cast("int64", body)
        number = len(self.operations)
        tensor = Tensor(f"t{number}", dtype, shape)
        self.tensors.append(tensor)
        self.operations.append(Operation(f"op{number}", space, tensor.name, write, body, reduce, monoid, where))
        self.readable.append(whole(tensor, bound))
        return self.readable[-1]


def index_of(names: Sequence[str]) -> tuple[Affine, ...]:
    return tuple(map(Affine.dim, names))
