"""Compile what a plan or a model will run before it runs: without a GPU, many kernels at a time, into the cache."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .convolution.pixels import PixelKind
from .convolution.problem import ConvolutionProblem
from .convolution.recipes import PASSES, Pass, recipes
from .errors import WrongValue
from .runtime.compiler import Compiled, Recipe

if TYPE_CHECKING:
    from .cost.gpu import Gpu


class Called(NamedTuple):
    """What a layer is called for: the passes that may be; whether anything is added, and whether the filter is f32."""

    problem: ConvolutionProblem
    passes: tuple[Pass, ...]
    biased: bool
    wide: bool
    kinds: tuple[PixelKind, ...]


def warm_up(
    plan: Any,
    example: Any = None,
    *,
    arch: str = "sm_90",
    gpu: str = "H200",
    passes: Sequence[Pass] | None = None,
    jobs: int | None = None,
    progress: bool = False,
    background: bool = False,
) -> list[Compiled]:
    """Compile every kernel that `plan` needs, by at most `jobs` processes (one a processor unless given), and as many
    that choose.

    `plan` is a plan of the planner or its document, whose grouped convolutions are compiled for every shard; or a torch
    model whose layers were replaced, called with `example` (a tensor, or a tuple of arguments; nothing is computed, and
    autocast counts where it is on); or an iterable of any of

        ConvolutionProblem            for `passes`: forward, input_gradient, weight_gradient
        (ConvolutionProblem, pass)    or (problem, dtype, pass)
        Recipe                        a source of one's own
        a kernel of tapestry.kernels.elementwise or .normalization

    `passes` are the forward one unless given, all three for a model in training. The configurations are those chosen
    for `gpu` ("NVIDIA H200"); `arch` is what its code is made for. With `progress` a bar on stderr says how far it is.
    In the `background` nothing is waited for, and nothing returned: for a model of torch, cuDNN computes what is not
    there yet. What torch.compile alone calls for follows in the background in any case. Raises `WrongValue`, and as
    `compile_source` does.
    """
    from .cost.gpu import known_gpu
    from .runtime.parallel import compile_all

    known = known_gpu(gpu)
    if known is None:
        raise WrongValue("no such GPU", where="warm_up", expected="the name of a GPU the cost model knows", came=gpu)
    model = _is_model(plan)
    chosen = passes or (PASSES if model and plan.training else ("forward",))
    for what in chosen:
        if what not in PASSES:
            raise WrongValue("no such pass", where="warm_up", expected=", ".join(PASSES), came=repr(what))
    if model:
        from .tensors.native_calls import begin

        begin()
    called = _called(plan, example) if model else []
    items = _layers(plan, example, called, chosen, known, jobs) if model else _items(plan)
    seen: set[Recipe] = set()
    wanted = once((recipe for item in items for recipe in _recipes(item, chosen, known)), seen)
    later = once(_rounded(called, chosen, known), seen)
    if background:
        _begin([*wanted, *later], arch, serve=model)
        return []
    with bar(progress) as note:
        made = compile_all(wanted, arch, jobs, note)
    _begin(list(later), arch, serve=False)
    if model and progress:
        from .tensors.native_calls import state

        print(f"calls without Python: {state()}", file=sys.stderr)
    return made


def once(recipes: Iterable[Recipe], seen: set[Recipe] | None = None) -> Iterator[Recipe]:
    """Each of them once, as it comes, but for those `seen`: the first are compiled while others are being chosen."""
    seen = set() if seen is None else seen
    for recipe in recipes:
        if recipe not in seen:
            seen.add(recipe)
            yield recipe


def _is_model(plan: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(plan, torch.nn.Module)


def _called(model: Any, example: Any) -> list[Called]:
    """What a model's layers are called for, each kind once."""
    import torch

    from .layers.grouped import GroupedConv2d
    from .layers.large_filters import LargeFilters
    from .models.arguments import check_example
    from .models.convolutions import convolutions

    if example is None:
        raise WrongValue("a model without an example input", where="warm_up", expected="warm_up(model, x)", came="None")
    check_example(example, "warm_up")
    made: dict[Called, None] = {}
    for met in convolutions(model, example, GroupedConv2d):
        # A gradient has the type of the parameter that it is of; those of large filters are sums of what is f32.
        wide = met.layer.weight.dtype == torch.float32 or isinstance(met.layer, LargeFilters)
        made[Called(met.problem, met.passes, met.layer.bias is not None, wide, met.kinds)] = None
    return list(made)


