"""How a forward convolution is cut over a GPU: the choices, what they take, and which of them are legal.

What a configuration implies (shared memory, threads, boxes) is computed here by the formulas of forward.cu.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from ..cost.columns import Number, anywhere, ceil, larger, pick, smaller
from ..cost.gpu import tuned_gpu
from .problem import ConvolutionProblem

KIB = 1024
SERVICE_WARPS, WARPGROUP, LANES = 2, 4, 32
LEFT_REGISTERS = 56  # of loader and storer where they leave some
MAX_BOX = 256  # elements in one direction of a box
MAX_THREADS = 1024
BARRIER_BYTES = 8
REGISTER_LIMIT = 248  # of 255: the compiler wants some room
REGISTER_ROOM = 26  # counters, and what is in flight: beside accumulators, weights, addresses and fragments
PAIRED_ROOM, BLOCK_ROOM = 24, 28  # the same of pairs of channels, and where rows are summed up together
LATE_ROOM = 14  # more of them for each tile where rows leave late
QUAD, PAIRED_UNITS = 4, 8  # columns of a product, units of its rows, of forward_pairs.cu
CELL_ROOM = 8  # the same where a position is more than one output
RESERVED_SHARED = KIB  # of every block, for the driver
Filter = Literal["registers", "staged", "shared"]
# The same on every GPU that the kernels are for.
REGISTERS, THREADS_PER_SM = tuned_gpu().registers_per_sm, tuned_gpu().threads_per_sm


@dataclass(frozen=True)
class ForwardConfiguration:
    """One way to cut a forward convolution (or an input gradient, which is one too).

    A block owns `channels` channels and walks `chunk` rows of cells (of outputs, where a cell is one) at a time of
    `images` images x 8 * `units` columns. A warp computes `tiles` pairs of 8-position units of `octets` x 8 channels.
    `stages` ring slots of `stage_rows` input rows arrive ahead, `out_stages` rows leave behind; `blocks` blocks share a
    multiprocessor. A `dynamic` grid has a block for every chunk, otherwise each resident block takes many. Where rows
    leave `late`, a finished row is rounded and stored while the next one's matrices are on their way, for one more row
    of sums (of pairs: for nothing).

    `filter` says where a warp has its weights: in `registers`, loaded straight from memory; in registers, but `staged`
    through shared memory; or in `shared` memory, a fragment loaded for every product. The last two need groups of 16 or
    32 channels, but for `staged` ones of pairs.

    With `pairs` a warp computes 2 or 4 pairs of neighbouring channels in groups of one or two (forward_pairs.cu), a
    tile is eight units, and `channels` are any octets up to 64; `octets` is 1. Where more than one output row is
    `leaving` at a time, those are summed up together over input rows that stay in the ring (forward_blocks.cu), instead
    of every input row into all output rows it meets; there one or two input rows are loaded `together`.

    A `flat` block owns all channels and all columns: rows come and leave as they lie in memory, each one copy, where
    boxes take long for every position, however few its channels are.
    """

    channels: int = 64
    images: int = 1
    units: int = 8
    tiles: int = 4
    octets: int = 1
    stages: int = 6
    stage_rows: int = 1
    out_stages: int = 2
    blocks: int = 1
    chunk: int = 8
    dynamic: bool = False
    late: bool = False
    filter: Filter = "registers"
    pairs: int = 0
    leaving: int = 1
    together: int = 1
    flat: bool = False

    @property
    def tile_units(self) -> Number:
        """Units of eight columns that make one product's rows."""
        return pick(self.pairs > 0, PAIRED_UNITS, 2)

    @property
    def warp_channels(self) -> Number:
        """Channels that a warp writes."""
        return pick(self.pairs > 0, 2 * self.pairs, 8 * self.octets)

    @property
    def pitch(self) -> Number:
        """Channels from one position to the next in shared memory."""
        return pick(self.flat, self.channels, pitch(self.channels))

    @property
    def warps(self) -> Number:
        """Warps of a block that compute."""
        return self.channels // self.warp_channels * ceil(self.images * self.units / (self.tile_units * self.tiles))


@dataclass(frozen=True)
class Footprint:
    """What a configuration of a problem takes: threads, shared bytes, box extents, and an estimate of registers.

    Each a column where the configuration holds columns, as in all that follows: either all of pairs or none.
    """

    threads: Number
    shared: Number
    box_x: Number
    row_bytes: Number
    registers: Number


