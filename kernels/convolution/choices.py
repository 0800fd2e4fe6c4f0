"""What is chosen for a pass of a convolution, kept beside the compiled kernels: later processes read it there.

The choices are those of `cost/` and `wide.py`. They depend on problem, pass and GPU, and on nothing else but the
modules and the data that make them; wide groups have thousands of cuts, of which to choose takes 0.1 s and more.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.kept import kept
from . import wide
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
    package, digest = Path(__file__).resolve().parent.parent, hashlib.sha256()
    found = (path for folder in ("convolution", "cost") for path in (package / folder).rglob("*"))
    for path in sorted(path for path in found if path.suffix in (".py", ".json")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


@kept(version, ForwardConfiguration, WeightGradientConfiguration)
def cut(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> Any:
    """`cost.model.choose`."""
    from ..cost.model import choose

    return choose(problem, what, gpu)


@kept(version, WeightGradientConfiguration, DepthwiseWeightGradient, WideWeightGradient)
def gradient_cut(problem: ConvolutionProblem, gpu: Gpu) -> GradientConfiguration:
    """The configuration of a weight gradient, by whichever kernel computes it."""
    from ..cost import depthwise

    return wide.gradient_cut(problem, gpu) or depthwise.choose(problem, gpu)


@lru_cache(maxsize=4096)
def sweeps(problem: ConvolutionProblem, what: wide.Walked, gpu: Gpu, fused: bool) -> wide.Cuts:
    """`wide.cuts`."""
    return wide.sweeps(problem, what, _way(problem, what, gpu, fused)) if wide.takes(problem, gpu) else ()


@kept(version, WideConfiguration)
def _way(problem: ConvolutionProblem, what: wide.Walked, gpu: Gpu, fused: bool) -> wide.Way | None:
    return wide.way(problem, what, gpu, fused)


@kept(version)
def left_to_cudnn(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> bool:
    """`cost.cudnn.is_faster`."""
    from ..cost.cudnn import is_faster

    return is_faster(problem, what, gpu)
