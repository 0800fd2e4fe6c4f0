"""Which kernel computes a weight gradient: that of all groups (`cost/model.py`), or the one of depthwise convolutions.

The latter's time is counted, with constants that were fitted to its times on one H200 (`data/gpus.json`, fit
"depthwise_weight_gradient"):

    seconds = start + (memory^2 + products^2 + positions^2)^(1 / 2)

Memory is what is read, at the copy rate; products are those of the busiest tensor core; positions those of the boxes
that the copy engine brings one multiprocessor, those beyond an image's edge included. Splits that add together start
sooner, and take longer where they are a cluster. Where it promises to be faster it is taken, on the GPU that it was
measured on. Of a problem that was itself measured (timed_cuts.py) the fastest cut stands with its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot, prod

from ..convolution.depthwise_weight_gradient_configuration import (
    QUAD,
    DepthwiseWeightGradient,
    boxes,
    computed,
    configurations,
    conflicts,
    legal,
    line,
)
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import WeightGradientConfiguration
from . import model, timed_cuts
from .gpu import Gpu, fitted


@dataclass(frozen=True)
class DepthwiseFit:
    """The constants; `data/gpus.json` says what each is and where it comes from."""

    start_us: float
    together_us: float
    clustered: float
    memory: float
    product_clocks: float
    position_clocks: float


FIT = fitted(DepthwiseFit, "depthwise_weight_gradient")
PARTS = 4  # of a multiprocessor, with a tensor core each
LEAST_ROWS = 5  # of a filter: with 3 x 3 it was never the faster
# Of the other kernel's seconds: of 57 layers of timm's models that are guessed to take less than that, 56 were faster.
CLEARLY = 1.04
EVENTS_US = 3.2  # what times between events, as the other kernels' are, have beyond those of a chain


def choose(
    problem: ConvolutionProblem, gpu: Gpu, whole: bool = True
) -> WeightGradientConfiguration | DepthwiseWeightGradient:
    """The configuration of a weight gradient that is predicted to be fastest; `whole` as in `model.choose`."""
    found = _as_depthwise(problem, gpu)
    return model.choose(problem, "weight_gradient", gpu, whole) if found is None else found[0]


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
    seconds = {cut: counted_s(problem, cut, gpu) for cut in options}
    best = min(options, key=lambda cut: (seconds[cut], conflicts(problem, cut), repr(cut)))
    return best, seconds[best]


def counted_s(problem: ConvolutionProblem, cut: DepthwiseWeightGradient, gpu: Gpu) -> float:
    """Seconds of the launches with a configuration."""
    blocks = ceil(problem.c / cut.channels) * cut.splits
    clustered = cut.together and cut.splits > 1
    turns = ceil(blocks / (cut.splits * gpu.clusters_of(cut.splits) if clustered else gpu.sms))
    groups = turns * ceil(line(problem, cut) / cut.splits)
    products = groups * problem.r**2 * QUAD * ceil(cut.warps / PARTS) * FIT.product_clocks
    positions = groups * sum(prod(box) for box in boxes(problem, cut)) * FIT.position_clocks
    memory = FIT.memory * problem.bytes_moved / gpu.copy_bytes_per_s
    walk = hypot(memory, products / gpu.sustained_clock_hz, positions / gpu.sustained_clock_hz)
    return 1e-6 * (FIT.start_us - FIT.together_us * cut.together) + (1 + FIT.clustered * clustered) * walk
