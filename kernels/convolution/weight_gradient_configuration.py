"""How a weight gradient is cut into work: the choices `weight_gradient.cu` is compiled with, and which are legal.

All of it is integer arithmetic on the problem and the GPU's limits; nothing here needs a GPU.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cost.columns import Number, ceil, columns, each, in_columns, larger, pick, rows, smaller, stacked, where
from ..cost.gpu import Gpu, fitted, tuned_gpu
from . import direct_weight_gradient
from .problem import ConvolutionProblem

UNIT = 8  # positions of a matrix, channels of a 16-byte chunk
BOX_LIMIT = 256  # elements of a tensor map's box along one dimension
SWIZZLE_PERIOD = 1024  # bytes
STATIC_SHARED = 1024  # barriers, then alignment of the ring
FEWEST_STAGES, MOST_STAGES = 3, 16
RINGS = (64 << 10, 100 << 10)  # bytes under way on a multiprocessor: more makes the first of them late
MOST_UNITS = 16
MOST_THREADS = 1024
LOADERS = 2  # warps that load
MOST_PARTS = 4  # of a filter
MOST_RANKS = 8  # blocks of a cluster on every GPU that has clusters
FEW_ROWS = 16  # of a split: one launch for all of it is soon at an end
QUADRUPLE_BYTES, LANES = 16, 32
# The same on every GPU that the kernels are for.
REGISTER_FILE, WARP_SLOTS = tuned_gpu().registers_per_sm, tuned_gpu().threads_per_sm // LANES


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not below `value`.

    >>> round_up(66, 8), round_up(64, 8)
    (72, 64)
    """
    return -(-value // multiple) * multiple


@dataclass(frozen=True, order=True)
class WeightGradientConfiguration:
    """The cut of one weight gradient; all plain integers.

    A block of threads owns `channel_block` channels and a range of output rows, one of `splits`; a stage of its ring of
    `stages` is one row of `images` images and `8 * units` output columns. `share` warps deal the 16-position steps of a
    channel chunk among themselves; a warp multiplies one chunk of x by `out_blocks` chunks of dy. A long filter is cut
    into `row_parts` that read the tensors each for itself. `residents` blocks fit on a multiprocessor. `channel_block`
    0 is the plain kernel, for tensors the copy engine cannot read. Where the splits add `together`, few of them, there
    is no second launch and no workspace.
    """

    channel_block: int
    row_parts: int
    units: int
    images: int
    out_blocks: int
    share: int
    stages: int
    residents: int
    splits: int
    together: bool = False

    @property
    def direct(self) -> bool:
        return self.channel_block == 0


@dataclass(frozen=True)
class Cut:
    """What follows from a problem and a configuration: boxes, work, shared memory, registers (an estimate)."""

    problem: ConvolutionProblem
    configuration: WeightGradientConfiguration

    @property
    def x_columns(self) -> Number:
        """Columns of x under a tile. With several images each must begin alike under the swizzle."""
        problem, chosen = self.problem, self.configuration
        least = (UNIT * chosen.units - 1) * problem.stride[1] + (problem.s - 1) * problem.dilation[1] + 1
        return pick(chosen.images > 1, round_up(least, UNIT), least)

    @property
    def x_bytes(self) -> Number:
        return self.configuration.images * self.x_columns * 2 * self.configuration.channel_block

    @property
    def dy_bytes(self) -> Number:
        chosen = self.configuration
        return chosen.images * UNIT * chosen.units * 2 * chosen.channel_block

    @property
    def stage_bytes(self) -> Number:
        return round_up(self.x_bytes, SWIZZLE_PERIOD) + round_up(self.dy_bytes, SWIZZLE_PERIOD)

    @property
    def shared_bytes(self) -> Number:
        """Dynamic shared memory of one block: the ring and, in its place where that disturbs nobody, the exchange."""
        chosen = self.configuration
        ring, exchange = chosen.stages * self.stage_bytes, self.exchanged * LANES * QUADRUPLE_BYTES
        return pick(chosen.together & (chosen.splits > 1), ring + exchange, larger(ring, exchange))

    @property
    def exchanged(self) -> Number:
        """Fragments that a block keeps for others to add, or to add."""
        chosen = self.configuration
        apart = pick(chosen.share > 1, self.consumers * self.fragments, 0)
        return pick(chosen.together, chosen.splits * chosen.share * self.turns, apart)

    @property
    def turns(self) -> Number:
        """Fragments that one rank of a cluster adds."""
        chosen = self.configuration
        return -(-self.consumers // chosen.share * self.fragments // chosen.splits)

    @property
    def chunks(self) -> Number:
        return self.configuration.channel_block // UNIT

    @property
    def group_chunks(self) -> int:
        return max(1, self.problem.width // UNIT)

    @property
    def consumers(self) -> Number:
        """Warps that multiply; two more load."""
        chosen = self.configuration
        return self.chunks * (self.group_chunks // chosen.out_blocks) * chosen.share

    @property
    def threads(self) -> Number:
        return 32 * (self.consumers + LOADERS)

    @property
    def own_steps(self) -> Number:
        """16-position steps of a warp in one stage."""
        chosen = self.configuration
        return chosen.images * chosen.units // (2 * chosen.share)

    @property
    def filter_rows(self) -> Number:
        """Rows of the filter that a block of threads sums up."""
        return -(-self.problem.r // self.configuration.row_parts)

    @property
    def tap_pairs(self) -> int:
        return -(-self.problem.s // 2)

    @property
    def fragments(self) -> Number:
        """Sums of 16 x 8 that a warp keeps."""
        return self.configuration.out_blocks * self.filter_rows * self.tap_pairs

    @property
    def held_rows(self) -> Number:
        """Rows of dy that a warp keeps in registers."""
        return (self.filter_rows - 1) * self.problem.dilation[0] // self.problem.stride[0] + 1

    @property
    def registers(self) -> Number:
        """An upper estimate of the registers of a multiplying thread."""
        chosen = self.configuration
        held = 2 * self.held_rows * self.own_steps * chosen.out_blocks
        walking = 4 * self.fragments + held + 2 * self.tap_pairs + chosen.out_blocks + 33
        adding = pick(chosen.together, 4 * smaller(8, chosen.splits * chosen.share) + 20, 0)
        return larger(walking, adding)

    @property
    def register_limit(self) -> Number:
        """What the compiler may use: warps come in fours, registers in eights."""
        slots = round_up(self.consumers + LOADERS, 4) * self.configuration.residents
        return smaller(255, REGISTER_FILE // 32 // slots // 8 * 8)

    @property
    def channel_blocks(self) -> Number:
        return -(-self.problem.c // self.configuration.channel_block)

    @property
    def image_blocks(self) -> Number:
        return -(-self.problem.n // self.configuration.images)

    @property
    def column_tiles(self) -> Number:
        return -(-self.problem.q // (UNIT * self.configuration.units))

    @property
    def work(self) -> Number:
        """Output rows of all images and tiles of a channel block that meet the input: what the splits share."""
        return self.image_blocks * self.column_tiles * len(live_rows(self.problem))

    @property
    def quadruples(self) -> Number:
        """128-bit values that one split leaves."""
        chosen = self.configuration
        return chosen.row_parts * self.channel_blocks * (self.consumers // chosen.share) * self.fragments * LANES

    def x_position(self, step: int) -> int:
        """First column of a 16-position step in the rows of x of a stage."""
        return _x_position(step, self.configuration.units, self.x_columns, UNIT * self.problem.stride[1])

    @property
    def evenly_dealt(self) -> Number:
        """Every warp of a share sees its steps at the same distances."""
        chosen, unit = self.configuration, UNIT * self.problem.stride[1]
        return each(_evenly_dealt, chosen.share, self.own_steps, chosen.units, self.x_columns, unit)


def _x_position(step: int, units: int, x_columns: int, unit: int) -> int:
    image, column = divmod(2 * step, units)
    return image * x_columns + column * unit


@functools.lru_cache(maxsize=4096)
def _evenly_dealt(share: int, own: int, *place: int) -> bool:
    """Whether `share` warps of `own` steps see them at the same distances: `place` are the others of `_x_position`."""
    return all(
        _x_position(start + step, *place) == _x_position(start, *place) + _x_position(step, *place)
        for start in range(0, share * own, max(1, own))
        for step in range(own)
    )


def reads_by_copy_engine(problem: ConvolutionProblem) -> bool:
    """Whether a position is a multiple of 16 bytes, which a tensor map asks of every stride, and groups are narrow."""
    return problem.c % UNIT == 0 and problem.narrow


def live_rows(problem: ConvolutionProblem) -> range:
    """The output rows whose window meets a row of x, and those between them.

    >>> live_rows(ConvolutionProblem(1, 4, 4, 8, 1, 3, 3, padding=(7, 7, 1, 1)))
    range(5, 11)
    """
    top, stride = problem.padding[0], problem.stride[0]
    reach = (problem.r - 1) * problem.dilation[0]
    first = max(0, -(-(top - reach) // stride))
    last = min(problem.p - 1, (problem.h - 1 + top) // stride)
    return range(first, max(first, last + 1))


@functools.lru_cache(maxsize=4096)
def configurations(problem: ConvolutionProblem, gpu: Gpu) -> tuple[WeightGradientConfiguration, ...]:
    """All legal configurations of a problem on a GPU, best guess first.

    The order is that of `estimate`, then of the numbers themselves: the same everywhere. Never empty: the plain kernel
    is legal for every problem.
    """
    found = _by_copy_engine(problem, gpu.sms, gpu.shared_per_block) if reads_by_copy_engine(problem) else []
    if found:
        seconds = estimate(problem, columns(found), gpu.sms).tolist()
        found = [chosen for _, chosen in sorted(zip(seconds, found, strict=True))]
    return (*found, plain(problem, gpu.sms))


def plain(problem: ConvolutionProblem, sms: int) -> WeightGradientConfiguration:
    """The plain kernel, which every problem can have."""
    splits = direct_weight_gradient.splits(problem, sms)
    return WeightGradientConfiguration(0, 1, 0, 0, 0, 0, 0, 0, splits, together=splits == 1)


def _by_copy_engine(problem: ConvolutionProblem, sms: int, shared: int) -> list[WeightGradientConfiguration]:
    """Legal ones: shapes with rings, and of these some with splits that are added later, some that add together."""
    shapes = in_columns(WeightGradientConfiguration, list(_shapes(problem)))
    shapes = where(shapes, _launchable(Cut(problem, shapes)))
    ringed = stacked([replace(shapes, stages=stages) for stages in _stages(Cut(problem, shapes))])
    cut = Cut(problem, ringed)
    options = stacked(
        [replace(ringed, splits=splits) for splits in _splits(cut, sms)]
        + [replace(ringed, splits=ranks, together=True) for ranks in _ranks(cut, sms)]
    )
    options = where(options, np.greater(options.splits, 0))
    options = where(options, legal(Cut(problem, options), shared))
    return [WeightGradientConfiguration(*values) for values in dict.fromkeys(rows(options))]


def _shapes(problem: ConvolutionProblem) -> Iterator[tuple[Any, ...]]:
    """The fields of configurations that have no rings and splits yet."""
    outs = _divisors(max(1, problem.width // UNIT))
    for block, (units, images) in itertools.product(_channel_blocks(problem), _tiles(problem)):
        for parts, out_blocks, share, residents in itertools.product(_row_parts(problem), outs, (1, 2, 4), (1, 2)):
            yield block, parts, units, images, out_blocks, share, 1, residents, 1, False


def _channel_blocks(problem: ConvolutionProblem) -> Iterator[int]:
    """64, 32, 16, 8 channels: whole groups, and at most one block that is not full."""
    for block in (64, 32, 16, 8):
        if block >= problem.width and (block == max(8, problem.width) or block < 2 * problem.c):
            yield block


def _tiles(problem: ConvolutionProblem) -> Iterator[tuple[int, int]]:
    """Units of 8 columns and images of a tile."""
    units = -(-problem.q // UNIT)
    seen = set()
    for tiles in range(1, units + 1):
        size = -(-units // tiles)
        size = round_up(size, 2) if size > 1 or units > 1 else 1
        if size > MOST_UNITS or size in seen:
            continue
        seen.add(size)
        most = MOST_UNITS // size if size >= units else 1
        images = 1 if size > 1 else 2
        while images <= most and (images < 2 * problem.n or images == 2):
            yield size, images
            images *= 2


def _row_parts(problem: ConvolutionProblem) -> list[int]:
    """Whole filters, and for wide groups of long ones, whose sums would not fit, parts: none without a row."""
    if problem.width < 32 and problem.r * problem.s * problem.width < 600:
        return [1]
    return sorted({parts for rows in range(1, problem.r + 1) if (parts := -(-problem.r // rows)) <= MOST_PARTS})


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _ranks(cut: Cut, sms: int) -> list[Number]:
    """Splits that add together, where they occupy half of the GPU or have few rows each; 0 where they do not."""
    blocks = cut.channel_blocks * cut.configuration.row_parts
    found = []
    for ranks in (1, 2, 4, MOST_RANKS):
        few = (2 * blocks * ranks >= sms) | (cut.work <= FEW_ROWS * ranks)
        found.append(pick((ranks <= larger(1, cut.work)) & few, ranks, 0))
    return found


def legal(cut: Cut, shared: int) -> Number:
    """Whether the kernels can be built and launched: even shares, boxes, threads, registers, `shared` bytes a block."""
    chosen = cut.configuration
    # The system keeps 1 KiB of each of several.
    room = shared // chosen.residents - STATIC_SHARED - pick(chosen.residents > 1, 1024, 0)
    return (
        _launchable(cut)
        & pick(chosen.together, chosen.splits <= MOST_RANKS, True)
        & (chosen.stages >= FEWEST_STAGES)
        & (chosen.stages <= MOST_STAGES)
        & (cut.shared_bytes <= room)
        & (cut.registers <= cut.register_limit)
    )


def _launchable(cut: Cut) -> Number:
    """The same as far as rings and splits do not matter."""
    chosen = cut.configuration
    warps = round_up(cut.consumers + LOADERS, 4) * chosen.residents
    return (
        (chosen.images * chosen.units % (2 * chosen.share) == 0)
        & cut.evenly_dealt
        & (cut.x_columns <= BOX_LIMIT)
        & (warps <= WARP_SLOTS)
        & (cut.threads <= MOST_THREADS)
    )


def _stages(cut: Cut) -> list[Number]:
    """Stages for so many bytes under way on a multiprocessor, for each of `RINGS`."""
    room = [ring // cut.configuration.residents // cut.stage_bytes for ring in RINGS]
    return [larger(FEWEST_STAGES, smaller(MOST_STAGES, stages)) for stages in room]


def _splits(cut: Cut, sms: int) -> list[Number]:
    """Splits that fill one or two waves of the places on the GPU."""
    work, places = larger(1, cut.work), sms * cut.configuration.residents
    blocks = cut.channel_blocks * cut.configuration.row_parts
    return [smaller(work, larger(1, waves * places // blocks)) for waves in (1, 2)]


@dataclass(frozen=True)
class WeightGradientFit:
    """The constants of the estimate; `data/gpus.json` says what each is and where it comes from."""

    launch_s: float
    second_launch_s: float
    cluster_s: float
    bytes_per_s: float
    fold_bytes_per_s: float
    fill: float
    mma_clocks: float
    lone_warps: float
    matrix_clocks: float
    position_clocks: float
    step_clocks: float
    overlap: float
    sector_bytes: int


FIT, CLOCK = fitted(WeightGradientFit, "weight_gradient"), tuned_gpu().sustained_clock_hz


def estimate(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, sms: int) -> Number:
    """Seconds a configuration should take, by counting bytes, products, matrices and waits; for the order of trying.

    Of many, where `chosen` holds columns.
    """
    cut, work = Cut(problem, chosen), _work_of_a_split(problem, chosen)
    blocks = cut.channel_blocks * chosen.row_parts * chosen.splits
    residents = larger(1.0, smaller(chosen.residents, blocks / sms))
    memory = work.bytes * smaller(sms * residents, blocks) / FIT.bytes_per_s
    clocks = (work.steps * residents * _stage_clocks(cut), work.steps * FIT.step_clocks)
    parts = (memory, *(count / CLOCK for count in clocks))
    body = each(pow, sum(each(pow, part, FIT.overlap) for part in parts), 1 / FIT.overlap)
    waves = ceil(blocks / (places(chosen, sms) * chosen.residents))
    shallow = 1 + 0.5 / chosen.stages**2
    fill = FIT.fill * chosen.stages * cut.stage_bytes * smaller(sms * residents, blocks) / FIT.bytes_per_s
    start = (FIT.launch_s - launch_saved_s(chosen) + fill) * (1 + 0.01 * each(math.log2, chosen.share))
    return start + waves * body * shallow + 16 * fold_passes(chosen) * cut.quadruples / FIT.fold_bytes_per_s


def places(chosen: WeightGradientConfiguration, sms: int) -> Number:
    """Multiprocessors that blocks of threads can have: of large clusters not all fit into the parts of the GPU."""
    gpu = tuned_gpu()
    return pick(chosen.together & (chosen.splits > 2), sms * gpu.clustered_sms // gpu.sms, sms)


def fold_passes(chosen: WeightGradientConfiguration) -> Number:
    """How often the partial sums pass the memory: once each way for every split, or once as what they round to."""
    return pick(chosen.together, 0.5, 2 * chosen.splits)


def launch_saved_s(chosen: WeightGradientConfiguration) -> Number:
    """What splits that add together take less than two launches."""
    saved = pick(chosen.splits == 1, FIT.second_launch_s, FIT.second_launch_s - FIT.cluster_s)
    return pick(chosen.together, saved, 0.0)


@dataclass(frozen=True)
class _Work:
    """One split of one channel block: steps of its walk, bytes from memory."""

    steps: Number
    bytes: Number


def _work_of_a_split(problem: ConvolutionProblem, chosen: WeightGradientConfiguration) -> _Work:
    cut = Cut(problem, chosen)
    rows = max(1, len(live_rows(problem)))
    each = -(-larger(1, cut.work) // chosen.splits)
    reach = (problem.r - 1) * problem.dilation[0]
    inside = pick(each % rows == 0, 0, reach)  # rows of x read again where a split begins inside an image
    images = ceil(each / rows)
    steps = each * max(problem.stride[0], problem.h / rows) + images * min(reach, max(0, problem.padding[0])) + inside
    columns = smaller(problem.w, problem.w / cut.column_tiles + (problem.s - 1) * problem.dilation[1])
    positions = (each * problem.h / rows + inside) * columns + each * problem.q / cut.column_tiles
    sector = pick(chosen.channel_block * 2 < FIT.sector_bytes, FIT.sector_bytes / 2, 0)
    channels = larger(problem.c / cut.channel_blocks, sector)
    return _Work(steps, 2 * channels * problem.n / cut.image_blocks * positions)


def _stage_clocks(cut: Cut) -> Number:
    """Clocks of a multiprocessor for one step of the walk of one block of threads."""
    chosen, stride = cut.configuration, cut.problem.stride[0]
    steps = cut.consumers * cut.own_steps
    products = steps * cut.filter_rows / stride * cut.tap_pairs * chosen.out_blocks
    matrices = steps * (4 * cut.tap_pairs + 2 * chosen.out_blocks / stride)
    positions = chosen.images * (cut.x_columns + UNIT * chosen.units / stride)
    alone = 1 + FIT.lone_warps / (cut.consumers * chosen.residents)
    return larger(products * FIT.mma_clocks * alone, matrices * FIT.matrix_clocks, positions * FIT.position_clocks)
