"""Element types as the generated code sees them, and what describes a tensor in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from ..errors import WrongDtype, WrongLayout, WrongShape

Kind = Literal["bool", "int", "float"]


@dataclass(frozen=True)
class ElementType:
    """An element type: its width, its kind, the C++ type it is stored as."""

    name: str
    bytes: int
    kind: Kind
    stored: str


ELEMENT_TYPES: dict[str, ElementType] = {
    t.name: t
    for t in (
        ElementType("bool", 1, "bool", "truth"),
        ElementType("uint8", 1, "int", "unsigned char"),
        ElementType("int8", 1, "int", "signed char"),
        ElementType("uint16", 2, "int", "unsigned short"),
        ElementType("int16", 2, "int", "short"),
        ElementType("uint32", 4, "int", "unsigned"),
        ElementType("int32", 4, "int", "int"),
        ElementType("int64", 8, "int", "Int"),
        ElementType("f8e4m3", 1, "float", "f8e4m3"),
        ElementType("f8e5m2", 1, "float", "f8e5m2"),
        ElementType("bf16", 2, "float", "bf16"),
        ElementType("f16", 2, "float", "f16"),
        ElementType("f32", 4, "float", "float"),
        ElementType("f64", 8, "float", "double"),
    )
}


def element_type(name: str, where: str = "") -> ElementType:
    """The element type of that name; `WrongDtype` otherwise.

    >>> element_type("bf16").bytes
    2
    """
    if name not in ELEMENT_TYPES:
        raise WrongDtype("no such element type", where=where or None, expected=", ".join(ELEMENT_TYPES), came=name)
    return ELEMENT_TYPES[name]


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of row-major memory without gaps.

    >>> dense((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory. Strides count elements, not bytes; one may be 0 (repeated) or negative.

    ``alignment``: the address of element (0, ..., 0) is a multiple of so many bytes. Raises `WrongShape`,
    `WrongLayout`, `WrongDtype`.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = 16

    def __post_init__(self) -> None:
        element_type(self.dtype)
        if len(self.shape) != len(self.strides):
            raise WrongLayout("one stride for each axis", expected=len(self.shape), came=len(self.strides))
        if any(extent < 0 for extent in self.shape):
            raise WrongShape("negative extent", expected="0 or more", came=self.shape)
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise WrongLayout("alignment", expected="a power of two, in bytes", came=self.alignment)

    @staticmethod
    def contiguous(dtype: str, shape: Sequence[int], alignment: int = 16) -> Layout:
        """Row-major without gaps."""
        return Layout(dtype, tuple(shape), dense(shape), alignment)

    @property
    def type(self) -> ElementType:
        return ELEMENT_TYPES[self.dtype]

    @property
    def elements(self) -> int:
        """Extents multiplied."""
        return prod(self.shape)
