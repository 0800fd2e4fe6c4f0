"""What was timed on the GPU that asks: the fastest cut of a pass, and the time of cuDNN beside it.

`tapestry.kernels.torch.tune` puts it here, `choices.py` and the layers of torch look here before they ask the cost
model. It lies beside the compiled kernels, under a key of the kernels' sources and of all that chooses among them:
another version of either has other times. The planner does not look here: its plans are the same on every machine.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.kept import Shelf, digest_of
from .configuration import ForwardConfiguration
from .depthwise_weight_gradient_configuration import DepthwiseWeightGradient
from .problem import ConvolutionProblem
from .weight_gradient_configuration import WeightGradientConfiguration
from .wide_forward_configuration import WideConfiguration
from .wide_weight_gradient import WideWeightGradient

if TYPE_CHECKING:
    from ..cost.gpu import Gpu
    from ..cost.model import Pass
    from .choices import GradientConfiguration
    from .wide import Walked, Way


@cache
def version() -> str:
    """A digest of the kernels and of what chooses."""
    package = Path(__file__).resolve().parent.parent
    folders = (package / folder for folder in ("convolution", "cost", "include"))
    return digest_of(folders, (".py", ".json", ".cu", ".cuh"))


_cuts = Shelf("cut", version, ForwardConfiguration)
_gradients = Shelf("gradient", version, WeightGradientConfiguration, DepthwiseWeightGradient, WideWeightGradient)
_ways = Shelf("way", version, WideConfiguration, ForwardConfiguration)
_times = Shelf("times", version)


def forget() -> None:
    """What is in memory: it is read again."""
    for shelf in (_cuts, _gradients, _ways, _times):
        shelf.forget()


def cut(walked: ConvolutionProblem, what: Pass, gpu: Gpu) -> ForwardConfiguration | None:
    """The cut of a forward pass or an input gradient of narrow groups, by what is walked."""
    found: ForwardConfiguration | None = _cuts.get(walked, what, gpu)
    return found


def gradient_cut(problem: ConvolutionProblem, gpu: Gpu) -> GradientConfiguration | None:
    """The cut of a weight gradient."""
    found: GradientConfiguration | None = _gradients.get(problem, gpu)
    return found


def way(problem: ConvolutionProblem, what: Walked, gpu: Gpu, fused: bool) -> Way | ForwardConfiguration | None:
    """The way of a forward pass or an input gradient by the kernels of wide groups.

    Or the cut of those of narrow groups, where these were faster at what both compute. `fused`: something follows the
    sums.
    """
    found: Way | ForwardConfiguration | None = _ways.get(problem, what, gpu, fused)
    return found


def left(problem: ConvolutionProblem, what: Pass, gpu: Gpu, library: str) -> bool | None:
    """Whether cuDNN, as `library` says it is set, took less than the cut that is kept; None where that is not known."""
    found = _times.get(problem, what, gpu, library)
    return None if found is None else bool(found[1] < found[0])


def keep(problem: ConvolutionProblem, what: Pass, gpu: Gpu, fused: bool, chosen: Any) -> None:
    """A cut as the fastest of a pass; of narrow forward passes and input gradients, of whatever they walk."""
    from .recipes import walk
    from .wide import computes

    if what == "weight_gradient":
        _gradients.put(chosen, problem, gpu)
        return
    if isinstance(chosen, ForwardConfiguration):
        _cuts.put(chosen, walk(problem, what).problem, what, gpu)
    if computes(problem, gpu):
        _ways.put(chosen, problem, what, gpu, fused)


def keep_times(
    problem: ConvolutionProblem, what: Pass, gpu: Gpu, library: str, microseconds: float, by_library: float
) -> None:
    """How long a pass takes with the cut that is kept, and by cuDNN as `library` says it is set."""
    _times.put((microseconds, by_library), problem, what, gpu, library)
