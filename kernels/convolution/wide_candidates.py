"""The cuts of a sweep worth trying, the best guess first.

The guess counts clocks of the busiest multiprocessor for a row of all its blocks: what memory brings and takes, the
lines that the copy engine makes of that, what the tensor cores and shared memory do, and the chain of steps of one
warpgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import ceil, gcd
from typing import Protocol, TypeVar

from ..cost.gpu import Gpu, fitted
from .wide_forward_configuration import TILE, WideConfiguration, WideCut, groups, images_met, legal
from .wide_rows import octets_brought
from .wide_sweep import Sweep


class Ringed(Protocol):
    """A cut with a ring of rows."""

    @property
    def stages(self) -> int: ...


Cut = TypeVar("Cut", bound=Ringed)

MOST = 24
MOST_WARPGROUPS = 5  # of a block
RINGS = (40 << 10, 72 << 10, 104 << 10)  # bytes asked for ahead in one multiprocessor
FLAT_RING = 72 << 10  # the same of rows that come whole: fewer and more take longer


@dataclass(frozen=True)
class WideFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    row_clocks: float
    leave_clocks: float
    held_clocks: float
    product_clocks: float
    chained: float
    memory: float
    shared: float
    part_bytes: float
    odd_bytes: float
    copy_clocks: float
    box_clocks: float
    packed_clocks: float
    filter_bytes_per_clock: float
    asked_bytes_per_clock: float
    slab_bytes_per_clock: float
    power: float
    start_clocks: float


FIT = fitted(WideFit, "wide_forward")


def configurations(sweep: Sweep, gpu: Gpu, fused: bool = False, whole: bool = True) -> list[WideConfiguration]:
    """Legal cuts of a sweep, the analytic best guess first. Empty where the kernel cannot run.

    `whole`: rows of both tensors are stretches of memory.
    """
    return ranked(all_cuts(sweep, gpu, fused, whole), lambda cut: clocks(WideCut(sweep, cut, whole=whole), gpu))


def ranked(cuts: Iterable[Cut], clocks: Callable[[Cut], float]) -> list[Cut]:
    """The cuts guessed to be fastest, best first: of equal ones that with the fewest rows under way from three on."""
    return nsmallest(MOST, dict.fromkeys(cuts), key=lambda cut: (clocks(cut), cut.stages < 3, cut.stages, repr(cut)))


def all_cuts(sweep: Sweep, gpu: Gpu, fused: bool, whole: bool = False) -> Iterator[WideConfiguration]:
    """Those that are legal and not needless."""
    for blocks in (1, 2, 3, 4):
        for count, parts, shares in _channels(sweep):
            for tiles, images, units in _positions(sweep, MOST_WARPGROUPS // (count * shares)):
                least = WideConfiguration(count, parts, shares, tiles, images, units, 2, blocks)
                for stages in _depths(WideCut(sweep, least, fused, whole=whole), gpu):
                    cut = replace(least, stages=stages)
                    found = WideCut(sweep, cut, fused)
                    if not legal(found, gpu.shared_per_block) or _needless(found, gpu.shared_per_block):
                        break  # nor is any with more rows under way
                    yield cut


def _depths(least: WideCut, gpu: Gpu) -> Iterable[int]:
    """Rows under way that are worth trying: of rows that come whole one number, the most there is room for."""
    rings = [max(2, min(12, ring // least.blocks // least.walked.size)) for ring in (FLAT_RING, *RINGS)]
    if not least.flat:
        return dict.fromkeys(rings[1:])
    deeper = (replace(least, configuration=replace(least.configuration, stages=n)) for n in range(rings[0], 1, -1))
    return [cut.configuration.stages for cut in deeper if cut.flat and legal(cut, gpu.shared_per_block)][:1]


def _needless(cut: WideCut, shared: int) -> bool:
    """Whether a block has one row of the cells of several groups where it could have the cells of two groups whole."""
    chosen = cut.configuration
    if chosen.groups == 1 or chosen.parts == 1:
        return False
    return legal(replace(cut, configuration=replace(chosen, groups=2, parts=1, stages=2)), shared)


def _channels(sweep: Sweep) -> Iterator[tuple[int, int, int]]:
    """Groups a block, parts of one, and shares of a part: those that leave no octet over, or few."""
    written = sweep.octets[1]
    for count in range(1, min(groups(sweep), MOST_WARPGROUPS) + 1):
        yield count, 1, 1
        if count > 1 and sweep.rows.cell > 1:
            yield count, sweep.rows.cell, 1
    for parts in range(1, min(written, 8) + 1):
        for shares in range(1, min(MOST_WARPGROUPS, written) + 1):
            own = ceil(written / (parts * shares))
            if parts * shares > 1 and own * parts * shares < written + own:
                yield 1, parts, shares


def _positions(sweep: Sweep, most: int) -> Iterator[tuple[int, int, int]]:
    """Tiles of 64 positions, as images x units of eight columns; or of images side by side where units would have more
    columns than an image."""
    columns, whole = sweep.columns.cells, ceil(sweep.columns.cells / 8)
    for tiles in range(1, most + 1):
        if columns % 8 or 8 * tiles % whole:
            yield tiles, images_met(columns, TILE * tiles), 0
        for units in range(1, 8 * tiles + 1):
            images = 8 * tiles // units
            fits = images * units == 8 * tiles and (images == 1 or units >= whole)
            if fits and units < whole + 8 and images < 2 * max(1, sweep.n):
                yield tiles, images, units


def clocks(cut: WideCut, gpu: Gpu, fit: WideFit = FIT) -> float:
    """Estimated clocks of a launch."""
    chosen, (stretches, rows) = cut.configuration, cut.stretches(gpu.sms)
    blocks = cut.channel_blocks * stretches
    resident = min(float(chosen.blocks), max(1.0, blocks / gpu.sms))
    waves = ceil(blocks / (gpu.sms * chosen.blocks))
    filters = blocks / gpu.sms * filter_clocks(cut, fit)
    return fit.start_clocks + (filters + waves * rows * row_clocks(cut, resident, gpu, fit))


def filter_clocks(cut: WideCut, fit: WideFit = FIT) -> float:
    """Estimated clocks until a block has its filter."""
    return cut.filter_bytes / _filter_bytes_per_clock(cut, fit)


def row_clocks(cut: WideCut, resident: float, gpu: Gpu, fit: WideFit = FIT) -> float:
    """Estimated clocks of a row of as many blocks as are `resident` on a multiprocessor."""
    leaves = 1 / cut.sweep.rows.stride  # rows finished for one walked
    (_, lines_in), (_, lines_out) = _walked(cut, fit), _left(cut, fit)
    memory = _memory_clocks(cut, gpu, fit)
    copies = (lines_in + leaves * lines_out) * fit.copy_clocks + leaves * _boxes(cut) * fit.box_clocks
    inside = cut.warpgroups * max(_tensor(cut, fit), _shared(cut) * fit.shared)
    leave = fit.held_clocks if cut.deferred else fit.leave_clocks
    leave = leave / cut.leaving + fit.packed_clocks * (cut.packed > 0)
    chain = fit.row_clocks + leaves * leave + fit.chained * _tensor(cut, fit)
    bounds = (memory * resident, copies * resident, inside * resident, chain)
    step: float = sum(bound**fit.power for bound in bounds) ** (1 / fit.power)
    return step


def memory_clocks(cut: WideCut, gpu: Gpu, fit: WideFit = FIT) -> float:
    """Estimated clocks for which memory brings and takes all rows of a sweep."""
    return cut.channel_blocks * cut.line * cut.sweep.rows.stride * _memory_clocks(cut, gpu, fit) / gpu.sms


def _memory_clocks(cut: WideCut, gpu: Gpu, fit: WideFit) -> float:
    """The same of a row that is walked, at a multiprocessor's equal share."""
    per_clock = gpu.copy_bytes_per_s / gpu.sms / gpu.sustained_clock_hz
    (bytes_in, _), (bytes_out, _) = _walked(cut, fit), _left(cut, fit)
    return (bytes_in + bytes_out / cut.sweep.rows.stride) / per_clock * fit.memory


