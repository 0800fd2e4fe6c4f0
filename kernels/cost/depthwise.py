"""Which kernel computes a weight gradient: that of all groups (`cost/model.py`), or the one of depthwise convolutions.

The latter's time is counted, with constants that were fitted to its times on one H200 (`data/gpus.json`, fit
"depthwise_weight_gradient"):

    seconds = start + (memory^1.5 + shared^1.5 + waits^1.5)^(1 / 1.5)

Memory is what is read, at the copy rate; shared what a multiprocessor's shared memory is asked for; waits those for
groups of rows, one behind the other. Where it promises to be faster it is taken, on the GPU that it was measured on.
Of a problem that was itself measured (timed_cuts.py) the fastest cut stands with its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from ..convolution.depthwise_weight_gradient_configuration import (
    DepthwiseWeightGradient,
    computed,
    configurations,
    lag,
    lead,
    legal,
    line,
    row_groups,
)
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import WeightGradientConfiguration
from . import model, timed_cuts
from .gpu import Gpu, fitted


@dataclass(frozen=True)
class DepthwiseFit:
    """The constants; `data/gpus.json` says what each is and where it comes from."""

    start_us: float
    memory: float
    load_clocks: float
    step_clocks: float


FIT = fitted(DepthwiseFit, "depthwise_weight_gradient")
LEAST_ROWS = 5  # of a filter: with 3 x 3 it was never the faster
CLEARLY = 0.95  # of the other kernel's seconds: guesses that differ by less tell nothing
LOAD_WAVES = 4  # of shared memory, for sixteen bytes a lane
EVENTS_US = 3.2  # what times between events, as the other kernels' are, have beyond those of a chain
NORM = 1.5  # how times that partly hide behind each other add up


def choose(problem: ConvolutionProblem, gpu: Gpu) -> WeightGradientConfiguration | DepthwiseWeightGradient:
    """The configuration of a weight gradient that is predicted to be fastest."""
    found = _as_depthwise(problem, gpu)
    return model.choose(problem, "weight_gradient", gpu) if found is None else found[0]


def predicted_s(problem: ConvolutionProblem, gpu: Gpu) -> float:
    """Seconds that a weight gradient takes with the configuration `choose` gives, its launches included."""
    found = _as_depthwise(problem, gpu)
    return model.predicted_s(problem, "weight_gradient", gpu) if found is None else found[1]


@lru_cache(maxsize=16384)
def _as_depthwise(problem: ConvolutionProblem, gpu: Gpu) -> tuple[DepthwiseWeightGradient, float] | None:
    """The depthwise kernel's best configuration and its seconds, where it is to be taken."""
    if not gpu.tuned or problem.r < LEAST_ROWS or not computed(problem):
        return None
    usual = model.predicted_s(problem, "weight_gradient", gpu)
    measured = _measured(problem, gpu)
    found, enough = (_guessed(problem, gpu), CLEARLY * usual) if measured is None else (measured, usual)
    return found if found is not None and found[1] < enough else None


def _measured(problem: ConvolutionProblem, gpu: Gpu) -> tuple[DepthwiseWeightGradient, float] | None:
    """The fastest cut that was timed and is legal."""
    timed = timed_cuts.timed(problem, "weight_gradient")
    known = ((DepthwiseWeightGradient(*each.cuts[0]), 1e-6 * (each.microseconds + EVENTS_US)) for each in timed)
    return next((found for found in known if legal(problem, found[0], gpu.shared_per_block)), None)


def _guessed(problem: ConvolutionProblem, gpu: Gpu) -> tuple[DepthwiseWeightGradient, float] | None:
    options = configurations(problem, gpu)
    if not options:
        return None
    seconds, _, best = min((counted_s(problem, cut, gpu), repr(cut), cut) for cut in options)
    return best, seconds


def counted_s(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, gpu: Gpu) -> float:
    """Seconds of both launches with a configuration."""
    blocks = ceil(problem.c / cut.channels) * cut.splits
    turns, resident = ceil(blocks / (gpu.sms * cut.residents)), max(1.0, min(cut.residents, blocks / gpu.sms))
    groups, products = _walked(problem, cut)
    units = turns * products * cut.images * cut.eights
    shared = units * cut.octets * (2 + 2 * cut.rows) * LOAD_WAVES * FIT.load_clocks * resident
    memory = FIT.memory * problem.bytes_moved / gpu.copy_bytes_per_s
    clocks = shared, turns * groups * FIT.step_clocks
    parts = memory, *(count / gpu.sustained_clock_hz for count in clocks)
    return 1e-6 * FIT.start_us + float(sum(part**NORM for part in parts) ** (1 / NORM))


def _walked(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> tuple[float, float]:
    """Groups of rows of x that a block meets, and products of its columns: of its stretch, and what its ends share."""
    stretch, whole = ceil(line(problem, cut) / cut.splits), row_groups(problem, cut)
    ends = min(1.0, stretch / whole) if whole > 1 else 0.0
    groups = stretch + (lead(problem, cut.group) + lag(problem, cut.group)) * ends
    products = stretch * ceil(problem.h / whole / cut.rows) + (problem.r - 1) / cut.rows * ends
    return groups, products
