"""How a row of the walked tensor lies in shared memory (wide_rows.cu), and the maps of boxes that bring it.

The copy engine brings a position of an even number of octets of channels in less time than one of an odd number: six
instead of seven, of 128 x 336 x 28, in 20 us instead of 28. Eight neighbouring positions, which are loaded at once,
should touch all banks. Of an even number of octets they do in the engine's swizzle, which there is up to eight; beyond
that, where it is no multiple of four, if the second four of eight positions load the other one of two octets. What is
left lies an odd number of octets apart.
"""

from __future__ import annotations

from typing import Any

from .configuration import pitch
from .launch import View, tensor_map
from .weight_gradient_configuration import SWIZZLE_PERIOD, round_up

MOST_SWIZZLED = 8  # octets of a position, for which there is a swizzle
BOX_LINE = 128  # bytes, whole ones of which a box begins at in shared memory


def swizzled(octets: int) -> bool:
    """Whether positions of so many octets lie in the copy engine's swizzle."""
    return octets % 2 == 0 and octets <= MOST_SWIZZLED


def octets_brought(octets: int) -> int:
    """Octets of a position that come of so many that are wanted."""
    return octets if swizzled(octets) or octets % 4 == 2 else octets | 1


def octets_apart(octets: int) -> int:
    """Octets from one position of so many to the next in shared memory."""
    return int(pitch(8 * octets)) // 8 if swizzled(octets) else octets_brought(octets)


def row_bytes(octets: int, positions: int) -> int:
    """Bytes of a row in shared memory, up to where the next one may begin."""
    return round_up(positions * 16 * octets_apart(octets), SWIZZLE_PERIOD if swizzled(octets) else BOX_LINE)


def walked_map(view: View, box: tuple[int, int, int], octets: int) -> Any:
    """The map of boxes of (images, rows, columns) x so many octets of channels."""
    return (tensor_map if swizzled(octets) else row_map)(view, box, 8 * octets_brought(octets))


def row_map(view: View, box: tuple[int, int, int], channels: int) -> Any:
    """The map of `view` for boxes of (images, rows, columns) x channels, one position right behind the other."""
    return tensor_map(view, box, channels, swizzled=False)
