"""Which kernel computes a weight gradient: that of all groups (`cost/model.py`), or the one of depthwise convolutions.

The latter's time is counted, with constants that were fitted to its times on one H200 (`data/gpus.json`, fit "bands"):

    seconds = start + (memory^3 + instructions^3 + waits^3)^(1/3)

Memory is what is read and written, at the copy rate; instructions are those of a multiprocessor's warps at some rate;
waits what the groups of rows of a block take one behind the other. It is taken where it promises to be faster by more
than the predictions err, on the GPU that it was measured on, by large problems.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cbrt, ceil

from ..convolution.banded_weight_gradient_configuration import BandedWeightGradient, configurations
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import WeightGradientConfiguration
from . import model
from .gpu import Gpu, fitted

MARGIN = 1.05  # how much less it must promise
# Smaller problems lose in a chain of launches what they gain alone: half of them were up to 18 % slower there.
LEAST_BYTES = 36e6


@dataclass(frozen=True)
class BandsFit:
    """The constants; `data/gpus.json` says what each is and where it comes from."""

    start_us: float
    memory: float
    issue_clocks: float
    turn_clocks: float
    group_clocks: float
    chunk_clocks: float
    product_clocks: float


FIT = fitted(BandsFit, "bands")


def choose(problem: ConvolutionProblem, gpu: Gpu) -> WeightGradientConfiguration | BandedWeightGradient:
    """The configuration of a weight gradient that is predicted to be fastest."""
    found = _in_bands(problem, gpu)
    return model.choose(problem, "weight_gradient", gpu) if found is None else found[0]


def predicted_s(problem: ConvolutionProblem, gpu: Gpu) -> float:
    """Seconds that a weight gradient takes with the configuration `choose` gives, its launches included."""
    found = _in_bands(problem, gpu)
    return model.predicted_s(problem, "weight_gradient", gpu) if found is None else found[1]


@lru_cache(maxsize=16384)
def _in_bands(problem: ConvolutionProblem, gpu: Gpu) -> tuple[BandedWeightGradient, float] | None:
    """The depthwise kernel's best configuration and its seconds, where it is to be taken."""
    options = configurations(problem, gpu) if gpu.tuned and problem.bytes_moved >= LEAST_BYTES else []
    if not options:
        return None
    seconds, _, best = min((counted_s(problem, cut, gpu), repr(cut), cut) for cut in options)
    return (best, seconds) if seconds * MARGIN < model.predicted_s(problem, "weight_gradient", gpu) else None


def counted_s(problem: ConvolutionProblem, cut: BandedWeightGradient, gpu: Gpu) -> float:
    """Seconds of both launches with a configuration."""
    work, clock = counted(problem, cut), gpu.sustained_clock_hz
    memory = FIT.memory * work.bytes_moved / gpu.copy_bytes_per_s
    issued = work.instructions + work.products + work.chunks
    issue = FIT.issue_clocks * work.blocks / gpu.sms * cut.octets * issued / 4
    chain = FIT.group_clocks * work.groups + FIT.chunk_clocks * work.chunks + FIT.product_clocks * work.products
    waits = ceil(work.blocks / (gpu.sms * cut.residents)) * (FIT.turn_clocks + chain)
    cubes: float = memory**3 + (issue / clock) ** 3 + (waits / clock) ** 3
    return 1e-6 * FIT.start_us + cbrt(cubes)


@dataclass(frozen=True)
class Work:
    """What is done: bytes through memory, and blocks; of a block, groups of rows.

    Of a warp in all its groups: chunks of eight columns and channels dealt, products, instructions beside them.
    """

    bytes_moved: float
    blocks: int
    groups: int
    chunks: int
    products: float
    instructions: float


def counted(problem: ConvolutionProblem, cut: BandedWeightGradient) -> Work:
    """The work of both launches."""
    across, chunks = ceil(problem.q / (8 * cut.eights)), ceil(problem.p / cut.chunk)
    items = ceil(problem.n / cut.images) * across * chunks
    groups = ceil(items / cut.splits) * ceil((cut.chunk + problem.r - 1) / cut.rows)
    deep = cut.images * cut.eights
    dealt = groups * cut.rows * (2 * cut.images * (cut.eights + 1) + deep)
    products = groups * cut.pairs * 8 * deep / 2
    partials = 8 * problem.weight_elements * cut.splits
    blocks = ceil(problem.c / cut.channels) * cut.splits
    return Work(problem.bytes_moved + partials, blocks, groups, dealt, products, 5 * products + 60 * groups)
