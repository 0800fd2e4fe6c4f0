"""How a sweep over groups of many channels is cut, and what follows for threads, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd
from typing import Literal

from ..cost.gpu import tuned_gpu
from .configuration import MAX_BOX, RESERVED_SHARED
from .stretches import evenest
from .wide_rows import BOX_LINE, Walked, octets_brought
from .wide_slabs import Slabs, slabs
from .wide_sweep import Sweep
from .wide_threads import WARPS_A_GROUP, Warpgroups

Lies = Literal["beside", "in slabs"]
BATCH, SMALL_BATCH = 3, 2  # pairs of octets that are loaded together; and where registers are scarce
# Registers beside accumulators and what is loaded for the next products: the least with which nothing is spilled.
BOXED_ROOM = 32  # where rows leave by the copy engine
REGISTER_ROOM = 40  # where lanes store them
CELL_ROOM = 34  # more where they store cells
FUSED_ROOM, FUSED_OCTET_ROOM = -10, 5  # more where anything is done with the sums: at all, and for each octet
PLACE_ROOM = 6  # more where images lie side by side and leave in boxes
PACKED_ROOM = 20  # the same where anything is done with the sums
HALF_ROOM = 12  # more where the last octet of a filter row stands alone
ALONE_ROOM = 32  # more where lanes store rows of which one is open
OPEN_ROOM, USUAL_OPEN = 4, 3  # more for each open row beyond so many; one more where images lie side by side
APART_ROOM = 5  # more for each open row beyond the first where products are of single outputs of cells
BESIDE_ROOM = 12  # more where the launch has other sweeps; of 128 channels a few are spilled nevertheless
BARRIER_BYTES = 8
LEAST_PRODUCT = 6  # octets of columns, of which a product takes as long as one of fewer
TILE = 64  # positions of a warpgroup
MOST_THAT_MEET = 2  # groups of a block whose warps meet for each row that leaves
BOX_POSITIONS = 16  # of a warp, that leave at once
MOST_MAPS = 16  # of boxes of an output, that a launch takes along
ZEROS_BYTES = 16  # in the place of taps that a filter does not have; of a slab, where goes what belongs nowhere
AFFINE_OCTET = 64  # bytes of scales and biases of eight channels
ROWS_TOGETHER = 2  # that leave of two groups
FEWEST_PRODUCTS = 100  # of a row's, counted in octets of columns, beside which the row before leaves
SLAB_INNER = 8  # octets of inner channels of a slab, from which on it comes sooner than lines of the filter
FEWEST_BANKS = 4  # times that the busiest bank is asked for as rows are staged


@dataclass(frozen=True)
class WideConfiguration:
    """One way to cut a sweep.

    A block owns `groups` groups of channels, or one of `parts` of the octets that one group writes, or one row of the
    cells that several groups write; beside each other `shares` warpgroups divide what a group writes of that, and
    `tiles` warpgroups the positions: 64 each, in `images` images x `units` units of 8 columns. Without units, positions
    are those of all images side by side, of which a block meets so many `images`, the first and last of them in part.
    `stages` input rows are under way; `blocks` blocks share a multiprocessor.
    """

    groups: int
    parts: int
    shares: int
    tiles: int
    images: int
    units: int
    stages: int
    blocks: int


def groups(sweep: Sweep) -> int:
    """Groups as the kernel sees them."""
    return ceil(sweep.groups / sweep.together)


def open_rows(sweep: Sweep) -> int:
    """Output rows that an input row adds into."""
    return ceil(((max(1, sweep.rows.taps) - 1) * sweep.rows.dilation + 1) / sweep.rows.stride)


@dataclass(frozen=True)
class WideCut(Warpgroups):
    """What follows from a sweep and a configuration, by the formulas of wide_forward.cu.

    `fused`: sums are scaled, or anything else is done with them, before they leave. `beside`: other sweeps of the same
    launch have code of their own beside this one's. `whole`: rows of both tensors are stretches of memory, all
    channels of their columns side by side.
    """

    sweep: Sweep
    configuration: WideConfiguration
    fused: bool = False
    beside: bool = False
    whole: bool = False

    @cached_property
    def written(self) -> int:
        """Octets that a warpgroup writes."""
        chosen = self.configuration
        return ceil(self.sweep.octets[1] / (chosen.parts * chosen.shares))

    @property
    def warpgroups(self) -> int:
        chosen = self.configuration
        return chosen.groups * chosen.shares * chosen.tiles

    @property
    def blocks(self) -> int:
        return self.configuration.blocks

    @property
    def packed(self) -> int:
        """Positions of a block where images lie side by side; else 0."""
        return 0 if self.configuration.units else TILE * self.configuration.tiles

    @property
    def met_columns(self) -> int:
        """Positions of a row of an image in a block."""
        return 8 * self.configuration.units or self.sweep.columns.cells

    @cached_property
    def walked(self) -> Walked:
        """An input row, as it lies in the ring."""
        line = self.sweep.columns
        images, taps = self.configuration.images, max(1, line.taps)
        return Walked(self.met_columns, images, self.octets_met, taps, line.stride, line.dilation)

    @property
    def octets_met(self) -> int:
        """Octets of a position that a block reads."""
        return self.configuration.groups * self.sweep.octets[0]

    @cached_property
    def flat(self) -> bool:
        """Whether rows come and leave whole, each image's by one copy, as they lie in memory.

        A block has all channels of all columns then, of which strides skip none. Positions lie as many octets
        apart as they have, an odd number: of an even one boxes are as fast, and need no cut with all channels. Nor
        where the filter takes the ring first, since what lies beside a row is zero from the beginning, nor of images
        side by side, for which it was slower.
        """
        columns = self.sweep.columns
        return (
            self.whole
            and not self.packed
            and self.channel_blocks == self.column_tiles == 1
            and columns.stride == self.walked.parities
            and columns.before >= 0
            and self.octets_met % 2 == 1
            and self.slabs is None
        )

    @cached_property
    def depth(self) -> int:
        """Octets of the product under one filter row."""
        return 2 * ceil(max(1, self.sweep.columns.taps) * self.sweep.octets[0] / 2)

    @property
    def filter_bytes(self) -> int:
        chosen = self.configuration
        return chosen.groups * chosen.shares * max(1, self.sweep.rows.taps) * self.depth * self.written * 128

    @cached_property
    def apart(self) -> bool:
        """Whether a product is of one output of a cell, where a warpgroup has several: those that meet no tap are left
        out, and it takes less time in all."""
        pieces = self.configuration.parts * self.configuration.shares
        if self.written % self.outputs or self.written * pieces != self.sweep.octets[1]:
            return False
        alone, all_ = self._products(self.written // self.outputs), self._products(1)
        return alone * max(LEAST_PRODUCT, self.outputs) < all_ * max(LEAST_PRODUCT, self.written)

    @property
    def product_octets(self) -> int:
        """Octets that a product is of."""
        return self.outputs if self.apart else self.written

    @cached_property
    def products(self) -> int:
        """Products of a position, each two octets deep, under all of the filter."""
        return self._products(self.written // self.product_octets)

    def _products(self, outputs: int) -> int:
        """As many, where each pair of octets has one for so many outputs of a warpgroup; of a single one, always."""
        taps, read = max(1, self.sweep.rows.taps), self.sweep.octets[0]
        if outputs == 1:
            return taps * self.depth // 2
        pairs = [{octet // read for octet in (first, first + 1)} for first in range(0, self.depth, 2)]
        return sum(
            self._met(r, places, output, outputs) for r in range(taps) for places in pairs for output in range(outputs)
        )

    def _met(self, r: int, places: set[int], output: int, outputs: int) -> bool:
        """Whether one of the `outputs` of a warpgroup, in whichever part, meets a tap in row r at one of the places."""
        rows, columns = self.sweep.rows, self.sweep.columns
        for piece in range(self.configuration.parts * self.configuration.shares):
            y, x = divmod(piece * outputs + output, columns.cell)
            met = any(columns.tap(x, s) is not None for s in places if s < columns.taps)
            if met and rows.tap(y, r) is not None:
                return True
        return False

    @cached_property
    def boxed(self) -> bool:
        """Whether finished rows leave by the copy engine, all groups of a block side by side.

        Not where sixteen positions of a warp are no box, or octets of neighbouring ones would lie in too few banks, nor
        of images side by side where boxes have too many numbers of columns. A part of what a group writes is a row of
        its cells.
        """
        chosen, columns = self.configuration, self.met_columns
        tile = self.packed if self._many else BOX_POSITIONS
        pitch = self.sweep.columns.cell * chosen.groups * self.outputs
        return (
            chosen.parts * chosen.shares in (1, self.sweep.rows.cell)
            and (not self.packed or min(columns, tile) // gcd(tile, columns) <= MOST_MAPS)
            and (self._many or chosen.units in (0, 1) or chosen.units % 2 == 0)
            and (not self._many or columns * self.sweep.columns.cell <= MAX_BOX)
            and gcd(pitch, 8) <= FEWEST_BANKS
            and 8 * chosen.groups * self.outputs <= MAX_BOX
        )

    @cached_property
    def outputs(self) -> int:
        """Octets of an output."""
        return self.sweep.octets[1] // (self.sweep.rows.cell * self.sweep.columns.cell)

    @cached_property
    def slabs(self) -> Slabs | None:
        """How the filter comes through the ring of rows, or None where it comes otherwise.

        Not where inner channels are few, for which the copy engine takes as long as for many, and lines of the filter
        have room beside the rest.
        """
        found = slabs(self)
        return found if found and (found.inner >= SLAB_INNER or not self._beside) else None

    @cached_property
    def lies(self) -> Lies | None:
        """How the filter comes before it is put in order: as it lies in memory, by one copy, beside the rest; in slabs;
        or octet by octet."""
        return "in slabs" if self.slabs else "beside" if self._beside else None

    @cached_property
    def _beside(self) -> bool:
        """Whether one copy can bring the filter beside the rest.

        Not for a part of the whole octets that a group writes in an input gradient: there those channels are the
        filter's innermost, and no stretch of memory.
        """
        sweep, parts = self.sweep, self.configuration.parts
        whole = sweep.read % 8 == sweep.written % 8 == 0
        if whole and sweep.transposed and parts not in (1, sweep.rows.cell):
            return False
        return fits(self._shared_bytes + self.lying_bytes, self.blocks, tuned_gpu().shared_per_block)

    @property
    def lying_bytes(self) -> int:
        """Bytes of the filter's lines that a block meets, as they lie in memory: of channels written, or in an input
        gradient of those read."""
        sweep, chosen = self.sweep, self.configuration
        inner = sweep.written if sweep.transposed else sweep.read
        lines = 8 * chosen.groups * (sweep.octets[0] if sweep.transposed else chosen.shares * self.written)
        return 2 * lines * sweep.rows.stored * sweep.columns.stored * inner

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self._shared_bytes + (self.lies == "beside") * self.lying_bytes

    @property
    def least_shared(self) -> int:
        """Bytes that it takes in any case: of the ring and the filter."""
        return self._ring_bytes + self.filter_bytes

    @property
    def _ring_bytes(self) -> int:
        return self.configuration.stages * self.walked.size

    @property
    def _staged_bytes(self) -> int:
        """Of a row, where it is staged before it leaves: where it is boxed, in two places by turns."""
        staged = WARPS_A_GROUP * self.warpgroups * 256 * (2 * self.written if self.boxed else self.written | 1)
        if self.boxed:
            boxes = 1 if self.handed else WARPS_A_GROUP * self.warpgroups // self.configuration.groups
            staged += 2 * BOX_LINE * (self.pieces - 1) * boxes
        return staged

    @property
    def leaving(self) -> int:
        """Rows that leave together: two of two groups, whose warps meet for that half as often then, where there is
        room. Not where they leave beside products or after strides, nor of images side by side: there it was slower,
        or gained little."""
        rows = self.sweep.rows
        meets = self.boxed and not self.handed and self.configuration.groups == 2
        if not meets or rows.stride * rows.cell > 1 or self.packed or self.deferred:
            return 1
        room = self._bytes(ROWS_TOGETHER) + self.lying_bytes
        return ROWS_TOGETHER if fits(room, self.blocks, tuned_gpu().shared_per_block) else 1

    @property
    def _shared_bytes(self) -> int:
        """All but the filter as it lies in memory."""
        return self._bytes(self.leaving)

    def _bytes(self, leaving: int) -> int:
        affine = self.configuration.groups * self.configuration.shares * self.written * AFFINE_OCTET * self.fused
        barriers = 2 * BARRIER_BYTES * (self.configuration.stages + 3) + ZEROS_BYTES
        return self._ring_bytes + self.filter_bytes + leaving * self._staged_bytes + affine + barriers

    @property
    def batch(self) -> int:
        """Pairs of octets that are loaded together."""
        return BATCH if self._registers(BATCH) <= self.taken_registers else SMALL_BATCH

    @cached_property
    def deferred(self) -> bool:
        """Whether finished rows are held, rounded, until the next row is multiplied: where registers suffice.

        Not where boxes leave after strides, of which a row of products finishes half a row, or a cell of two, nor where
        products are so few that what leaves beside them takes as long. Nor where lanes store and a filter has one row:
        such kernels want more registers than are estimated.
        """
        rows, room = self.sweep.rows, 2 * self.written
        products = self.depth // 2 * max(1, rows.taps) * self.written
        fitting = rows.stride * rows.cell == 1 if self.boxed else rows.taps > 1
        if not fitting or products < FEWEST_PRODUCTS:
            return False
        return self._registers(self.batch) + room <= self.taken_registers

    @cached_property
    def registers(self) -> int:
        """An estimate."""
        return self._registers(self.batch) + 2 * self.written * self.deferred

    def _registers(self, batch: int) -> int:
        rows = open_rows(self.sweep)
        least = rows * 4 * self.written + 8 * batch + (BOXED_ROOM if self.boxed else REGISTER_ROOM)
        least += BESIDE_ROOM * self.beside + APART_ROOM * self.apart * (rows - 1)
        least += (OPEN_ROOM + (self.packed > 0)) * max(0, rows - USUAL_OPEN) + ALONE_ROOM * (
            rows == 1 and not self.boxed
        )
        if self.boxed and not self.fused:
            return least + PLACE_ROOM * (self.packed > 0)
        alone = max(1, self.sweep.columns.taps) * self.sweep.octets[0] % 2
        room = FUSED_ROOM + FUSED_OCTET_ROOM * self.written if self.fused else 0
        room += PACKED_ROOM * (self.boxed and self.packed > 0)
        cells = self.sweep.rows.cell * self.sweep.columns.cell > 1
        return least + room + CELL_ROOM * cells + HALF_ROOM * alone

    @property
    def helpers(self) -> int:
        """Warps beside those that multiply: one loads rows, and one stores those that are handed to it."""
        return 2 if self.handed else 1

    @property
    def handed(self) -> bool:
        """Whether a row of a block leaves at once, by a warp of its own.

        Of few groups, warps store what they have, where two that have the same positions meet; but rows of cells of two
        groups were faster so.
        """
        return self.boxed and self._many

    @property
    def _many(self) -> bool:
        """Whether too many warps have the same positions to meet for each row, or rows of cells."""
        chosen = self.configuration
        return chosen.groups > MOST_THAT_MEET or (chosen.groups > 1 and chosen.parts > 1)

    @property
    def box_positions(self) -> int:
        """Positions that leave at once."""
        return TILE * self.configuration.tiles if self.handed else BOX_POSITIONS

    @property
    def pieces(self) -> int:
        """Images that what leaves at once may be of, where images lie side by side."""
        return images_met(self.met_columns, self.box_positions) if self.packed else 1

    @property
    def channel_blocks(self) -> int:
        return ceil(groups(self.sweep) / self.configuration.groups) * self.configuration.parts

    @property
    def column_tiles(self) -> int:
        return ceil(self.sweep.columns.cells / self.met_columns)

    @property
    def line(self) -> int:
        """Rows of all images and column tiles."""
        if self.packed:
            return ceil(self.sweep.n * self.met_columns / self.packed) * self.sweep.rows.cells
        return ceil(self.sweep.n / self.configuration.images) * self.column_tiles * self.sweep.rows.cells

    def stretches(self, sms: int) -> tuple[int, float]:
        """Blocks of the grid that share a block of channels, and the rows that the busiest of them walks."""
        return self.stretches_of(sms * self.configuration.blocks // self.channel_blocks)

    def stretches_of(self, most: int) -> tuple[int, float]:
        """The same where there may be so many of those blocks."""
        rows = self.sweep.rows
        span = (max(1, rows.taps) - 1) * rows.dilation + 1
        return evenest(self.line, rows.cells, max(1, min(self.line, most)), rows.stride, max(0, span - rows.stride))


def fits(bytes_: int, blocks: int, shared: int) -> bool:
    """Whether so many blocks have room on a multiprocessor whose blocks may have `shared` bytes."""
    return bytes_ + RESERVED_SHARED <= (shared + RESERVED_SHARED) // blocks


def images_met(columns: int, positions: int) -> int:
    """Images that a block meets of so many positions of images side by side, each with so many columns."""
    return (columns - gcd(columns, positions) + positions - 1) // columns + 1


def legal(cut: WideCut, shared: int) -> bool:
    """Whether the kernel can be built and launched so: boxes, threads, registers, and `shared` bytes a block."""
    chosen, found = cut.configuration, cut.sweep.octets
    return (
        (chosen.groups == 1 or chosen.parts * chosen.shares == 1 or _rows_of_cells(cut))
        and chosen.parts * chosen.shares <= found[1]
        and (_packs(cut) if cut.packed else chosen.images * chosen.units == 8 * chosen.tiles)
        and (chosen.images == 1 or cut.column_tiles == 1)
        and cut.written <= 32
        and fits(cut.least_shared, chosen.blocks, shared)  # which takes less time to say than what follows
        and max(cut.walked.columns, chosen.images, 8 * octets_brought(cut.octets_met)) <= MAX_BOX
        and cut.threads <= 1024
        and fits(cut.shared, chosen.blocks, shared)
        and (not cut.trades or cut.registers <= cut.taken_registers)
    )


def _packs(cut: WideCut) -> bool:
    """Whether images may lie side by side in a block, and it brings those that it meets."""
    line, rows = cut.sweep.columns, cut.sweep.rows
    return line.cell * rows.cell == 1 and cut.configuration.images == images_met(line.cells, cut.packed)


def _rows_of_cells(cut: WideCut) -> bool:
    """Whether the parts of what groups write are the rows of their cells, which leave in boxes."""
    return cut.boxed and cut.configuration.shares == 1 and cut.configuration.parts == cut.sweep.rows.cell
