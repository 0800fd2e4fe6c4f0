"""Which kernel computes a weight gradient: that of all groups (`cost/model.py`), or the one of depthwise convolutions.

The latter's time is counted, with constants that were fitted to its times on one H200 (`data/gpus.json`, fit
"paired_weight_gradient"):

    seconds = start + fold + (memory^3 + shared^3 + waits^3)^(1/3)

Memory is what is read, at the copy rate; shared what a multiprocessor's shared memory is asked for; waits what the
groups of rows of one block take one behind the other. Where it promises to be faster it is taken, on the GPU that it
was measured on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cbrt, ceil

from ..convolution.paired_weight_gradient_configuration import (
    PairedWeightGradient,
    configurations,
    following,
    line,
    row_groups,
)
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import WeightGradientConfiguration
from . import model
from .gpu import Gpu, fitted


@dataclass(frozen=True)
class PairedFit:
    """The constants; `data/gpus.json` says what each is and where it comes from."""

    start_us: float
    memory: float
    load_clocks: float
    step_clocks: float
    unit_clocks: float
    row_clocks: float
    fold: float


FIT = fitted(PairedFit, "paired_weight_gradient")
LEAST_ROWS = 6  # of a filter: with 3 x 3 and 5 x 5 it was never the faster
CLEARLY = 0.98  # of the other kernel's seconds: guesses that differ by less tell nothing
LOAD_WAVES = 4  # of shared memory, for sixteen bytes a lane


def choose(problem: ConvolutionProblem, gpu: Gpu) -> WeightGradientConfiguration | PairedWeightGradient:
    """The configuration of a weight gradient that is predicted to be fastest."""
    found = _in_pairs(problem, gpu)
    return model.choose(problem, "weight_gradient", gpu) if found is None else found[0]


def predicted_s(problem: ConvolutionProblem, gpu: Gpu) -> float:
    """Seconds that a weight gradient takes with the configuration `choose` gives, its launches included."""
    found = _in_pairs(problem, gpu)
    return model.predicted_s(problem, "weight_gradient", gpu) if found is None else found[1]


@lru_cache(maxsize=16384)
def _in_pairs(problem: ConvolutionProblem, gpu: Gpu) -> tuple[PairedWeightGradient, float] | None:
    """The depthwise kernel's best configuration and its seconds, where it is to be taken."""
    options = configurations(problem, gpu) if gpu.tuned and problem.r >= LEAST_ROWS else []
    if not options:
        return None
    seconds, _, best = min((counted_s(problem, cut, gpu), repr(cut), cut) for cut in options)
    return (best, seconds) if seconds < CLEARLY * model.predicted_s(problem, "weight_gradient", gpu) else None


def counted_s(problem: ConvolutionProblem, cut: PairedWeightGradient, gpu: Gpu) -> float:
    """Seconds of both launches with a configuration."""
    clock, units = gpu.sustained_clock_hz, cut.images * cut.eights
    blocks = ceil(problem.c / cut.channels) * cut.splits
    turns = ceil(blocks / (gpu.sms * cut.residents))
    resident = min(cut.residents, blocks / gpu.sms)
    steps = turns * _steps(problem, cut)
    shared = steps * units * cut.octets * (2 + 2 * cut.rows) * LOAD_WAVES * FIT.load_clocks * max(1.0, resident)
    unit = FIT.unit_clocks + FIT.row_clocks * cut.rows
    waits = steps * (FIT.step_clocks + units / cut.shares * unit)
    memory = FIT.memory * problem.bytes_moved / gpu.copy_bytes_per_s
    fold = FIT.fold * 8 * problem.weight_elements * cut.splits / gpu.copy_bytes_per_s
    return 1e-6 * FIT.start_us + fold + cbrt(memory**3 + (shared / clock) ** 3 + (waits / clock) ** 3)


def _steps(problem: ConvolutionProblem, cut: PairedWeightGradient) -> float:
    """Groups of rows of x that a block multiplies: of its stretch, and at its ends those that meet rows of others."""
    stretch, whole = ceil(line(problem, cut) / cut.splits), row_groups(problem, cut)
    inside = min(whole, ceil(problem.h / cut.rows) + 1)
    ends = following(problem, cut.rows) * min(1.0, stretch / whole)
    return stretch * inside / whole + ends