def _filter_bytes_per_clock(cut: WideCut, fit: WideFit) -> float:
    """How fast a filter comes to a multiprocessor: by one copy, in slabs, or octet by octet."""
    if cut.lies is None:
        return fit.filter_bytes_per_clock
    return fit.asked_bytes_per_clock if cut.lies == "beside" else fit.slab_bytes_per_clock


def _tensor(cut: WideCut, fit: WideFit) -> float:
    """Clocks of the tensor cores for a row of a warpgroup."""
    return cut.products / cut.sweep.rows.stride * max(fit.product_clocks, 4 * cut.product_octets)


def _shared(cut: WideCut) -> float:
    """Lines of shared memory that a warpgroup's products and sums go by for a row."""
    line, width = cut.sweep.rows, cut.written
    products = cut.depth / 2 * (16 + line.taps / line.stride * 2 * width)
    pitch = cut.sweep.columns.cell * cut.configuration.groups * cut.outputs
    banks = max(1, gcd(pitch, 8) // 2)  # times that the busiest one is asked for: of an even pitch two octets swap
    staged = 8 * width * (1 + banks) if cut.boxed else 16 * width + 64 * (1 + width / 8)
    return products + staged / line.stride


def _walked(cut: WideCut, fit: WideFit) -> tuple[float, float]:
    """Bytes that a row of a block brings, and lines of 128 that the copy engine makes of them.

    A position of an odd number of octets takes as long as one of more bytes, but where rows come whole.
    """
    positions = cut.walked.inside(cut.sweep.columns.inputs)
    if cut.flat:
        brought = 16.0 * cut.octets_met * positions
        return brought, brought / 128
    octets = octets_brought(cut.octets_met)
    own = 16 * octets
    return positions * (own + octets % 2 * fit.odd_bytes), cut.walked.positions * ceil(own / 128)


def _left(cut: WideCut, fit: WideFit) -> tuple[float, float]:
    """The same of a row that leaves, where a part of a sector counts for more than its bytes."""
    chosen, columns, rows = cut.configuration, cut.sweep.columns, cut.sweep.rows
    positions = cut.packed or chosen.images * min(8 * chosen.units, columns.cells)
    outputs = positions * columns.cell * rows.cell
    if cut.boxed:
        outputs //= chosen.parts
    beside = 1.0 if cut.boxed else float(chosen.groups * chosen.shares)  # that leave on their own
    own = 16 * (chosen.groups * cut.outputs if cut.boxed else min(cut.outputs, cut.written))
    if not cut.boxed and cut.written < cut.sweep.octets[1]:
        beside *= cut.written / (columns.cell * rows.cell) / min(cut.outputs, cut.written)
    if cut.flat and cut.boxed:
        return float(outputs * own), outputs * own / 128
    parts = _parts_of_sectors(own, 16 * groups(cut.sweep) * cut.outputs)
    lines = outputs * ceil(own / 128) if cut.boxed else 0
    return outputs * beside * (own + parts * fit.part_bytes), lines


def _boxes(cut: WideCut) -> int:
    """Boxes that a row of a block leaves in."""
    if not cut.boxed:
        return 0
    if cut.flat:
        return cut.configuration.images * cut.sweep.rows.cell
    return TILE * cut.configuration.tiles // cut.box_positions * cut.pieces


def _parts_of_sectors(own: int, pitch: int) -> float:
    """Sectors of 32 bytes written in part for `own` bytes of a pixel, one `pitch` behind the other: the mean."""
    starts = [(pixel * pitch + block * own) % 32 for pixel in (0, 1) for block in (0, 1)]
    return sum((start % 32 != 0) + ((start + own) % 32 != 0) for start in starts) / len(starts)
