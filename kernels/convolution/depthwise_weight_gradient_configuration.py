"""How depthwise_weight_gradient.cu is cut: the weight gradient of a depthwise convolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING

from .configuration import BARRIER_BYTES, MAX_BOX, RESERVED_SHARED, register_limit
from .problem import ConvolutionProblem

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

DY_ROWS, MOST_TAPS = 8, 7  # rows of dy of a product; taps of a filter each way
ROW_REGISTERS, REGISTER_ROOM = 26, 42  # for a row of x of a product: its sums and twice its words; beside those
IDLE = 1.25  # channels of the blocks over channels there are, at most
AHEAD = 48 << 10  # bytes of x, and as many of dy, that are under way in one multiprocessor
ROWS = (2, 4)
GROUPS = (4, 17)  # rows that arrive together: from, to
WARPS = ((1, 16), (1, 12), (2, 8), (1, 8))  # blocks of a multiprocessor, and warps of each that compute
MOST_STAGES = 8
ZEROS = 16  # bytes of zeros in shared memory, for rows of dy that do not exist


@dataclass(frozen=True)
class DepthwiseWeightGradient:
    """What a block of threads of depthwise_weight_gradient.cu computes.

    A block owns 8 * `octets` channels, `shares` warps for each octet, and one of `splits` stretches of rows of `images`
    images (an odd number), `eights` times eight columns wide. Products have `rows` rows of x. `group` rows of x and of
    dy arrive together; `stages` such groups of x and `dy_stages` of dy are in shared memory. `residents` blocks share a
    multiprocessor.
    """

    octets: int = 4
    shares: int = 3
    images: int = 1
    eights: int = 7
    rows: int = 2
    group: int = 8
    stages: int = 3
    dy_stages: int = 4
    residents: int = 1
    splits: int = 44

    @property
    def threads(self) -> int:
        """Of a block: those that compute, and a warp that loads."""
        return 32 * (self.octets * self.shares + 1)

    @property
    def channels(self) -> int:
        """Of a block."""
        return 8 * self.octets


def boxes(cut: DepthwiseWeightGradient) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The (rows, images, columns) of x and of dy that arrive together.

    Columns of x reach as far beyond those of the outputs as a window does; of dy four more spread rows over the banks.
    """
    columns = 8 * cut.eights
    return (cut.group, cut.images, columns + 8), (cut.group, cut.images, columns + 4)


def group_bytes(cut: DepthwiseWeightGradient) -> tuple[int, int]:
    """Bytes of a group of rows of x and of dy."""
    x, dy = (2 * cut.channels * prod(box) for box in boxes(cut))
    return x, dy


def computed(problem: ConvolutionProblem) -> bool:
    """Whether the kernel computes a weight gradient: depthwise, octets of channels, neither stride nor dilation."""
    whole = problem.width == 1 and problem.narrow and problem.c % 8 == 0
    return whole and problem.stride == problem.dilation == (1, 1) and max(problem.r, problem.s) <= MOST_TAPS


def lead(problem: ConvolutionProblem, group: int) -> int:
    """How many groups of rows of dy beyond its own one of x meets."""
    return max(0, (group - 1 + problem.padding[0]) // group)


def lag(problem: ConvolutionProblem, group: int) -> int:
    """How many groups of rows of dy before its own one of x meets."""
    return max(0, ceil((problem.r - 1 - problem.padding[0]) / group))


def held(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Groups of rows of dy that are in use at once."""
    return min(lead(problem, cut.group) + lag(problem, cut.group) + 1, row_groups(problem, cut))


def shared_bytes(cut: DepthwiseWeightGradient) -> int:
    """Shared memory of a block: the formulas of depthwise_weight_gradient.cu."""
    x, dy = group_bytes(cut)
    return cut.stages * (x + 2 * BARRIER_BYTES) + cut.dy_stages * (dy + 2 * BARRIER_BYTES) + ZEROS


def registers(cut: DepthwiseWeightGradient) -> int:
    """Registers of a thread, estimated."""
    return ROW_REGISTERS * cut.rows + REGISTER_ROOM


def line(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Groups of rows of dy of all images and column tiles."""
    return ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.eights)) * row_groups(problem, cut)


