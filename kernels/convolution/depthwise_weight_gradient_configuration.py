"""How depthwise_weight_gradient.cu is cut: the weight gradient of a depthwise convolution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil, gcd, prod
from typing import TYPE_CHECKING

from .configuration import BARRIER_BYTES, LEFT_REGISTERS, MAX_BOX, WARPGROUP, register_limit, traded_registers
from .problem import ConvolutionProblem
from .weight_gradient_configuration import MOST_RANKS

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

COLUMNS, DEPTH, MOST_TAPS = (7, 8), 8, 7  # of a unit; units of a product; taps of a filter each way
QUAD = 4  # channels of a warp
PERIOD = 8  # positions after which the copy engine's swizzle repeats, and so do banks
LANES, UNITS_A_LANE = 4, 2  # lanes that have the same column, of two units each: the first ones are loaded at once
ROW_REGISTERS, REGISTER_ROOM = 20, 56  # for a row of the filter: its sums, and one of dy; beside those
IDLE = 1.25  # channels of the blocks over channels there are, at most
WARPS = 8  # of a block: two blocks of eight, or one of 12 or 16, were never the fastest
FEW_GROUPS = 24  # of a block, at most, that come in two parts
STAGES = (3, 2)  # two groups at least are met at once; more than three were slower in the mean


@dataclass(frozen=True)
class DepthwiseWeightGradient:
    """What a block of threads of depthwise_weight_gradient.cu computes.

    A block owns 8 * `octets` channels, `shares` warps for each four of them, and one of `splits` stretches of rows of
    `images` images, `units` times `unit` columns wide: eight units a warp. As many rows as the filter has arrive
    together; `stages` such groups of x and dy are in shared memory. Splits that add `together` are a cluster of thread
    blocks, in one launch.
    """

    octets: int = 4
    shares: int = 1
    images: int = 1
    units: int = 8
    unit: int = 7
    stages: int = 3
    splits: int = 44
    together: bool = False

    @property
    def warps(self) -> int:
        """Of a block: those that compute."""
        return 2 * self.octets * self.shares

    @property
    def channels(self) -> int:
        """Of a block."""
        return 8 * self.octets


def boxes(
    problem: ConvolutionProblem, cut: DepthwiseWeightGradient
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The (rows, images, columns) of x and of dy that arrive together.

    Columns of x reach as far beyond those of the outputs as a window does, and of either so far that a row begins where
    the swizzle does, and that few lanes meet the same banks.
    """
    met = cut.unit * cut.units
    x, dy = (_columns(cut.images, cut.units, cut.unit, columns) for columns in (met + problem.s - 1, met))
    return (problem.r, cut.images, x), (problem.r, cut.images, dy)


