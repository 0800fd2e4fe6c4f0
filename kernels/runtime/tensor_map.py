"""Tensor maps: what the bulk copy engine needs to know of an array in device memory to fetch boxes of it.

The map is made by the driver's `cuTensorMapEncodeTiled`, which needs no context and says only "invalid value" when it
refuses; what it asks for is checked here first, with both sides of what does not hold. It goes to a kernel by value
as a `const __grid_constant__` parameter of 128 bytes, aligned to 64.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KernelError, LaunchError, TooLarge, WrongDtype, WrongLayout, WrongShape, WrongValue
from .array import ITEM_BYTES
from .bindings import runtime
from .libcuda import driver_function

BYTES = 128
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
ALIGNMENT = 64
_VOID = np.dtype((np.void, BYTES))
# Codes of the driver's enumerations (CUtensorMapDataType and its siblings).
_DTYPES = {
    "uint8": 0, "int8": 0, "bool": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5,
    "f16": 6, "f32": 7, "f64": 8, "bf16": 9,
}  # fmt: skip
_SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_SPANS = {"none": 1 << 30, "32B": 32, "64B": 64, "128B": 128}
_PROMOTIONS = {"none": 0, "64B": 1, "128B": 2, "256B": 3}

Encoder = Callable[..., int]


@dataclass(frozen=True)
class TiledMap:
    """A tiled tensor map's description, innermost dimension first.

    `extents` are in elements; `strides_bytes` those of every dimension but the innermost, which is dense; `box` is what
    one copy brings, in elements; `element_strides` the steps between the elements it brings. Elements outside the
    extents read as zero and are not written. A kernel's coordinates may be negative; the innermost must be a multiple
    of 16 bytes (seen on an H200: anything else is an illegal instruction).
    """

    pointer: int
    dtype: str
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "128B"
    element_strides: tuple[int, ...] = ()
    l2_promotion: str = "128B"

    def __post_init__(self) -> None:
        self._check_words()
        self._check_ranks()
        self._check_memory()
        self._check_box()

    @property
    def steps(self) -> tuple[int, ...]:
        """The element strides, ones where none were given."""
        return self.element_strides or (1,) * len(self.extents)

    def _check_words(self) -> None:
        if self.dtype not in _DTYPES:
            raise self._wrong(WrongDtype, "no such element type", ", ".join(_DTYPES), repr(self.dtype))
        for what, word, words in (
            ("swizzle", self.swizzle, _SWIZZLES),
            ("L2 promotion", self.l2_promotion, _PROMOTIONS),
        ):
            if word not in words:
                raise self._wrong(WrongValue, f"no such {what}", ", ".join(words), repr(word))

    def _check_ranks(self) -> None:
        rank = len(self.extents)
        if not 1 <= rank <= 5:
            raise self._wrong(WrongShape, "a tensor map has 1 to 5 dimensions", "1 to 5 extents", rank)
        for what, values, wanted in (
            ("strides, all but the innermost", self.strides_bytes, rank - 1),
            ("box extents", self.box, rank),
            ("element strides", self.steps, rank),
        ):
            if len(values) != wanted:
                raise self._wrong(WrongShape, f"wrong number of {what}", f"{wanted} for {rank} extents", values)

    def _check_memory(self) -> None:
        if self.pointer % 16:
            raise self._wrong(
                WrongLayout, "the tensor is not aligned", "an address that is a multiple of 16", hex(self.pointer)
            )
        for axis, extent in enumerate(self.extents):
            if not 1 <= extent <= 1 << 32:
                raise self._wrong(TooLarge, f"extent {axis} is out of range", "1 to 2**32", self.extents)
        for axis, step in enumerate(self.strides_bytes, 1):
            if step % 16 or not 0 <= step < 1 << 40:
                raise self._wrong(
                    WrongLayout,
                    f"stride {axis} is none the copy engine takes",
                    "a multiple of 16 bytes below 2**40",
                    self.strides_bytes,
                )

    def _check_box(self) -> None:
        for axis, extent in enumerate(self.box):
            if not 1 <= extent <= 256:
                raise self._wrong(TooLarge, f"box extent {axis} is out of range", "1 to 256", self.box)
        for axis, step in enumerate(self.steps):
            if not 1 <= step <= 8:
                raise self._wrong(WrongValue, f"element stride {axis} is out of range", "1 to 8", self.steps)
        inner = self.box[0] * ITEM_BYTES[self.dtype]
        if inner % 16:
            raise self._wrong(
                WrongShape, "the box's inner row is no multiple of 16 bytes", "a multiple of 16 bytes", f"{inner} bytes"
            )
        if inner > _SPANS[self.swizzle]:
            raise self._wrong(
                WrongShape,
                "the box's inner row is wider than the swizzle",
                f"at most {_SPANS[self.swizzle]} bytes with swizzle {self.swizzle}",
                f"{inner} bytes ({self.box[0]} elements of {self.dtype})",
            )

    def _wrong(self, kind: type[KernelError], what: str, expected: object, came: object) -> KernelError:
        return kind(what, where=f"tensor map of {self.dtype} {self.extents}", expected=expected, came=came)


class TensorMap:
    """Encoded tensor maps."""

    @staticmethod
    def tiled(
        pointer: int,
        dtype: str,
        extents: Sequence[int],
        strides_bytes: Sequence[int],
        box: Sequence[int],
        swizzle: str = "128B",
        element_strides: Sequence[int] | None = None,
        l2_promotion: str = "128B",
    ) -> np.void:
        """A tiled map as a scalar of 128 bytes, ready to be passed to a kernel. Arguments as in `TiledMap`.

        Raises `WrongDtype`, `WrongLayout`, `WrongShape`, `WrongValue`, `TooLarge`, `MissingDriver`. The last few
        thousand maps are remembered.
        """
        return _encoded(
            pointer,
            dtype,
            tuple(extents),
            tuple(strides_bytes),
            tuple(box),
            swizzle,
            tuple(element_strides or ()),
            l2_promotion,
        )


@functools.lru_cache(maxsize=8192)
def _encoded(*arguments: Any) -> np.void:
    return encode(TiledMap(*arguments), driver_function("cuTensorMapEncodeTiled"))


def encode(tiled: TiledMap, encoder: Encoder) -> np.void:
    """Have `encoder` (the driver's function, or one that takes the same arguments) write the 128 bytes of a map."""
    rank = len(tiled.extents)
    memory = ctypes.create_string_buffer(BYTES + ALIGNMENT)
    start = -ctypes.addressof(memory) % ALIGNMENT
    given = (
        ctypes.c_void_p(ctypes.addressof(memory) + start),
        ctypes.c_int(_DTYPES[tiled.dtype]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(tiled.pointer),
        (ctypes.c_uint64 * rank)(*tiled.extents),
        (ctypes.c_uint64 * max(rank - 1, 1))(*tiled.strides_bytes),
        (ctypes.c_uint32 * rank)(*tiled.box),
        (ctypes.c_uint32 * rank)(*tiled.steps),
        ctypes.c_int(0),  # not interleaved
        ctypes.c_int(_SWIZZLES[tiled.swizzle]),
        ctypes.c_int(_PROMOTIONS[tiled.l2_promotion]),
        ctypes.c_int(0),  # out of bounds reads as zero
    )
    status = encoder(*given)
    if status == _NO_CONTEXT:  # a thread that has not yet used the GPU, such as autograd's
        runtime().setDevice(runtime().getDevice())
        status = encoder(*given)
    if status:
        raise LaunchError(f"the driver refused a tensor map (error {status})", came=tiled)
    found: np.void = np.frombuffer(memory.raw[start : start + BYTES], dtype=_VOID)[0]
    return found
