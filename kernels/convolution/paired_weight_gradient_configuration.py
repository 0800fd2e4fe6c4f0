"""How paired_weight_gradient.cu is cut: the weight gradient of a depthwise convolution by pairs of channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import TYPE_CHECKING

from .configuration import BARRIER_BYTES, MAX_BOX, RESERVED_SHARED, register_limit
from .problem import ConvolutionProblem

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

DY_ROWS, MOST_TAPS = 8, 7  # rows of dy of a product; taps of a filter each way
REGISTER_ROOM = 52  # beside sums and operands
IDLE = 1.25  # channels of the blocks over channels there are, at most
AHEAD = 48 << 10  # bytes of x that are under way in one multiprocessor
ROWS = (2, 4)
WARPS = ((1, 12), (2, 8), (1, 8))  # blocks of a multiprocessor, and warps of each that compute


@dataclass(frozen=True)
class PairedWeightGradient:
    """What a block of threads of paired_weight_gradient.cu computes.

    A block owns 8 * `octets` channels, `shares` warps for each octet, and one of `splits` stretches of rows of `images`
    images, `eights` times eight columns wide. `rows` rows of x and of dy arrive together; `stages` such groups of x and
    `dy_stages` of dy are in shared memory. `residents` blocks share a multiprocessor.
    """

    octets: int = 4
    shares: int = 3
    images: int = 1
    eights: int = 7
    rows: int = 2
    stages: int = 3
    dy_stages: int = 8
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

    @property
    def columns(self) -> int:
        """Columns of a row in shared memory: those of the outputs, and as many as a window reaches further."""
        return 8 * (self.eights + 1)

    @property
    def group_bytes(self) -> int:
        """Bytes of a group of rows of x or dy."""
        return self.images * self.rows * self.columns * 2 * self.channels


def paired(problem: ConvolutionProblem) -> bool:
    """Whether the kernel computes a weight gradient: depthwise, octets of channels, neither stride nor dilation."""
    whole = problem.width == 1 and problem.narrow and problem.c % 8 == 0
    return whole and problem.stride == problem.dilation == (1, 1) and max(problem.r, problem.s) <= MOST_TAPS


def following(problem: ConvolutionProblem, rows: int) -> int:
    """Groups of rows of dy that one of x meets beside the one that came with it."""
    return ceil((problem.r - 1) / rows)


def shared_bytes(cut: PairedWeightGradient) -> int:
    """Shared memory of a block: the formulas of paired_weight_gradient.cu."""
    return (cut.stages + cut.dy_stages) * (cut.group_bytes + 2 * BARRIER_BYTES)


def registers(cut: PairedWeightGradient) -> int:
    """Registers of a thread, estimated."""
    return 16 * cut.rows + REGISTER_ROOM


def line(problem: ConvolutionProblem, cut: PairedWeightGradient) -> int:
    """Groups of rows of dy of all images and column tiles."""
    return ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.eights)) * row_groups(problem, cut)


def row_groups(problem: ConvolutionProblem, cut: PairedWeightGradient) -> int:
    """Groups of rows of dy of an image."""
    return ceil(problem.p / cut.rows)


def legal(problem: ConvolutionProblem, cut: PairedWeightGradient, shared: int) -> bool:
    """Whether paired_weight_gradient.cu can be built and launched so on a GPU with `shared` bytes a block."""
    taken, sums = shared_bytes(cut), 4 * cut.channels * problem.r * problem.s * cut.shares
    return (
        cut.rows in ROWS
        and cut.rows + problem.r - 1 <= DY_ROWS
        and following(problem, cut.rows) < cut.dy_stages
        and cut.dy_stages & (cut.dy_stages - 1) == 0
        and sums <= taken - 2 * BARRIER_BYTES * (cut.stages + cut.dy_stages)
        and max(cut.columns, cut.images) <= MAX_BOX
        and 1 <= cut.splits <= line(problem, cut)
        and taken + RESERVED_SHARED <= (shared + RESERVED_SHARED) // cut.residents
        and registers(cut) <= register_limit(cut.threads, cut.residents)
    )


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[PairedWeightGradient]:
    """Legal configurations; none where the kernel does not compute the problem."""
    return list(dict.fromkeys(_all(problem, gpu))) if paired(problem) else []


def _all(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[PairedWeightGradient]:
    for shape in _shapes(problem):
        most = max(2, min(8, round(AHEAD / shape.residents / shape.group_bytes)))
        options = (_split(problem, replace(shape, stages=stages), gpu.sms) for stages in (most, 2))
        if found := next((cut for cut in options if legal(problem, cut, gpu.shared_per_block)), None):
            yield found


def _shapes(problem: ConvolutionProblem) -> Iterator[PairedWeightGradient]:
    for octets, rows, (residents, warps) in product(_octets(problem), ROWS, WARPS):
        for images, eights in _tiles(problem):
            shares, held = max(1, warps // octets), 2 * DY_ROWS // rows
            yield PairedWeightGradient(octets, shares, images, eights, rows, 0, held, residents)


def _octets(problem: ConvolutionProblem) -> list[int]:
    """Octets of channels of a block: few where more would be idle."""
    whole = problem.c // 8
    return [count for count in (4, 8) if ceil(whole / count) * count <= IDLE * whole] or [min(2, whole)]


def _split(problem: ConvolutionProblem, cut: PairedWeightGradient, sms: int) -> PairedWeightGradient:
    """With as many splits as there is room or work for."""
    room = max(1, sms * cut.residents // ceil(problem.c / cut.channels))
    return replace(cut, splits=max(1, min(room, line(problem, cut))))


def _tiles(problem: ConvolutionProblem) -> list[tuple[int, int]]:
    """(images, eights of columns) of a block at a time: two to sixteen eights, of one image or of whole ones."""
    whole = ceil(problem.q / 8)
    found = set()
    for places in (2, 4, 8, 16):
        eights = ceil(whole / ceil(whole / max(places, 7)))
        found.add((1, eights))
        if eights == whole and places >= eights:
            found.add((min(problem.n, places // eights), eights))
    return sorted(found)
