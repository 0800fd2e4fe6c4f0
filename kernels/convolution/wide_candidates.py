"""The cuts of a sweep worth trying, the best guess first.

The guess counts clocks of the busiest multiprocessor for a row of all its blocks: what memory brings and takes, what
the tensor cores and shared memory do, and the chain of steps of one warpgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from math import ceil
from typing import Protocol, TypeVar

from ..cost.gpu import Gpu, fitted
from .wide_forward import WideConfiguration, WideCut, groups, legal, octets
from .wide_sweep import Sweep


class Ringed(Protocol):
    """A cut with a ring of rows."""

    @property
    def stages(self) -> int: ...


Cut = TypeVar("Cut", bound=Ringed)

MOST = 24
MOST_WARPGROUPS = 4
RINGS = (40 << 10, 72 << 10)  # bytes asked for ahead in one multiprocessor


@dataclass(frozen=True)
class WideFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    row_clocks: float
    line_bytes: float
    start_clocks: float


FIT = fitted(WideFit, "wide_forward")


def configurations(sweep: Sweep, gpu: Gpu) -> list[WideConfiguration]:
    """Legal cuts of a sweep, the analytic best guess first. Empty where the kernel cannot run."""
    return ranked(_all(sweep, gpu), lambda cut: clocks(WideCut(sweep, cut), gpu))


def ranked(cuts: Iterable[Cut], clocks: Callable[[Cut], float]) -> list[Cut]:
    """The cuts guessed to be fastest, best first: of equal ones that with the fewest rows under way from three on."""
    return nsmallest(MOST, dict.fromkeys(cuts), key=lambda cut: (clocks(cut), cut.stages < 3, cut.stages, repr(cut)))


def _all(sweep: Sweep, gpu: Gpu) -> Iterator[WideConfiguration]:
    for blocks in (1, 2, 3, 4):
        for count, parts, shares in _channels(sweep):
            for tiles, images, units in _positions(sweep, MOST_WARPGROUPS // (count * shares)):
                for ring in RINGS:
                    cut = WideConfiguration(count, parts, shares, tiles, images, units, 2, blocks)
                    stages = max(2, min(12, ring // blocks // WideCut(sweep, cut).row_bytes))
                    cut = WideConfiguration(count, parts, shares, tiles, images, units, stages, blocks)
                    if legal(WideCut(sweep, cut), gpu.shared_per_block):
                        yield cut


def _channels(sweep: Sweep) -> Iterator[tuple[int, int, int]]:
    """Groups a block, parts of one, and shares of a part: those that leave no octet over, or few."""
    written = octets(sweep)[1]
    for count in range(1, min(groups(sweep), MOST_WARPGROUPS) + 1):
        yield count, 1, 1
    for parts in range(1, min(written, 8) + 1):
        for shares in range(1, min(MOST_WARPGROUPS, written) + 1):
            own = ceil(written / (parts * shares))
            if parts * shares > 1 and own * parts * shares < written + own:
                yield 1, parts, shares


def _positions(sweep: Sweep, most: int) -> Iterator[tuple[int, int, int]]:
    """Tiles of 64 positions, as images x units of eight columns."""
    whole = ceil(sweep.columns.cells / 8)
    for tiles in range(1, most + 1):
        for units in range(1, 8 * tiles + 1):
            images = 8 * tiles // units
            fits = images * units == 8 * tiles and (images == 1 or units >= whole)
            if fits and units < whole + 8 and images < 2 * max(1, sweep.n):
                yield tiles, images, units


def clocks(cut: WideCut, gpu: Gpu) -> float:
    """Estimated clocks of a launch."""
    sweep, chosen = cut.sweep, cut.configuration
    stretches = cut.stretches(gpu.sms)
    blocks = cut.channel_blocks * stretches
    resident = min(float(chosen.blocks), max(1.0, blocks / gpu.sms))
    waves = ceil(blocks / (gpu.sms * chosen.blocks))
    rows = ceil(cut.line / stretches)
    images = ceil(rows / sweep.rows.cells)
    steps = rows * sweep.rows.stride + images * max(0, min(sweep.rows.before, 1))
    pairs = cut.depth / 2
    products = pairs * sweep.rows.taps / sweep.rows.stride
    tensor = cut.warpgroups * products * 4 * cut.written
    shared = cut.warpgroups * (16 * pairs + products * 2 * cut.written)
    row = FIT.row_clocks / sweep.rows.stride
    bytes_in = chosen.images * min(cut.columns, sweep.columns.inputs) * cut.pitch * 16
    out = chosen.images * min(8 * chosen.units, sweep.columns.cells) * chosen.groups * chosen.shares * cut.written * 16
    per_clock = gpu.copy_bytes_per_s / gpu.sms / gpu.sustained_clock_hz
    lines = 1 + FIT.line_bytes / (16 * cut.pitch)
    memory = (bytes_in + out / sweep.rows.stride) / per_clock * lines
    bounds = (memory * resident, max(tensor, shared) * resident + row, 1.2 * products * 4 * cut.written + 1.5 * row)
    step = max(bounds)
    filter_clocks = cut.filter_bytes / 16 * chosen.blocks / 8
    return FIT.start_clocks + filter_clocks + waves * steps * step