def _layers(
    model: Any, example: Any, called: Sequence[Called], passes: Sequence[Pass], gpu: Gpu, jobs: int | None
) -> Iterator[Recipe]:
    """The kernels of a model's layers, those left to cuDNN excepted; in training, of biases and fused norms.

    Those that take longest to be compiled come first, of those that have to be chosen: others are chosen meanwhile.
    """
    from .choosing import Call, chosen
    from .layers.biases import BiasedConv2d, BiasedLinear
    from .layers.followed import followed_kinds
    from .layers.gelu import gelu_kinds
    from .layers.grouped import GroupedConv2d
    from .layers.layer_norms import row_kinds
    from .layers.norms import kinds, lowered
    from .layers.pools import pool_kinds
    from .layers.response_norms import response_kinds
    from .models.excitations import excitation_kinds
    from .models.scales import scale_kinds
    from .tensors.channel_sums import sum_kinds
    from .tensors.convolution_calls import left_on

    # Nothing has to be chosen for these: they are compiled while the first of the others are chosen.
    yield from (kind.recipe("pixel_blocks") for of in called for kind in of.kinds)
    yield from (kind.recipe("maximum") for kind in pool_kinds(model, lowered(example)))
    yield from (kind.recipe("image_map") for kind in response_kinds(model, lowered(example)))
    yield from (kind.recipe("scaled_sum") for kind in scale_kinds(model, lowered(example)))
    yield from (kind.recipe("image_map") for kind in excitation_kinds(model, lowered(example)))
    yield from (kind.recipe() for kind in followed_kinds(model, lowered(example)))
    if model.training:
        yield from (kind.recipe("norm_apply") for kind in kinds(model, lowered(example)))
        yield from (kind.recipe("gelu") for kind in gelu_kinds(model, lowered(example)))
    if "weight_gradient" in passes:
        layers = [part for part in model.modules() if isinstance(part, (GroupedConv2d, BiasedConv2d, BiasedLinear))]
        yield from (kind.recipe("image_sums") for kind in sum_kinds(layers, lowered(example)))
    calls = [Call(of.problem, what, of.biased, of.wide) for of in called for what in passes if what in of.passes]
    for call in chosen(sorted(calls, key=lambda call: _length(call.what, call.problem), reverse=True), gpu, jobs):
        if not left_on(call.problem, call.what, gpu):
            yield from call.recipes(gpu)
    yield from (kind.recipe("layer_norm") for kind in row_kinds(model, lowered(example)))


def _length(what: Pass, problem: ConvolutionProblem) -> tuple[bool, int]:
    """What sorts passes by how long they take to be chosen, where they may be several sweeps in one kernel, and to be
    compiled: by the taps of a filter and its stride; weight gradients have loops over them.
    """
    taps, step = problem.r * problem.s, problem.stride[0]
    return what == "input_gradient" and step > 1, 0 if what == "weight_gradient" else taps * step


def _rounded(called: Sequence[Called], passes: Sequence[Pass], gpu: Gpu) -> Iterator[Recipe]:
    """What torch.compile calls for beside that: gradients of f32 filters that it rounds, as the operators do."""
    if not called or "weight_gradient" not in passes:
        return  # nor is torch asked for
    from .tensors.convolution_calls import left_on

    for of in called:
        if of.wide and not left_on(of.problem, "weight_gradient", gpu):
            yield from recipes(of.problem, "weight_gradient", gpu)


def _begin(wanted: Sequence[Recipe], arch: str, serve: bool) -> None:
    from .runtime.background import begin

    begin(wanted, arch)
    if serve:
        from .tensors.convolution_calls import compile_in_background

        compile_in_background()


@contextlib.contextmanager
def bar(shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, if `shown`: what is given takes how many kernels are there, and of how many."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task("compiling kernels", total=None)
        yield lambda there, known: progress.update(task, completed=there, total=known)


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
