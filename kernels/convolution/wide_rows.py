"""How a row of the walked tensor lies in shared memory (wide_rows.cu), and the maps of boxes that bring it.

The copy engine brings a position of an even number of octets of channels in less time than one of an odd number: six
instead of seven, of 128 x 336 x 28, in 20 us instead of 28. Eight neighbouring positions, which are loaded at once,
should touch all banks. Of an even number of octets they do in the engine's swizzle, which there is up to eight; beyond
that, where it is no multiple of four, if the second four of eight positions load the other one of two octets. What is
left lies an odd number of octets apart.

With strides, positions that a tap meets lie `stride` columns apart. So that those are neighbours all the same, columns
are brought by parities: a box for each that a tap meets.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from .configuration import pitch
from .launch import ALL, Every, View, tensor_map
from .weight_gradient_configuration import SWIZZLE_PERIOD, round_up

MOST_SWIZZLED = 8  # octets of a position, for which there is a swizzle
BOX_LINE = 128  # bytes, whole ones of which a box begins at in shared memory
OUTSIDE = 1 << 20  # columns ahead of an image: none is there


@dataclass(frozen=True)
class Walked:
    """A row of the walked tensor under `met` positions of so many images, `octets` of channels each.

    Window column d of position q is column q * stride + d - before, d = tap * dilation; it lies in the box of parity
    d % stride at place q + d // stride.
    """

    met: int
    images: int
    octets: int
    taps: int
    stride: int
    dilation: int

    @property
    def parities(self) -> int:
        """Boxes of a row."""
        return min(self.taps, self.stride // gcd(self.stride, self.dilation))

    @property
    def columns(self) -> int:
        """Columns of one of them."""
        return self.met + (self.taps - 1) * self.dilation // self.stride

    @property
    def positions(self) -> int:
        """Of all of them."""
        return self.parities * self.images * self.columns

    def inside(self, columns: int) -> int:
        """The most positions of it that may lie in images of so many columns."""
        return self.parities * self.images * min(self.columns, -(-columns // self.stride))

    @property
    def size(self) -> int:
        """Bytes of the row in shared memory, up to where the next one may begin."""
        unit = SWIZZLE_PERIOD if swizzled(self.octets) else BOX_LINE
        return self.parities * round_up(self.images * self.columns * 16 * octets_apart(self.octets), unit)

    def maps(self, view: View, before: int) -> tuple[bytes, tuple[int, int]]:
        """(the maps of the boxes, one behind the other; columns of each ahead of the first one of an image)."""
        found, begins = [], [0, 0]
        for parity in range(self.parities):
            first = (parity - before) % self.stride
            begins[parity] = (before + first - parity) // self.stride
            if first >= view.shape[2]:  # one column, and this is the other parity
                first, begins[parity] = 0, OUTSIDE
            columns = view.every(ALL, Every(self.stride, first))
            found.append(walked_map(columns, (self.images, 1, self.columns), self.octets))
        return b"".join(map(bytes, found)), (begins[0], begins[1])


def swizzled(octets: int) -> bool:
    """Whether positions of so many octets lie in the copy engine's swizzle."""
    return octets % 2 == 0 and octets <= MOST_SWIZZLED


def octets_brought(octets: int) -> int:
    """Octets of a position that come of so many that are wanted."""
    return octets if swizzled(octets) or octets % 4 == 2 else octets | 1


def octets_apart(octets: int) -> int:
    """Octets from one position of so many to the next in shared memory."""
    return int(pitch(8 * octets)) // 8 if swizzled(octets) else octets_brought(octets)


def walked_map(view: View, box: tuple[int, int, int], octets: int) -> Any:
    """The map of boxes of (images, rows, columns) x so many octets of channels."""
    return (tensor_map if swizzled(octets) else row_map)(view, box, 8 * octets_brought(octets))


def row_map(view: View, box: tuple[int, int, int], channels: int) -> Any:
    """The map of `view` for boxes of (images, rows, columns) x channels, one position right behind the other."""
    return tensor_map(view, box, channels, swizzled=False)
