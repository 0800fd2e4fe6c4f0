"""The configurations worth trying for a problem, the best guess first.

The guess counts, for the busiest multiprocessor, the rows it walks, and for each the longer of what memory and the
tensor cores need; a quarter of the shorter is taken not to overlap. Before the first row the weights have to be there.
Its constants are those of `ForwardFit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from math import prod

from ..cost.columns import Number, ceil, columns, larger, pick, rows, smaller, stacked, where
from ..cost.gpu import Gpu, fitted, tuned_gpu
from .configuration import (
    BARRIER_BYTES,
    RESERVED_SHARED,
    SERVICE_WARPS,
    Filter,
    ForwardConfiguration,
    filter_bytes,
    footprint,
    group_block,
    legal,
    open_rows,
)
from .problem import ConvolutionProblem

MOST = 40
LATE_PRODUCTS = 30  # of a warp and row: with more of them (5 x 5, four tiles) rows that leave late gained nothing
ROW_BYTES = (1024, 2048, 4096, 8192, 16384)  # of the input rows one step brings, about
RINGS = (56 * 1024, 100 * 1024)  # bytes asked for ahead in one multiprocessor, where as much is written as read
# Channels of tensors whose rows are copied whole, and what that takes of the time by boxes, of which a part is empty or
# which have few bytes a position: the means of 79 passes of timm's layers. 40 to 56 and 80 to 96 gained little.
FLAT_SHARE = {16: 0.88, 24: 0.70, 72: 0.75}
FLAT_TAPS, FLAT_TAPS_CLOSE = 5, 3  # of a filter, at most, with strides and without: else pairs of channels are faster
FLAT_SHORT, FLAT_TAPS_SHORT, FLAT_COLUMNS = 16, 3, 100  # of so few channels short rows and long filters gained nothing
FLAT_BYTES, FLAT_BLOCKS = 15e6, 2  # that are moved, at least; blocks of a multiprocessor that were fastest
DEEP = 72 * 1024  # from here on more bytes in flight disturb the order in which memory is swept


@dataclass(frozen=True)
class ForwardFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    memory_bytes_per_ns: float
    latency_ns: float
    chain_clocks: float
    stage_clocks: float
    product_clocks: float
    start_ns: float
    gather_clocks: float
    fill_bytes_per_clock: float
    fragment_clocks: float


FIT = fitted(ForwardFit, "forward")
CLOCKS_PER_NS = tuned_gpu().sustained_clock_hz / 1e9


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[ForwardConfiguration]:
    """Legal configurations of forward.cu, at most forty, the analytic best guess first. Empty where it cannot run."""
    if not problem.narrow:
        return []
    cuts = _all(problem, gpu.sms, gpu.shared_per_block, list(_shapes(problem)))
    return ranked(cuts, lambda cuts: guess(problem, cuts, gpu.sms), MOST)


def gains_flat(problem: ConvolutionProblem) -> bool:
    """Whether rows that are copied whole are the faster ones, wherever rows are stretches of memory."""
    few = problem.c in FLAT_SHARE and problem.narrow and problem.width <= 8
    if not few or problem.bytes_moved < FLAT_BYTES:
        return False
    taps = max(problem.taps or (problem.r, problem.s))
    if problem.c <= FLAT_SHORT:
        return taps <= FLAT_TAPS_SHORT and max(problem.w, problem.q * problem.cell[1]) >= FLAT_COLUMNS
    return taps <= (FLAT_TAPS_CLOSE if problem.stride == problem.cell == (1, 1) else FLAT_TAPS)


def flat_configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[ForwardConfiguration]:
    """Legal ones whose rows are copied whole, two blocks a multiprocessor first; none where those gain nothing.

    With several images a block they were slower.
    """
    if not gains_flat(problem):
        return []
    units = ceil(problem.q / 8)
    shapes = [ForwardConfiguration(problem.c, 1, units, tiles, flat=True) for tiles in (1, 2, 4) if tiles <= units]
    found = ranked(
        _all(problem, gpu.sms, gpu.shared_per_block, shapes), lambda cuts: guess(problem, cuts, gpu.sms), MOST
    )
    return sorted(found, key=lambda cut: cut.blocks != FLAT_BLOCKS)


def ranked(
    cuts: ForwardConfiguration, guess: Callable[[ForwardConfiguration], Number], most: int
) -> list[ForwardConfiguration]:
    """So many of the cuts in columns, those guessed to be fastest first, equal ones in the order of what they are."""
    guessed = dict(zip(rows(cuts), guess(cuts).tolist(), strict=True))
    last = max(nsmallest(most, guessed.values()), default=0.0)
    near = {ForwardConfiguration(*row): ns for row, ns in guessed.items() if ns <= last}
    return sorted(near, key=lambda cut: (near[cut], repr(cut)))[:most]


def _all(problem: ConvolutionProblem, sms: int, shared: int, given: list[ForwardConfiguration]) -> ForwardConfiguration:
    """Legal ones of some shapes, as columns."""
    shapes = columns(given)
    rings = [(blocks, stages) for blocks in (1, 2, 3) for stages in _stages(problem, shapes, blocks, shared)]
    cuts = stacked([replace(shapes, stages=stages, blocks=blocks) for blocks, stages in rings])
    late = replace(cuts, late=_chain_bound(problem, cuts))
    cuts = replace(cuts, late=late.late & legal(problem, late, shared))
    cuts = where(cuts, legal(problem, cuts, shared))  # the chunk does not matter for that
    return stacked([replace(cuts, chunk=chunk) for chunk in _chunks(problem, cuts, sms)])


def _chain_bound(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """Whether a warp has so few products a row that the steps behind them are worth overlapping."""
    return cut.tiles * cut.octets * _products(problem) <= LATE_PRODUCTS * problem.stride[0]


def _products(problem: ConvolutionProblem) -> float:
    """Products of an octet of output channels and a tile with all taps."""
    return problem.tap_count / problem.s * _pairs(problem)


def _pairs(problem: ConvolutionProblem) -> int:
    """Those of one row of the window."""
    return (problem.s * group_block(problem) // 8 + 1) // 2


def _stages(problem: ConvolutionProblem, shape: ForwardConfiguration, blocks: int, shared: int) -> list[Number]:
    """Rows in the ring: what is to be under way; beside a filter in shared memory as many as there is room for."""
    row = ceil(footprint(problem, shape).row_bytes / 1024) * 1024
    written = (1 + prod(problem.cell)) // 2
    stages = [smaller(16, larger(2, ring // blocks // row // written)) for ring in RINGS]
    taken = footprint(problem, replace(shape, stages=0)).shared
    room = (shared + RESERVED_SHARED) // blocks - RESERVED_SHARED - taken
    fitting = [larger(2, smaller(wanted, room // (row + 2 * BARRIER_BYTES))) for wanted in stages]
    return [pick(shape.filter == "registers", *options) for options in zip(stages, fitting, strict=True)]


def _shapes(problem: ConvolutionProblem) -> Iterator[ForwardConfiguration]:
    """Channels, images and columns of a block, what of it a warp computes, and where the weights are."""
    for channels in _channel_blocks(problem):
        for units in _column_tiles(problem):
            for images in _image_blocks(problem, channels, units):
                for filter_place, octets, tiles in _shares(group_block(problem)):
                    if tiles == 1 or images * units > tiles:
                        yield ForwardConfiguration(channels, images, units, tiles, octets, filter=filter_place)


def _shares(group: int) -> Iterator[tuple[Filter, int, int]]:
    """Where a warp has its weights, octets and tiles that it computes: more where weights take no registers."""
    for octets in (1, 2) if group > 8 else (1,):
        for tiles in (1, 2, 4):
            yield "registers", octets, tiles
            if group > 8:
                yield "staged", octets, tiles
    for octets in (1, 2, 4) if group > 8 else ():
        for tiles in (1, 2, 3, 4):
            if 8 * octets <= group:
                yield "shared", octets, tiles


def _channel_blocks(problem: ConvolutionProblem) -> list[int]:
    widest = max(group_block(problem), min(64, 1 << (problem.c - 1).bit_length()))
    return [block for block in (widest, widest // 2) if block >= group_block(problem)]


def _column_tiles(problem: ConvolutionProblem) -> list[int]:
    """Columns in units of eight: the whole row where a box can bring it, or equal parts of it."""
    whole = ceil(problem.q / 8)
    widest = (256 - (problem.s - 1) * problem.dilation[1] - 1) // problem.stride[1] // 8
    return sorted({ceil(whole / ceil(whole / most)) for most in (4, 8, min(16, widest))})


def _image_blocks(problem: ConvolutionProblem, channels: int, units: int) -> list[int]:
    row = channels * 16 * units
    return sorted({min(problem.n, max(1, size // row)) for size in ROW_BYTES})


def _chunks(problem: ConvolutionProblem, shape: ForwardConfiguration, sms: int) -> list[Number]:
    """Rows a block walks at a time: few, an image, or all that one block of the grid has to do."""
    line = ceil(problem.n / shape.images) * ceil(problem.q / (8 * shape.units)) * problem.p
    share = ceil(line / larger(1, sms * shape.blocks // ceil(problem.c / shape.channels)))
    return [*(smaller(chunk, share) for chunk in (4, 8, 16, problem.p)), share]


def guess(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> Number:
    """Estimated ns of a launch; of many, where `cut` holds columns."""
    walk = walked(problem, cut, sms)
    memory, compute = memory_ns(problem, cut, sms, walk.blocks), _compute(problem, cut, walk.useful)
    ready = FIT.start_ns + larger(FIT.latency_ns, filter_ns(problem, cut))
    return ready + walk.steps * (larger(memory, compute) + 0.25 * smaller(memory, compute))


@dataclass(frozen=True)
class Walk:
    """Input rows that the busiest block walks, blocks at work, and the share of those rows that begin an output row."""

    steps: Number
    blocks: Number
    useful: Number


def walked(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> Walk:
    channel_blocks = ceil(problem.c / cut.channels)
    line = ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.units)) * problem.p
    chunks = ceil(line / cut.chunk) * channel_blocks
    slots = sms * cut.blocks
    even = slots // channel_blocks * channel_blocks
    blocks = smaller(chunks, pick(20 * even >= 19 * slots, even, slots))
    rows = ceil(chunks / blocks) * cut.chunk * problem.stride[0]
    halo = (open_rows(problem) - 1) * problem.stride[0]
    runs = ceil(chunks / blocks) * larger(1, ceil(cut.chunk / problem.p))
    inside = min(1.0, problem.h / max(1, problem.p * problem.stride[0]))
    steps = rows * inside + runs * halo * pick(cut.chunk < problem.p, 1, 0.1)
    return Walk(steps, blocks, smaller(1.0, rows / steps))


def filter_ns(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """ns until the weights of all blocks of a multiprocessor are there."""
    filled = 0.6 * FIT.latency_ns + filter_bytes(problem, cut) * cut.blocks / FIT.fill_bytes_per_clock / CLOCKS_PER_NS
    registers = cut.octets * problem.tap_count * group_block(problem) // 8
    gathered = registers * _warps(problem, cut) * cut.blocks * FIT.gather_clocks / CLOCKS_PER_NS
    return pick(cut.filter == "registers", gathered, filled)


def _warps(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    return footprint(problem, cut).threads // 32 - SERVICE_WARPS


def memory_ns(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int, active: Number) -> Number:
    """ns that one step's bytes take: the share of a multiprocessor, or what is asked for ahead over the latency."""
    row = footprint(problem, cut).row_bytes
    out = cut.images * smaller(problem.q, 8 * cut.units) * cut.channels * 2 * prod(problem.cell) / problem.stride[0]
    busy = ceil(active / sms)
    disturbed = pick(busy * cut.stages * row > DEEP, 0.96, 1.0)
    rate = FIT.memory_bytes_per_ns * disturbed * smaller(2.0, larger(1.0, sms / active))
    return larger((row + out) * busy / rate, FIT.latency_ns / (cut.stages - 1))


def _compute(problem: ConvolutionProblem, cut: ForwardConfiguration, useful: Number) -> Number:
    """ns of one step: the dependent chain of a warp, or all products of the multiprocessor."""
    products = cut.tiles * cut.octets * _products(problem) / problem.stride[0] * FIT.product_clocks
    chain = FIT.chain_clocks + FIT.stage_clocks * cut.tiles * cut.octets * (prod(problem.cell) - 1)
    warps = _warps(problem, cut) * cut.blocks
    gathered = larger(chain + products, products * warps / 4) / CLOCKS_PER_NS
    # Rows beyond a run cost nothing; every fragment passes through shared memory, an 8 x 8 matrix a clock.
    products = products * useful
    fragments = cut.octets * _products(problem) * useful / problem.stride[0]
    matrices = 2 * fragments + 4 * cut.tiles * _pairs(problem)
    chain = chain + (problem.s * FIT.fragment_clocks + products)
    shared = larger(chain, products * ceil(warps / 4), matrices * warps) / CLOCKS_PER_NS
    return pick(cut.filter == "shared", shared, gathered)
