"""How a filter is moved over an image, from torch's spellings of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..convolution.problem import BadConvolution

Ints = Sequence[int]


class Geometry(NamedTuple):
    """How a filter is moved: (rows, columns), (top, bottom, left, right), (rows, columns), and the groups."""

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int


# Bits of a stride or a dilation, and of a padding, which may cut off, in one number.
_STEP, _SIDE = 3, 12


@lru_cache(maxsize=1024)
def packed(stride: tuple[int, int], padding: tuple[int, int, int, int], dilation: tuple[int, int]) -> int | None:
    """All of it as one number, which a call of an operator passes on in half the time; None where it takes more bits.

    >>> unpacked(packed((2, 1), (1, 0, -3, 4), (1, 2)), 8)
    Geometry(stride=(2, 1), padding=(1, 0, -3, 4), dilation=(1, 2), groups=8)
    """
    found = 0
    fields = [*((value, _STEP) for value in (*stride, *dilation))]
    fields += [(value + (1 << (_SIDE - 1)), _SIDE) for value in padding]
    for value, bits in fields:
        if not 0 <= value < 1 << bits:
            return None
        found = found << bits | value
    return found


@lru_cache(maxsize=1024)
def unpacked(number: int, groups: int) -> Geometry:
    """What `packed` made a number of, and the groups."""
    values = []
    for bits in [_SIDE] * 4 + [_STEP] * 4:
        values.append(number & ((1 << bits) - 1))
        number >>= bits
    right, left, bottom, top, *steps = values
    across, down, columns, rows = steps
    sides = tuple(side - (1 << (_SIDE - 1)) for side in (top, bottom, left, right))
    return Geometry((rows, columns), (sides[0], sides[1], sides[2], sides[3]), (down, across), groups)


def geometry_of(
    stride: int | Ints, padding: int | Ints | str, dilation: int | Ints, groups: int, filter_size: Ints
) -> Geometry:
    """From any of torch's spellings, padding "same" and "valid" too. Raises `BadConvolution`."""
    gaps = _pair(dilation, "dilation")
    return Geometry(_pair(stride, "stride"), _sides(padding, filter_size, gaps), gaps, groups)


def _pair(value: int | Ints, what: str) -> tuple[int, int]:
    if isinstance(value, int):
        return (value, value)
    if len(value) != 2:
        raise BadConvolution(what, where="conv2d", expected="1 or 2 ints", came=list(value))
    rows, columns = value
    return (rows, columns)


def _sides(padding: int | Ints | str, filter_size: Ints, dilation: Ints) -> tuple[int, int, int, int]:
    """(top, bottom, left, right) from any of torch's spellings; "same" puts the odd row at the bottom."""
    if padding == "same":
        totals = [gap * (extent - 1) for gap, extent in zip(dilation, filter_size, strict=True)]
        rows, columns = totals
        return (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    if padding == "valid":
        return (0, 0, 0, 0)
    if isinstance(padding, str):
        raise BadConvolution("padding", where="conv2d", expected='ints, "same" or "valid"', came=repr(padding))
    values = [padding] * 4 if isinstance(padding, int) else list(padding)
    if len(values) == 2:
        values = [values[0], values[0], values[1], values[1]]
    if len(values) != 4:
        raise BadConvolution("padding", where="conv2d", expected="1, 2 or 4 ints", came=values)
    top, bottom, left, right = values
    return (top, bottom, left, right)


known_geometry = lru_cache(maxsize=1024)(geometry_of)
