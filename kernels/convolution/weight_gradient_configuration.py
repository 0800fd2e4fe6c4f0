"""How a weight gradient is cut into work: the choices `weight_gradient.cu` is compiled with, what follows from them,
and which are legal.

All of it is integer arithmetic on the problem and the GPU's limits; nothing here needs a GPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..cost.columns import Number, each, larger, pick, smaller
from ..cost.gpu import tuned_gpu
from . import direct_weight_gradient
from .problem import ConvolutionProblem

UNIT = 8  # positions of a matrix, channels of a 16-byte chunk
BOX_LIMIT = 256  # elements of a tensor map's box along one dimension
SWIZZLE_PERIOD = 1024  # bytes
STATIC_SHARED = 1024  # barriers, then alignment of the ring
FEWEST_STAGES, MOST_STAGES = 3, 16
MOST_THREADS = 1024
LOADERS = 2  # warps that load
MOST_RANKS = 8  # blocks of a cluster on every GPU that has clusters
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
    is no second launch and no workspace. A `flat` block owns all channels and all columns: rows come as they lie in
    memory, each one copy.
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
    flat: bool = False

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


def plain(problem: ConvolutionProblem, sms: int) -> WeightGradientConfiguration:
    """The plain kernel, which every problem can have."""
    splits = direct_weight_gradient.splits(problem, sms)
    return WeightGradientConfiguration(0, 1, 0, 0, 0, 0, 0, 0, splits, together=splits == 1)


def legal(cut: Cut, shared: int) -> Number:
    """Whether the kernels can be built and launched: even shares, boxes, threads, registers, `shared` bytes a block."""
    chosen = cut.configuration
    # The system keeps 1 KiB of each of several.
    room = shared // chosen.residents - STATIC_SHARED - pick(chosen.residents > 1, 1024, 0)
    return (
        launchable(cut)
        & pick(chosen.together, chosen.splits <= MOST_RANKS, True)
        & (chosen.stages >= FEWEST_STAGES)
        & (chosen.stages <= MOST_STAGES)
        & (cut.shared_bytes <= room)
        & (cut.registers <= cut.register_limit)
    )


def _whole(cut: Cut) -> Number:
    """Whether a block has all channels and columns, its rows lie within theirs, and its images divide all: what `flat`
    ones need, which never write zeros again."""
    problem, chosen = cut.problem, cut.configuration
    block = (chosen.channel_block == problem.c) & (problem.c <= BOX_LIMIT) & (UNIT * chosen.units >= problem.q)
    left = problem.padding[2]
    return block & (problem.n % chosen.images == 0) & (left >= 0) & (left < cut.x_columns)


def launchable(cut: Cut) -> Number:
    """The same as far as rings and splits do not matter."""
    chosen = cut.configuration
    warps = round_up(cut.consumers + LOADERS, 4) * chosen.residents
    return (
        (chosen.images * chosen.units % (2 * chosen.share) == 0)
        & cut.evenly_dealt
        & (cut.x_columns <= BOX_LIMIT)
        & pick(chosen.flat, _whole(cut), True)
        & (warps <= WARP_SLOTS)
        & (cut.threads <= MOST_THREADS)
    )
