"""What a kernel says of its dimensions: plain frozen values, which `declarations` turns into C++.

    spec = Specification(
        "forward",
        dims=(Dimension("X"), Dimension("C"), Fold("C8", "C", 8), Module("C8m", "C", 8)),
        tensors=(Tensor("Tile", "octet", (Extent("X", 18), Extent("C8", 8)), shared=True, swizzle=128),),
        compounds=(Compound("Lane", (Extent("X", 8), Extent("C8", 4)), size=32),),
        parameters=(Parameter("STAGES", 4),),
    )

Dimensions are named by strings; a fold or a module stands after the dimension that it divides. `None` as an extent or a
stride is one that the kernel learns at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Dimension:
    """A dimension of its own: `using X = Dim<struct X_tag>`."""

    name: str


@dataclass(frozen=True)
class Fold:
    """Blocks of `size` consecutive indices of `of`: index i lies in block i // size."""

    name: str
    of: str
    size: int


@dataclass(frozen=True)
class Module:
    """The place of an index of `of` inside its block of `size`: i mod size."""

    name: str
    of: str
    size: int


AnyDimension: TypeAlias = Dimension | Fold | Module


@dataclass(frozen=True)
class Extent:
    """How many indices of a dimension there are; `None`: known at run time."""

    dim: str
    size: int | None = None


@dataclass(frozen=True)
class Axis:
    """An extent with an explicit stride in elements; `None`: known at run time."""

    dim: str
    size: int | None = None
    stride: int | None = None


@dataclass(frozen=True)
class Tensor:
    """Elements laid out along axes, the last one innermost.

    `axes` are all `Extent` (packed without gaps) or all `Axis` (explicit strides, in elements). `shared` tensors are
    addressed by 32-bit shared addresses; `swizzle` is that of the copy engine, in bytes of a row (0: none).
    """

    name: str
    element: str
    axes: tuple[Extent, ...] | tuple[Axis, ...]
    shared: bool = False
    swizzle: int = 0


@dataclass(frozen=True)
class Compound:
    """One linear index of threads, lanes or blocks taken apart, the last extent fastest.

    `size`, where given, is what the extents must come to.
    """

    name: str
    extents: tuple[Extent, ...]
    size: int | None = None


@dataclass(frozen=True)
class Registers:
    """A small array of elements, indexed by typed indices, kept in registers where the kernel unrolls its loops."""

    name: str
    element: str
    extents: tuple[Extent, ...]


@dataclass(frozen=True)
class Fragment:
    """A tensor-core operand: "A" (dims M, K), "B" (dims K, N) or "C" (dims M, N), `depth` 8 or 16 (not for C)."""

    name: str
    operand: Literal["A", "B", "C"]
    dims: tuple[str, str]
    depth: int = 16


@dataclass(frozen=True)
class Parameter:
    """A compile-time constant of the kernel: an integer or a truth value."""

    name: str
    value: int | bool


@dataclass(frozen=True)
class Specification:
    """All declarations of one kernel; `name` becomes the C++ namespace (`a` or `a::b`)."""

    name: str
    dims: tuple[AnyDimension, ...]
    tensors: tuple[Tensor, ...] = ()
    compounds: tuple[Compound, ...] = ()
    registers: tuple[Registers, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    parameters: tuple[Parameter, ...] = ()


# Element types: what C++ calls them, and their bytes. An octet is eight 16-bit numbers, one 16-byte chunk.
ELEMENTS: dict[str, tuple[str, int]] = {
    "f16": ("unsigned short", 2),
    "bf16": ("unsigned short", 2),
    "f32": ("float", 4),
    "f64": ("double", 8),
    "i8": ("signed char", 1),
    "u8": ("unsigned char", 1),
    "i32": ("int", 4),
    "u32": ("unsigned", 4),
    "octet": ("tapestry::Octet", 16),
    "quad": ("tapestry::Quad", 16),
    "float4": ("float4", 16),  # CUDA's own
}
