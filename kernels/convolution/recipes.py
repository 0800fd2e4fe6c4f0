"""What has to be compiled for a convolution, before anyone asks for it: needs no GPU and no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import WrongValue
from ..runtime.compiler import Recipe
from . import choices, direct, forward, forward_walk, input_gradient, weight_gradient, wide
from .configuration import ForwardConfiguration, trades
from .launch import ALL, Walk
from .problem import ConvolutionProblem
from .wide_weight_gradient import WideWeightGradient

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

Pass = Literal["forward", "input_gradient", "weight_gradient"]
PASSES: tuple[Pass, ...] = ("forward", "input_gradient", "weight_gradient")


def walk(problem: ConvolutionProblem, what: Literal["forward", "input_gradient"]) -> Walk:
    """What the forward kernel walks for a pass of `problem`: its configurations are those of the walk's problem."""
    return forward_walk.walk(problem) if what == "forward" else input_gradient.walk(problem)


def forward_recipe(problem: ConvolutionProblem, cut: ForwardConfiguration, flags: Mapping[str, Any]) -> Recipe:
    """The tensor-core kernel of a forward pass, or of the walk of an input gradient."""
    return Recipe("forward", forward.source(problem, cut, **flags), feature="a" if trades(problem, cut) else "")


def direct_recipe(problem: ConvolutionProblem, flags: Mapping[str, Any]) -> Recipe:
    """The plain kernel."""
    return Recipe(direct.NAME, direct.source(problem, **flags))


def weight_gradient_recipes(
    problem: ConvolutionProblem, choice: choices.GradientConfiguration, partial: bool = False
) -> list[Recipe]:
    """The one kernel of a weight gradient; or the one that leaves partial sums and the one that adds them."""
    if isinstance(choice, WideWeightGradient):
        return wide.gradient_recipes(problem, choice, partial)
    return weight_gradient.recipes(problem, choice, partial)


def recipes(
    problem: ConvolutionProblem,
    what: Pass,
    gpu: Gpu,
    flags: Mapping[str, Any] | None = None,
    partial: bool = False,
) -> list[Recipe]:
    """Every kernel that a pass of `problem` on a GPU runs, for dense tensors.

    `flags` say what is fused into a forward pass: scale, bias, residual (bool), activation (name). A `partial` weight
    gradient is left in f32.
    """
    if what not in PASSES:
        raise WrongValue("no such pass", where="recipes", expected=", ".join(PASSES), came=repr(what))
    if what == "weight_gradient":
        return weight_gradient_recipes(problem, choices.gradient_cut(problem, gpu), partial)
    given = dict(flags or {}) if what == "forward" else {}
    if found := choices.sweeps(problem, what, gpu, any(given.values())):
        return wide.recipes(found, given)
    walked = walk(problem, what)
    cut = choices.cut(walked.problem, what, gpu, whole=walked.columns == ALL)
    if cut is None:
        return [direct_recipe(problem, {"transposed": True} if what == "input_gradient" else given)]
    return recipes_of(problem, what, cut, given)


def recipes_of(problem: ConvolutionProblem, what: Pass, cut: Any, flags: Mapping[str, Any]) -> list[Recipe]:
    """The same with a cut that is given: a configuration, or a way (`wide.Way`)."""
    if what == "weight_gradient":
        return weight_gradient_recipes(problem, cut)
    if isinstance(cut, tuple):
        return wide.recipes(wide.sweeps(problem, what, cut), flags)
    walked, given = walk(problem, what), {"transposed": True} if what == "input_gradient" else flags
    return [forward_recipe(walked.problem, cut, {**given, "taps": walked.taps})]
