"""What is chosen for a pass of a convolution, kept beside the compiled kernels: later processes read it there.

The choices are those of `cost/` and `wide.py`. They depend on problem, pass and GPU (for an H100 what an H200 took
says, `cost.gpu.measured_as`), and on nothing else but the modules and the data that make them; wide groups have
thousands of cuts, of which to choose takes 0.1 s and more. Where cuts were timed on the GPU that asks (`tuned.py`) the
fastest of those stands instead.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cost.gpu import measured_as
from ..runtime.kept import digest_of, kept
from . import tuned, wide
from .configuration import ForwardConfiguration
from .depthwise_weight_gradient_configuration import DepthwiseWeightGradient
from .problem import ConvolutionProblem
from .weight_gradient_configuration import WeightGradientConfiguration
from .wide_forward_configuration import WideConfiguration
from .wide_weight_gradient import WideWeightGradient

if TYPE_CHECKING:
    from ..cost.gpu import Gpu
    from ..cost.model import Pass

GradientConfiguration = WeightGradientConfiguration | DepthwiseWeightGradient | WideWeightGradient


@cache
def version() -> str:
    """A digest of all that chooses: the modules of convolutions, the cost model, and its data."""
    package = Path(__file__).resolve().parent.parent
    return digest_of((package / folder for folder in ("convolution", "cost")), (".py", ".json"))


def cut(problem: ConvolutionProblem, what: Pass, gpu: Gpu, whole: bool = True) -> Any:
    """The configuration of a narrow pass: of a forward pass or an input gradient, `problem` is what is walked.

    `whole`: rows of the tensors are stretches of memory, in one buffer each.
    """
    told = tuned.cut(problem, what, gpu)
    return told if told and (whole or not told.flat) else _cut(problem, what, gpu, whole)


@kept(version, ForwardConfiguration, WeightGradientConfiguration)
def _cut(problem: ConvolutionProblem, what: Pass, gpu: Gpu, whole: bool) -> Any:
    """`cost.model.choose`."""
    from ..cost.model import choose

    return choose(problem, what, measured_as(gpu), whole)


def gradient_cut(problem: ConvolutionProblem, gpu: Gpu, whole: bool = True) -> GradientConfiguration:
    """The configuration of a weight gradient, by whichever kernel computes it; `whole` likewise."""
    told: GradientConfiguration | None = tuned.gradient_cut(problem, gpu)
    if told and (whole or not getattr(told, "flat", False)):
        return told
    found: GradientConfiguration = _gradient_cut(problem, gpu, whole)
    return found


@kept(version, WeightGradientConfiguration, DepthwiseWeightGradient, WideWeightGradient)
def _gradient_cut(problem: ConvolutionProblem, gpu: Gpu, whole: bool) -> GradientConfiguration:
    from ..cost import depthwise

    known = measured_as(gpu)
    return wide.gradient_cut(problem, known) or depthwise.choose(problem, known, whole)


def sweeps(problem: ConvolutionProblem, what: wide.Walked, gpu: Gpu, fused: bool) -> wide.Cuts:
    """The sweeps of a pass over wide groups, each with its cut; none where other kernels compute it."""
    if not wide.computes(problem, gpu):
        return ()
    told = tuned.way(problem, what, gpu, fused)
    if isinstance(told, ForwardConfiguration) or (told is None and not wide.takes(problem, what, gpu)):
        return ()
    return _dealt(problem, what, told or _way(problem, what, gpu, fused))


@lru_cache(maxsize=4096)
def _dealt(problem: ConvolutionProblem, what: wide.Walked, way: wide.Way | None) -> wide.Cuts:
    return wide.sweeps(problem, what, way)


@kept(version, WideConfiguration)
def _way(problem: ConvolutionProblem, what: wide.Walked, gpu: Gpu, fused: bool) -> wide.Way | None:
    return wide.way(problem, what, measured_as(gpu), fused)


@kept(version)
def left_to_cudnn(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> bool:
    """`cost.cudnn.is_faster`."""
    from ..cost.cudnn import is_faster

    return is_faster(problem, what, measured_as(gpu))


@kept(version)
def left_with_steps(problem: ConvolutionProblem, gpu: Gpu) -> bool:
    """The same of a forward pass behind which torch would take steps that are part of our launch."""
    from ..cost.cudnn import is_faster

    return is_faster(problem, "forward", measured_as(gpu), followed=True)
