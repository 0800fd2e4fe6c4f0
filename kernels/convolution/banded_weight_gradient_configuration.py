"""How banded_weight_gradient.cu is cut: the weight gradient of a depthwise convolution, row by row as products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from .configuration import BARRIER_BYTES, REGISTERS, RESERVED_SHARED
from .problem import ConvolutionProblem

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

LEAST_REGISTERS = (168, 224)  # of a thread, so that nothing spills: one pair of rows a step, two
IDLE = 1.25  # channels of the blocks over channels there are, at most


@dataclass(frozen=True)
class BandedWeightGradient:
    """What a block of threads of banded_weight_gradient.cu computes.

    A block owns 8 * `octets` channels, a warp for each octet, and takes every `splits`-th item: `chunk` output rows of
    `eights` times eight columns of `images` images, `pairs` pairs of rows of x a step.
    `stages` steps' rows are under way, `residents` blocks share a multiprocessor, and the products of `together`
    channels take turns.
    """

    octets: int = 4
    images: int = 1
    eights: int = 7
    pairs: int = 1
    stages: int = 2
    residents: int = 2
    chunk: int = 28
    splits: int = 64
    together: int = 2

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.octets

    @property
    def channels(self) -> int:
        """Of a block."""
        return 8 * self.octets

    @property
    def rows(self) -> int:
        """Rows of x of a step."""
        return 2 * self.pairs


def in_bands(problem: ConvolutionProblem) -> bool:
    """Whether the kernel computes a weight gradient: depthwise, octets of channels, neither stride nor dilation."""
    return problem.width == 1 and problem.narrow and problem.c % 8 == 0 and problem.stride == problem.dilation == (1, 1)


def shared_bytes(cut: BandedWeightGradient) -> int:
    """Shared memory of a block: the formulas of banded_weight_gradient.cu."""
    x_row, dy_row = 16 * cut.images * (cut.eights + 1), 16 * (cut.images * cut.eights | 1)
    x = 2 * (_up(cut.rows * x_row, 128) + 64) + 16
    dy = _up(_up(6 + cut.rows, cut.rows) * dy_row, 128) + 16
    chunks = (cut.images * (cut.eights + 1), cut.images * cut.eights)
    stage = sum(_up(cut.rows * count * 8 * 16 * cut.octets, 1024) for count in chunks)
    return cut.stages * (stage + 2 * BARRIER_BYTES) + 8 * cut.octets * (x + dy)


def register_cap(cut: BandedWeightGradient) -> int:
    """Registers that a thread can have where so many blocks share a multiprocessor."""
    warps = _up(cut.octets * cut.residents, 4)
    return min(255, REGISTERS // (32 * warps) // 8 * 8)


def legal(cut: BandedWeightGradient, shared: int) -> bool:
    """Whether banded_weight_gradient.cu can be built and launched so on a GPU with `shared` bytes a block."""
    taken = shared_bytes(cut) + RESERVED_SHARED
    return taken <= (shared + RESERVED_SHARED) // cut.residents and register_cap(cut) >= LEAST_REGISTERS[cut.pairs - 1]


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[BandedWeightGradient]:
    """Legal configurations of banded_weight_gradient.cu; none where it does not compute the problem."""
    if not in_bands(problem):
        return []
    found = []
    for octets in _octets(problem):
        for images, eights in _tiles(problem):
            for stages in (2, 3):
                cut = BandedWeightGradient(octets, images, eights, 1, stages)  # two pairs were never the faster
                options = [replace(cut, residents=count) for count in range(12, 0, -1)]
                fitting = (one for one in options if legal(one, gpu.shared_per_block))
                if most := next(fitting, None):
                    found += _dealt(problem, most, gpu.sms)
    return found


def _octets(problem: ConvolutionProblem) -> list[int]:
    whole = problem.c // 8
    return [count for count in (2, 4, 8) if ceil(whole / count) * count <= IDLE * whole]


def _tiles(problem: ConvolutionProblem) -> list[tuple[int, int]]:
    """(images, eights of columns) of an item: at most eight or sixteen eights, of one image or of whole ones."""
    whole = ceil(problem.q / 8)
    found = set()
    for places in (8, 16):
        eights = ceil(whole / ceil(whole / places))
        found.add((1, eights))
        if eights == whole:
            found.add((min(problem.n, places // eights), eights))
    return sorted(found)


def _dealt(problem: ConvolutionProblem, cut: BandedWeightGradient, sms: int) -> list[BandedWeightGradient]:
    """With rows in chunks such that every block that fits has some, and as many splits as there is room or work for."""
    room = max(1, sms * cut.residents // ceil(problem.c / cut.channels))
    tiles = ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.eights))
    found = {}
    for parts in range(1, 7):
        chunk = ceil(problem.p / parts)
        items = tiles * ceil(problem.p / chunk)
        turns = ceil(items / room)
        splits = ceil(items / turns)
        found[chunk] = replace(cut, chunk=chunk, splits=splits)
    return list(found.values())


def _up(size: int, unit: int) -> int:
    return ceil(size / unit) * unit