def first_rows(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> tuple[int, int]:
    """Rows of x, and of dy, that arrive first of those of `boxes`.

    One to three rows of x, of which none meets a row of dy that comes later: products begin and end sooner. All, where
    a block has many groups or many of them are on their way: then the copy engine, slow with more boxes, is in the way.
    """
    if ceil(line(problem, cut) / cut.splits) > FEW_GROUPS or cut.stages > max(STAGES):
        return problem.r, problem.r
    shift = problem.padding[0] % problem.r
    x = max(1, (problem.r - shift) // 2)
    return x, x + shift


@lru_cache(maxsize=4096)
def _columns(images: int, units: int, unit: int, least: int) -> int:
    """Columns of an image's row in shared memory: of those that will do, from `least` on, the fewest."""
    step = PERIOD // gcd(images, PERIOD)
    first = ceil(least / step) * step
    return min(
        range(first, first + PERIOD, step), key=lambda columns: (_conflicts(images, units, unit, columns), columns)
    )


def _conflicts(images: int, units: int, unit: int, columns: int) -> int:
    """How many of the sixteen lanes that load at once meet the banks that most of them do."""
    numbers = [min(UNITS_A_LANE * lane, images * units - 1) for lane in range(LANES)]
    begins = [number // units * columns + number % units * unit for number in numbers]
    banks = Counter((begin + column) % PERIOD for begin in begins for column in range(LANES))
    return max(banks.values())


def conflicts(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Of the sixteen lanes that load at once, those that meet the banks that most do: of x, or of dy. Two at least."""
    return max(_conflicts(cut.images, cut.units, cut.unit, columns) for _, _, columns in boxes(problem, cut))


def stage_bytes(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Bytes of a group of rows of x and of dy."""
    return sum(2 * cut.channels * prod(box) for box in boxes(problem, cut))


def computed(problem: ConvolutionProblem) -> bool:
    """Whether the kernel computes a weight gradient: depthwise, octets of channels, neither stride nor dilation."""
    whole = problem.width == 1 and problem.narrow and problem.c % 8 == 0
    return whole and problem.stride == problem.dilation == (1, 1) and max(problem.r, problem.s) <= MOST_TAPS


def shared_bytes(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Shared memory of a block, by the formulas of depthwise_weight_gradient.cu: sums lie where the ring was."""
    ring, barriers = cut.stages * stage_bytes(problem, cut), 4 * BARRIER_BYTES * cut.stages
    return max(ring, sum_bytes(problem, cut)) + exchange_bytes(problem, cut) + barriers


def sum_bytes(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """What the sums of all warps take there in the end."""
    return 4 * cut.channels * problem.r * problem.s * cut.shares


def exchange_bytes(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """What the blocks of a cluster store into each one's shared memory."""
    ranks = cut.splits if cut.together else 1
    quadruples = cut.channels * problem.r * problem.s // 4
    return 16 * ranks * ceil(quadruples / ranks) if ranks > 1 else 0


def registers(problem: ConvolutionProblem) -> int:
    """Registers of a thread, estimated."""
    return ROW_REGISTERS * problem.r + REGISTER_ROOM


def taken_registers(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Registers of a computing thread where the loader leaves some to them: where they want more than an equal share.

    Both are whole warpgroups then, and the GPU has to be one of sm_90a. Else 0.
    """
    if registers(problem) <= register_limit(32 * (cut.warps + 1), 1) or cut.warps % WARPGROUP:
        return 0
    taken: int = traded_registers(cut.warps // WARPGROUP, 1, LEFT_REGISTERS)
    return taken


def launched(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Threads of a block: those that compute, and a warp, or a warpgroup of which one does anything, that loads."""
    return 32 * (cut.warps + (WARPGROUP if taken_registers(problem, cut) else 1))


def line(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Groups of rows of x of all images and column tiles."""
    return ceil(problem.n / cut.images) * ceil(problem.q / (cut.unit * cut.units)) * row_groups(problem)


def row_groups(problem: ConvolutionProblem) -> int:
    """Groups of rows of x of an image."""
    return ceil(problem.h / problem.r)


def legal(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, shared: int) -> bool:
    """Whether depthwise_weight_gradient.cu can be built and launched so on a GPU with `shared` bytes a block."""
    taken, threads = shared_bytes(problem, cut), launched(problem, cut)
    enough = taken_registers(problem, cut) or register_limit(threads, 1)
    return (
        cut.images * cut.units <= DEPTH * cut.shares
        and cut.octets in (1, 2, 4, 8)
        and cut.unit in COLUMNS
        and cut.stages >= 2
        and all(max(box) <= MAX_BOX for box in boxes(problem, cut))
        and 1 <= cut.splits <= (MOST_RANKS if cut.together else line(problem, cut))
        and taken <= shared
        and threads <= 1024
        and registers(problem) <= enough
    )


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[DepthwiseWeightGradient]:
    """Legal configurations; none where the kernel does not compute the problem."""
    return list(dict.fromkeys(_all(problem, gpu))) if computed(problem) else []


def _all(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[DepthwiseWeightGradient]:
    for octets, unit in product(_octets(problem), COLUMNS):
        shares = max(1, WARPS // (2 * octets))
        units, images = _tile(problem, unit, DEPTH * shares)
        shape = DepthwiseWeightGradient(octets, shares, images, units, unit)
        for cut in _split(problem, shape, gpu):
            options = (replace(cut, stages=stages) for stages in STAGES)
            if found := next((cut for cut in options if legal(problem, cut, gpu.shared_per_block)), None):
                yield found


def _octets(problem: ConvolutionProblem) -> list[int]:
    """Octets of channels of a block: few where more would be idle."""
    whole = problem.c // 8
    return [count for count in (1, 2, 4) if ceil(whole / count) * count <= IDLE * whole]


def _split(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, gpu: Gpu) -> Iterator[DepthwiseWeightGradient]:
    """With as many splits as there is room or work for, and as many as are clusters that run at once."""
    blocks, most = ceil(problem.c / cut.channels), line(problem, cut)
    yield replace(cut, splits=max(1, min(gpu.sms // blocks, most)))
    ranks = (ranks for ranks in range(min(MOST_RANKS, most), 1, -1) if blocks <= gpu.clusters_of(ranks))
    yield replace(cut, splits=next(ranks, 1), together=True)


def _tile(problem: ConvolutionProblem, unit: int, most: int) -> tuple[int, int]:
    """(units of columns, images) of a block at a time: parts of one image's rows, or whole ones."""
    whole = ceil(problem.q / unit)
    units = ceil(whole / ceil(whole / most))
    return units, min(problem.n, most // units) if units == whole else 1