def row_groups(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> int:
    """Groups of rows of dy of an image."""
    return ceil(problem.p / cut.group)


def legal(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, shared: int) -> bool:
    """Whether depthwise_weight_gradient.cu can be built and launched so on a GPU with `shared` bytes a block."""
    taken, sums = shared_bytes(cut), 4 * cut.channels * problem.r * problem.s * cut.shares
    return (
        cut.rows in ROWS
        and cut.group % cut.rows == 0
        and cut.images % 2 == 1
        and cut.rows + problem.r - 1 <= DY_ROWS
        and held(problem, cut) <= cut.dy_stages
        and cut.stages >= 2
        and sums <= taken - ZEROS - 2 * BARRIER_BYTES * (cut.stages + cut.dy_stages)
        and max(max(box) for box in boxes(cut)) <= MAX_BOX
        and 1 <= cut.splits <= line(problem, cut)
        and taken + RESERVED_SHARED <= (shared + RESERVED_SHARED) // cut.residents
        and registers(cut) <= register_limit(cut.threads, cut.residents)
    )


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[DepthwiseWeightGradient]:
    """Legal configurations; none where the kernel does not compute the problem."""
    return list(dict.fromkeys(_all(problem, gpu))) if computed(problem) else []


def _all(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[DepthwiseWeightGradient]:
    for shape in _shapes(problem):
        options = (_split(problem, _staged(problem, shape, ahead), gpu.sms) for ahead in (AHEAD, AHEAD // 2, 0))
        if found := next((cut for cut in options if legal(problem, cut, gpu.shared_per_block)), None):
            yield found


def _shapes(problem: ConvolutionProblem) -> Iterator[DepthwiseWeightGradient]:
    for octets, rows, (residents, warps) in product(_octets(problem), ROWS, WARPS):
        for (images, eights), group in product(_tiles(problem), _groups(problem)):
            shares = max(1, warps // octets)
            yield DepthwiseWeightGradient(octets, shares, images, eights, rows, group, residents=residents)


def _groups(problem: ConvolutionProblem) -> list[int]:
    """Rows that arrive together: an image, or parts of it that are as long as each other."""
    halves = ceil(problem.p / 2)
    found = {2 * ceil(halves / parts) for parts in range(1, halves + 1)}
    return sorted(group for group in found if group in range(*GROUPS)) or [2 * halves]


def _staged(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, ahead: int) -> DepthwiseWeightGradient:
    """With rings for `ahead` bytes of either tensor to be under way, one group at least."""
    x, dy = (max(1, min(MOST_STAGES, round(ahead / cut.residents / size))) for size in group_bytes(cut))
    return replace(cut, stages=1 + x, dy_stages=held(problem, cut) + dy)


def _octets(problem: ConvolutionProblem) -> list[int]:
    """Octets of channels of a block: few where more would be idle."""
    whole = problem.c // 8
    return [count for count in (4, 8) if ceil(whole / count) * count <= IDLE * whole] or [min(2, whole)]


def _split(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, sms: int) -> DepthwiseWeightGradient:
    """With as many splits as there is room or work for."""
    room = max(1, sms * cut.residents // ceil(problem.c / cut.channels))
    return replace(cut, splits=max(1, min(room, line(problem, cut))))


def _tiles(problem: ConvolutionProblem) -> list[tuple[int, int]]:
    """(images, eights of columns) of a block at a time: up to eight eights, of one image or of whole ones."""
    whole = ceil(problem.q / 8)
    found = set()
    for places in (4, 8):
        eights = ceil(whole / ceil(whole / places))
        found.add((1, eights))
        if eights == whole:
            found |= {(images, eights) for images in (3, 5, 7) if images <= problem.n and images * eights <= places}
    return sorted(found)
