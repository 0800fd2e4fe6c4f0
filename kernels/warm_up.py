"""Compile what a plan will run before it runs: without a GPU, many kernels at a time, into the cache on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .convolution.problem import ConvolutionProblem
from .convolution.recipes import PASSES, Pass, recipes
from .errors import WrongValue
from .runtime.compiler import Compiled, Recipe

if TYPE_CHECKING:
    from .cost.gpu import Gpu


def warm_up(
    plan: Any,
    *,
    arch: str = "sm_90",
    gpu: str = "H200",
    passes: Sequence[Pass] = ("forward",),
    jobs: int | None = None,
) -> list[Compiled]:
    """Compile every kernel that `plan` needs, at most `jobs` at a time (one a processor unless given).

    `plan` is a plan of the planner or its document, whose grouped convolutions are compiled for every shard; or an
    iterable of any of

        ConvolutionProblem            for `passes`: forward, input_gradient, weight_gradient
        (ConvolutionProblem, pass)    or (problem, dtype, pass)
        Recipe                        a source of one's own
        a kernel of tapestry.kernels.elementwise or .normalization

    The configurations are those chosen for `gpu` ("NVIDIA H200"); `arch` is what its code is made for. Raises
    `WrongValue`, and as `compile_source` does.
    """
    from .cost.gpu import known_gpu
    from .runtime.parallel import compile_all

    known = known_gpu(gpu)
    if known is None:
        raise WrongValue("no such GPU", where="warm_up", expected="the name of a GPU the cost model knows", came=gpu)
    for what in passes:
        if what not in PASSES:
            raise WrongValue("no such pass", where="warm_up", expected=", ".join(PASSES), came=repr(what))
    wanted = [recipe for item in _items(plan) for recipe in _recipes(item, passes, known)]
    return compile_all(list(dict.fromkeys(wanted)), arch, jobs)


def _items(plan: Any) -> Iterator[Any]:
    if isinstance(plan, Iterable) and not isinstance(plan, dict | str):
        yield from plan
    else:
        from .convolution.in_plans import problems

        for found in problems(plan).values():
            yield from found


def _recipes(item: Any, passes: Sequence[Pass], gpu: Gpu) -> list[Recipe]:
    if isinstance(item, Recipe):
        return [item]
    if isinstance(item, ConvolutionProblem):
        return [recipe for what in passes for recipe in recipes(item, what, gpu)]
    if isinstance(item, tuple) and item and isinstance(item[0], ConvolutionProblem):
        return recipes(_of_type(item), item[-1], gpu)
    source, entry = getattr(item, "source", None), getattr(item, "entry", None)
    if isinstance(source, str) and isinstance(entry, str):
        return [Recipe(entry, source)] if source else []
    raise WrongValue(
        "nothing to compile",
        where="warm_up",
        expected="a plan, convolution problems, (problem, pass), recipes, elementwise or row kernels",
        came=f"{type(item).__name__} {item!r:.80}",
    )


def _of_type(item: tuple[Any, ...]) -> ConvolutionProblem:
    """The problem of (problem, pass) or (problem, dtype, pass)."""
    from dataclasses import replace

    problem: ConvolutionProblem = item[0]
    return problem if len(item) == 2 else replace(problem, dtype=item[1])
