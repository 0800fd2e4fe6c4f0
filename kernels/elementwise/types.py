"""Element types as the generated code sees them, and what describes a tensor in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol

from ...expr import Affine, Bound
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
        ElementType("int8", 1, "int", "signed char"),
        ElementType("int32", 4, "int", "int"),
        ElementType("int64", 8, "int", "Int"),
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


@dataclass(frozen=True)
class Dimension:
    """A dimension of an index space: 0 <= name < extent."""

    name: str
    extent: int


class Extent(Protocol):
    """A dimension of an index space: 0 <= name < extent."""

    @property
    def name(self) -> str: ...
    @property
    def extent(self) -> int: ...


class Primitive(Protocol):
    """What a kernel needs of an operation; the language's operations are such.

    ``output[write] = fold by monoid over reduce_dims of body`` at every point of ``dims`` inside ``where``.
    """

    @property
    def name(self) -> str: ...
    @property
    def dims(self) -> Sequence[Extent]: ...
    @property
    def output(self) -> str: ...
    @property
    def write(self) -> tuple[Affine, ...]: ...
    @property
    def body(self) -> Any: ...
    @property
    def reduce_dims(self) -> tuple[str, ...]: ...
    @property
    def monoid(self) -> str | None: ...
    @property
    def where(self) -> tuple[Bound, ...]: ...


@dataclass(frozen=True)
class Operation:
    """A `Primitive` made here, from others."""

    name: str
    dims: tuple[Dimension, ...]
    output: str
    write: tuple[Affine, ...]
    body: Any
    reduce_dims: tuple[str, ...] = ()
    monoid: str | None = None
    where: tuple[Bound, ...] = ()
