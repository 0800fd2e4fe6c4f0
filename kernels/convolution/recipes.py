"""What has to be compiled for a convolution, before anyone asks for it: needs no GPU and no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import WrongValue
from ..runtime.compiler import Recipe
from . import direct, forward, weight_gradient
from .configuration import ForwardConfiguration
from .input_gradient import walk
from .launch import Taps
from .problem import ConvolutionProblem
from .weight_gradient_configuration import WeightGradientConfiguration

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

Pass = Literal["forward", "input_gradient", "weight_gradient"]
PASSES: tuple[Pass, ...] = ("forward", "input_gradient", "weight_gradient")


def forward_recipe(problem: ConvolutionProblem, cut: ForwardConfiguration, flags: Mapping[str, Any]) -> Recipe:
    """The tensor-core kernel of a forward pass, or of the walk of an input gradient."""
    return Recipe("forward", forward.source(problem, cut, **flags))


def direct_recipe(problem: ConvolutionProblem, flags: Mapping[str, Any]) -> Recipe:
    """The plain kernel."""
    return Recipe(direct.NAME, direct.source(problem, **flags))


def weight_gradient_recipes(
    problem: ConvolutionProblem, choice: WeightGradientConfiguration, partial: bool = False
) -> list[Recipe]:
    """The one kernel of a weight gradient; or the one that leaves partial sums and the one that adds them."""
    source = weight_gradient.source(problem, choice)
    return [Recipe(name, source) for name in weight_gradient.kernel_names(choice, partial)]


def recipes(problem: ConvolutionProblem, what: Pass, gpu: Gpu, flags: Mapping[str, Any] | None = None) -> list[Recipe]:
    """Every kernel that a pass of `problem` on a GPU runs, for dense tensors.

    `flags` say what is fused into a forward pass: scale, bias, residual (bool), activation (name).
    """
    from ..cost.model import choose

    if what == "weight_gradient":
        return weight_gradient_recipes(problem, choose(problem, what, gpu))
    if what not in PASSES:
        raise WrongValue("no such pass", where="recipes", expected=", ".join(PASSES), came=repr(what))
    walked, taps, given = problem, Taps.plain(problem.r, problem.s), dict(flags or {})
    if what == "input_gradient":
        walked, taps, given = walk(problem).problem, walk(problem).taps, {"transposed": True}
    cut = choose(walked, what, gpu)
    return [direct_recipe(problem, given) if cut is None else forward_recipe(walked, cut, {**given, "taps": taps})]
