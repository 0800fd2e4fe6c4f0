"""How the filter of a sweep over wide groups comes: in slabs, each in a slot of the ring that rows take afterwards.

A slab is a box of the filter in memory, some eights of its outer channels (those written, in an input gradient those
read) under all taps that are met, or under one row of them, with as many inner channels as a block wants. Warps put in
order what has come while the copy engine brings the next slab, and then rows: nothing waits for the whole filter, and
it needs no room but its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from .configuration import MAX_BOX
from .launch import View
from .weight_gradient_configuration import SWIZZLE_PERIOD
from .wide_rows import BOX_LINE, octets_apart, octets_brought, swizzled, walked_map
from .wide_sweep import Line, Sweep

if TYPE_CHECKING:
    from .wide_forward_configuration import WideCut

NOWHERE = 15  # of a tap that no output meets; else its place in the window and, times eight, the output of a cell
CELL_PLACE = 8
MOST_PARTS = 4  # of the cells of a group, of which a block has one


@dataclass(frozen=True)
class Slabs:
    """The slabs of a block's filter, of `units` that follow one another: what warpgroups write, or groups read.

    Each unit has `outer` octets of outer channels; `inner` octets of inner ones are wanted. `taps` are those brought
    (rows, columns), and `room` the bytes of a slot. `alone`: rows of taps come each for itself.
    """

    units: int
    outer: int
    inner: int
    taps: tuple[int, int]
    room: int
    alone: bool = False

    @cached_property
    def rows(self) -> int:
        """Rows of taps of a slab: all where eight outer channels have room under them, or one."""
        return self.taps[0] if self._fitting(self.taps[0]) and not self.alone else 1

    @cached_property
    def octets(self) -> int:
        """Octets of outer channels of a slab: as many as have room, in slabs of one size. 0 where none has."""
        most = min(self.outer, MAX_BOX // 8, self._fitting(self.rows))
        return -(-self.outer // -(-self.outer // most)) if most else 0

    @property
    def along(self) -> int:
        """Slabs of a row of taps of a unit."""
        return -(-self.outer // self.octets)

    @property
    def number(self) -> int:
        return self.units * self.along * (self.taps[0] // self.rows)

    @property
    def box(self) -> tuple[int, int, int]:
        """(rows of taps, columns of taps, outer channels)."""
        return self.rows, self.taps[1], 8 * self.octets

    @property
    def bytes(self) -> int:
        """That a box brings."""
        return prod(self.box) * 16 * octets_brought(self.inner)

    @property
    def unit(self) -> int:
        """Bytes, whole ones of which a slab begins at."""
        return SWIZZLE_PERIOD if swizzled(self.inner) else BOX_LINE

    def _fitting(self, rows: int) -> int:
        """Octets of outer channels under so many rows of taps that have room."""
        ahead = self.unit - BOX_LINE if self.room % self.unit else 0  # of a slab that begins later than its slot
        return (self.room - ahead) // (rows * self.taps[1] * 8 * 16 * octets_apart(self.inner))


def slabs(cut: WideCut) -> Slabs | None:
    """The slabs of a cut's filter, or None where it has to be brought otherwise: channels are no whole octets, no tap
    is met, there is no room, or a block wants little of what would come, having a small part of cells."""
    sweep, chosen = cut.sweep, cut.configuration
    if sweep.empty or sweep.read % 8 or sweep.written % 8:
        return None
    cells = sweep.rows.cell * sweep.columns.cell
    if cells > 1 and chosen.parts > MOST_PARTS:
        return None
    taps = (len(sweep.rows.brought), len(sweep.columns.brought))
    read = sweep.octets[0]
    if not sweep.transposed:
        found = Slabs(chosen.groups * chosen.shares, cut.written, read, taps, cut.walked.size)
    else:
        inner = chosen.shares * cut.written if cells == 1 else cut.outputs
        alone = cells > 1 and chosen.parts > 1  # since a block may meet none of a row's
        found = Slabs(chosen.groups, read, inner, taps, cut.walked.size, alone)
    return found if found.octets else None


def filter_map(sweep: Sweep, found: Slabs, pointer: int) -> Any:
    """The map of the slabs of a filter that lies at `pointer`."""
    inner, outer = (sweep.written, sweep.read) if sweep.transposed else (sweep.read, sweep.written)
    rows, columns = sweep.rows.brought, sweep.columns.brought
    row, outer_step = sweep.columns.stored * inner, sweep.rows.stored * sweep.columns.stored * inner
    first = pointer + 2 * (rows.start * row + columns.start * inner)
    shape = (len(rows), len(columns), sweep.groups * outer, inner)
    view = View(first, shape, (rows.step * row, columns.step * inner, outer_step), sweep.dtype)
    return walked_map(view, found.box, found.inner)


def places(line: Line, taps: range) -> int:
    """Where taps belong, four bits each, the first the least: their place in the window and the output of a cell."""
    met = {line.tap(output, place): (place, output) for output in range(line.cell) for place in range(line.taps)}
    found = [met.get(tap) for tap in taps]
    return sum((place[0] + CELL_PLACE * place[1] if place else NOWHERE) << 4 * i for i, place in enumerate(found))