def group_block(problem: ConvolutionProblem) -> int:
    """Channels the tensor cores see as one group: narrow groups run side by side, eight channels at a time."""
    return max(8, problem.width)


def footprint(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Footprint:
    """Threads, shared memory and registers of `cut`: the formulas of forward.cu."""
    pixel, box_x = 2 * cut.pitch, _box_x(problem, cut)
    row = cut.images * box_x * pixel
    cell_rows, cell_columns = problem.cell
    ragged = cut.images * cut.units % (cut.tile_units * cut.tiles) > 0
    out = (cut.images * cut.units * cell_rows + ragged) * 8 * cell_columns * pixel
    ring = cut.stages * cut.stage_rows * _up(row, KIB) + cut.out_stages * cut.leaving * _up(out, KIB)
    asked = 2 * ((cut.pairs > 0) & (cut.filter == "staged"))
    barriers = (2 * cut.stages + cut.out_stages * (cut.leaving + 1) + asked) * BARRIER_BYTES
    shared = ring + barriers + pick(cut.filter == "registers", 0, filter_bytes(problem, cut))
    service = pick(trades(problem, cut), WARPGROUP, SERVICE_WARPS)
    return Footprint((cut.warps + service) * 32, shared, box_x, row, _registers(problem, cut))


def pitch(channels: Number) -> Number:
    """Channels from one position of a box of so many to the next, in shared memory: those of the narrowest swizzle that
    has room."""
    return pick(channels > 32, 64, pick(channels > 16, 32, pick(channels > 8, 16, 8)))


def filter_bytes(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """The filter of a block's channels, as it lies in shared memory."""
    if in_pairs(cut):
        return _up(2 * cut.channels * problem.tap_count * problem.width, 16)
    return 2 * cut.channels * problem.tap_count * group_block(problem)


def in_pairs(cut: ForwardConfiguration) -> bool:
    """Whether it is of pairs of channels."""
    return anywhere(cut.pairs > 0)


def _up(size: Number, unit: int) -> Number:
    return ceil(size / unit) * unit


def column_steps(problem: ConvolutionProblem) -> int:
    """Steps of four columns of the input that four neighbouring outputs meet."""
    met = (QUAD - 1) * problem.stride[1] + (problem.s - 1) * problem.dilation[1] + 1
    return -(-met // QUAD)


def _box_x(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    if in_pairs(cut):  # whole steps, so that nothing is read beyond it
        return (cut.units * 8 - QUAD) * problem.stride[1] + QUAD * column_steps(problem)
    return (cut.units * 8 - 1) * problem.stride[1] + (problem.s - 1) * problem.dilation[1] + 1


def _registers(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    cells = prod(problem.cell)
    if in_pairs(cut):
        steps, loaded = column_steps(problem), column_steps(problem) + problem.stride[1]
        rows = pick(cut.leaving > 1, cut.leaving, open_rows(problem))
        sums, weights = rows * cut.tiles * cut.pairs * 4, cut.pairs * problem.r * steps
        addresses, more = 2 * cut.tiles * (1 + min(2, steps)), (cut.together - 1) * loaded * cut.pairs
        room = pick(cut.leaving > 1, BLOCK_ROOM, PAIRED_ROOM + LATE_ROOM * cut.tiles * cut.late)
        return sums + weights + 2 * steps * cut.pairs + more + addresses + room
    accumulators = (open_rows(problem) + cut.late) * cut.tiles * cut.octets * 4 * cells
    tiles, group = pick(cut.images == 1, 1, cut.tiles), group_block(problem)
    # In shared memory: the fragments of one tap and the next, a row's matrices under one column of the window.
    fragments = 5 * cut.octets * (group // 16) + 4 * cut.tiles * (group // 16) + tiles
    steps, weights = problem.s * group // 8, problem.tap_count * group // 8
    gathered = cut.octets * weights + ceil(steps / 2) * tiles + pick(cut.filter == "staged", 8, 0)
    operands = pick(cut.filter == "shared", fragments, gathered)
    room = REGISTER_ROOM + (CELL_ROOM if cells > 1 else 0)
    return accumulators + operands + 2 * cut.tiles * problem.cell[1] + room


def open_rows(problem: ConvolutionProblem) -> int:
    """Rows of cells that an input row adds into: the circle of accumulators."""
    return -(-((problem.r - 1) * problem.dilation[0] + 1) // problem.stride[0])


def copyable(problem: ConvolutionProblem) -> bool:
    """Whether the bulk copy engine can read it: its strides are multiples of 16 bytes."""
    return problem.octets


def legal(problem: ConvolutionProblem, cut: ForwardConfiguration, shared: int) -> Number:
    """Whether forward.cu can be built and launched so: boxes, threads, `shared` bytes a block and registers suffice."""
    taken = footprint(problem, cut)
    most = pick(trades(problem, cut), taken_registers(cut), register_limit(taken.threads, cut.blocks))
    staged_pairs = (cut.pairs > 0) & (cut.filter == "staged")
    return (
        copyable(problem)
        & (cut.channels % (8 * cut.octets) == 0)
        & (cut.channels % group_block(problem) == 0)
        & pick(cut.pairs > 0, cut.channels <= cut.pitch, cut.channels == cut.pitch)
        & (cut.octets <= group_block(problem) // 8)
        & ((cut.filter == "registers") | (problem.width >= 16) | staged_pairs)
        & pick(cut.late, cut.filter != "shared", True)
        & ((cut.pairs == 0) | pairable(problem))
        & pick(cut.leaving == 1, cut.together == 1, _in_blocks(problem, cut))
        & pick(cut.flat, _whole(problem, cut), True)
        & (larger(cut.channels, taken.box_x, cut.images, 8 * cut.units * problem.cell[1]) <= MAX_BOX)
        & (taken.threads <= MAX_THREADS)
        & (taken.threads * cut.blocks <= THREADS_PER_SM)
        & (taken.shared + RESERVED_SHARED <= (shared + RESERVED_SHARED) // cut.blocks)
        & (taken.registers <= most)
    )


def _whole(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """Whether a block has all channels and columns, and its rows lie within theirs: what `flat` ones need."""
    columns = (cut.channels == problem.c) & (8 * cut.units >= problem.q)
    return columns & (cut.pairs == 0) & (problem.padding[2] >= 0) & (problem.padding[2] < _box_x(problem, cut))


def pairable(problem: ConvolutionProblem) -> bool:
    """Whether pairs of neighbouring channels can be computed apart from the others."""
    return problem.narrow and problem.width <= 2 and problem.cell == (1, 1)


def _in_blocks(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """Whether forward_blocks.cu can sum up rows so: what they meet is in the ring, and every input row is met."""
    span = (problem.r - 1) * problem.dilation[0] + 1
    held = (smaller(met_rows(problem, cut), problem.h) <= cut.stages) & (problem.stride[0] <= span)
    each = (cut.stages <= LANES) & (cut.leaving <= LANES) & (cut.together <= 2)  # a lane for each slot, and row
    return (cut.pairs > 0) & pick(cut.late, False, True) & (cut.stage_rows == 1) & held & each


def met_rows(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """Input rows that a block of output rows which are summed up together meets, were all of them there."""
    return (cut.leaving - 1) * problem.stride[0] + (problem.r - 1) * problem.dilation[0] + 1


def trades(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """Whether loader and storer leave registers to the warps that compute: where those want more than an equal share.

    All of them are whole warpgroups then, and the GPU has to be one of sm_90a.
    """
    if not in_pairs(cut):
        return False
    equal = register_limit(32 * (cut.warps + SERVICE_WARPS), cut.blocks)
    return (cut.blocks == 1) & (cut.warps % WARPGROUP == 0) & (_registers(problem, cut) > equal)


def taken_registers(cut: ForwardConfiguration) -> Number:
    """Registers of a computing thread where they are traded.

    Each of the four parts of a multiprocessor has one warp of each warpgroup.
    """
    return traded_registers(larger(1, cut.warps // WARPGROUP), 1, LEFT_REGISTERS)


def traded_registers(groups: Number, blocks: Number, left: int) -> Number:
    """Registers of a thread of `groups` warpgroups of a block that one more leaves all but `left` of its own to."""
    shared_out = (groups + 1) * register_limit(32 * WARPGROUP * (groups + 1), blocks) - left
    return smaller(REGISTER_LIMIT // 8 * 8, shared_out // groups // 8 * 8)


def register_limit(threads: Number, blocks: Number) -> Number:
    """Registers a thread may have: the four parts of a multiprocessor hold equal numbers of warps, and eights."""
    warps = _up(threads // 32 * blocks, 4)
    return smaller(REGISTER_LIMIT, REGISTERS // (warps * 32) // 8 * 8)
