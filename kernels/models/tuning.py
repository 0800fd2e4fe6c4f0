"""Timing a model's convolutions on the GPU that it runs on, and keeping what was fastest.

Untuned, the cost model chooses among the cuts of a kernel, and between it and cuDNN, whose times it knows of one GPU
and one way of choosing algorithms. Here both are timed: what is kept (`convolution/tuned.py`) is what is chosen from
then on, by this process and by others that use the same cache.

A pass is timed as a model runs it, with a kernel before and behind it that is none of these: launches of ours, which
may begin while the one ahead ends, gain nothing by each other. Operands rotate past the L2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from .. import conv2d
from ..convolution import prepare, tuned
from ..convolution.prepare import NOTHING, Fused, Steps
from ..convolution.problem import ConvolutionProblem
from ..convolution.recipes import PASSES, Pass, recipes_of
from ..cost.contenders import contenders
from ..cost.gpu import Gpu, described_gpu
from ..errors import KernelError, WrongDevice, WrongValue
from ..layers.grouped import GroupedConv2d
from ..runtime.device import properties
from ..runtime.stream import torch_stream
from ..tensors import convolution_calls, library
from ..tensors.convolution_calls import described
from ..tensors.geometry import Geometry
from ..tensors.operands import dense
from ..tensors.timing import graph_us
from .arguments import check_example, check_model
from .convolutions import convolutions
from .replacement import unfit

Call = Callable[[int], Any]
DTYPES = {name: dtype for dtype, name in convolution_calls.DTYPES.items()}

CUTS = 8  # of a pass that are timed, unless another number is given
CHAIN, REPLAYS, ROUNDS = 20, 5, 2
CLEARLY = 0.99  # of the time of what is chosen untimed: less says nothing
ROTATED = 2.0  # times the L2
NEIGHBOUR_ELEMENTS = 1 << 14  # of the kernel between two passes
# Half precision of sums of as many terms as there are, in another order: far below what a wrong tap makes.
ALIKE = 2.0**-5


@dataclass(frozen=True)
class TunedPass:
    """One pass of one kind of layer: who computes it from now on, and the microseconds that decided it.

    `untuned` is the time of the cut that would have been taken, `tuned` that of the fastest of the `cuts` that were
    timed. `refused` cuts could not be run, or gave other numbers than most, and are not taken.
    """

    names: tuple[str, ...]
    problem: ConvolutionProblem
    what: Pass
    untuned: float
    tuned: float
    cudnn: float
    cuts: int
    refused: tuple[Any, ...] = ()

    @property
    def left(self) -> bool:
        """Whether cuDNN computes it."""
        return self.cudnn < self.tuned


@dataclass(frozen=True)
class Tuned:
    """What `tune` measured: printed, a table."""

    gpu: str
    setting: str
    passes: tuple[TunedPass, ...]

    def __str__(self) -> str:
        left, other = sum(row.left for row in self.passes), sum(row.tuned < row.untuned for row in self.passes)
        said = f"{len(self.passes)} passes timed on {self.gpu} beside {self.setting}: {other} by another cut than was"
        lines = [f"{said} guessed, {left} left to cuDNN"]
        lines += [f"  {'layer':40} {'pass':15} {'guessed':>9} {'fastest':>9} {'cuDNN':>9}  µs"] if self.passes else []
        for row in self.passes:
            name = row.names[0] if len(row.names) == 1 else f"{row.names[0]} and {len(row.names) - 1} more"
            times = " ".join(f"{time:9.1f}" for time in (row.untuned, row.tuned, row.cudnn))
            said = "cuDNN" if row.left else "ours"
            wrong = f", {len(row.refused)} cuts gave other numbers or none" if row.refused else ""
            lines.append(f"  {name:40} {row.what.replace('_', ' '):15} {times}  {said}{wrong}")
        return "\n".join(lines)


def tune(
    model: nn.Module,
    example: Any,
    *,
    passes: Sequence[Pass] | None = None,
    cuts: int = CUTS,
    jobs: int | None = None,
    progress: bool = False,
) -> Tuned:
    """Time the convolutions of `model` on its GPU, ours by up to `cuts` cuts and cuDNN's, and keep what was fastest.

    `example` (a tensor on the GPU, or a tuple of arguments) says with which shapes; autocast counts where it is on, and
    cuDNN is timed as `torch.backends.cudnn` is set: `benchmark` makes another choice, kept by itself. Layers count
    that are replaced, or would be by `replace_convolutions`. `passes` are all three for a model in training, else the
    forward one. Kernels are compiled first, `jobs` at a time, with `progress` under a bar on stderr.

    What is found holds for this process and, by way of the cache, for others on such a GPU. Of all cuts and cuDNN those
    are right that give the numbers that most give; others are not taken. Raises `WrongDevice` for a model that is not
    on a GPU, `WrongType` and `WrongValue`.
    """
    check_model(model, "tune")
    check_example(example, "tune")
    device, chosen = _device(model, example), tuple(passes or (PASSES if model.training else PASSES[:1]))
    for what in chosen:
        if what not in PASSES:
            raise WrongValue("no such pass", where="tune", expected=", ".join(PASSES), came=repr(what))
    if cuts < 1:
        raise WrongValue("cuts", where="tune", expected="a positive number", came=cuts)
    gpu = described_gpu(properties(device))
    kinds = _kinds(model, example)
    wanted = dict.fromkeys(
        (problem, what, biased and what == "forward")
        for problem, biased, passes in kinds
        for what in chosen
        if what in passes
    )
    options = {key: found for key in wanted if (found := contenders(*key[:2], gpu, cuts, key[2]))}
    _compile(options, device, jobs, progress)
    rows: list[TunedPass] = []
    try:
        with torch.cuda.device(device), torch.no_grad():
            clock = Clock(device)
            for (problem, what, biased), found in options.items():
                names = _names(kinds, problem, None if what != "forward" else biased)
                rows += _timed(names, Operands(problem, what, biased, device, gpu), found, gpu, clock)
                torch.cuda.empty_cache()
    finally:  # whatever ended it early: what was kept by then holds
        convolution_calls.forget()
        conv2d.forget()
    return Tuned(gpu.name, library.setting(), tuple(rows))


def _device(model: nn.Module, example: Any) -> int:
    tensors = [value for value in tree_iter(example) if isinstance(value, Tensor)]
    devices = {value.device for value in (*tensors, *model.parameters())}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise WrongDevice(
            "nothing to time on", where="tune", expected="a model and an example on one GPU",
            came=", ".join(sorted(map(str, devices))),
            hint='move both there: tune(model.to("cuda"), x.to("cuda"))',
        )  # fmt: skip
    return tensors[0].get_device()


_Kind = tuple[ConvolutionProblem, bool, tuple[Pass, ...]]  # whether a bias is added, and the passes that may be called


def _kinds(model: nn.Module, example: Any) -> dict[_Kind, list[str]]:
    """The names of the layers of each kind."""
    found: dict[_Kind, list[str]] = {}
    for met in convolutions(model, example):
        if isinstance(met.layer, GroupedConv2d) or unfit(met.layer) is None:
            names = found.setdefault((met.problem, met.layer.bias is not None, met.passes), [])
            if met.name not in names:
                names.append(met.name)
    return found


def _names(kinds: dict[_Kind, list[str]], problem: ConvolutionProblem, biased: bool | None) -> tuple[str, ...]:
    """The layers of a problem: those with a bias, those without, or (None) all."""
    alike = (names for (of, with_bias, _), names in kinds.items() if of == problem and biased in (None, with_bias))
    return tuple(name for names in alike for name in names)


def _compile(options: dict[Any, list[Any]], device: int, jobs: int | None, progress: bool) -> None:
    from ..runtime.device import device_architecture
    from ..runtime.parallel import compile_all
    from ..warm_up import bar, once

    wanted = once(
        recipe
        for (problem, what, biased), cuts in options.items()
        for cut in cuts
        for recipe in recipes_of(problem, what, cut, {"bias": True} if biased else {})
    )
    with bar(progress) as note:
        compile_all(wanted, device_architecture(device), jobs, note)


# -- timing ------------------------------------------------------------------------------------------------------------


class Clock:
    """What times calls on a GPU as a model makes them: with a small kernel of torch's before and behind each."""

    def __init__(self, device: int) -> None:
        self._other = torch.zeros(NEIGHBOUR_ELEMENTS, device=device)
        self._alone = graph_us(self._neighbour, CHAIN, REPLAYS)

    def us(self, call: Call) -> float:
        """Microseconds of a call."""

        def both(i: int) -> None:
            call(i)
            self._neighbour(i)

        return max(0.0, graph_us(both, CHAIN, REPLAYS) - self._alone)

    def _neighbour(self, _: int) -> None:
        self._other.add_(1.0)


def _timed(
    names: tuple[str, ...], operands: Operands, cuts: Sequence[Any], gpu: Gpu, clock: Clock
) -> Iterator[TunedPass]:
    """Time a pass, and keep what was fastest; nothing of one that no cut computes."""
    problem, what, setting = operands.problem, operands.what, library.setting()
    right, refused = agreeing(operands, cuts)
    if not right:
        return
    calls = [*(call for _, call in right), operands.by_cudnn()]
    rounds = [[clock.us(call) for call in calls] for _ in range(ROUNDS)]
    *times, by_cudnn = map(min, zip(*rounds, strict=True))
    best = min(range(len(times)), key=times.__getitem__)
    if times[best] > CLEARLY * times[0]:
        best = 0
    tuned.keep(problem, what, gpu, operands.bias is not None, right[best][0])
    tuned.keep_times(problem, what, gpu, setting, times[best], by_cudnn)
    yield TunedPass(names, problem, what, times[0], times[best], by_cudnn, len(cuts), refused)


def agreeing(operands: Operands, cuts: Sequence[Any]) -> tuple[list[tuple[Any, Call]], tuple[Any, ...]]:
    """The cuts that give the numbers that most give, cuDNN among them, each with its call; and the others."""
    calls: dict[int, Call] = {}
    alike: list[tuple[Tensor, list[int]]] = [(operands.by_cudnn()(0).float(), [len(cuts)])]
    out = operands.outs[0]
    for number, cut in enumerate(cuts):
        try:
            call = operands.by(cut)
        except KernelError:
            continue
        out.fill_(float("nan"))
        call(0)
        calls[number], found = call, out.float()
        with_these = next((numbers for other, numbers in alike if _same(found, other)), None)
        if with_these is None:
            alike.append((found, [number]))
        else:
            with_these.append(number)
    _, most = max(alike, key=lambda those: len(those[1]))
    right = [(cut, calls[number]) for number, cut in enumerate(cuts) if number in most]
    return right, tuple(cut for number, cut in enumerate(cuts) if number not in most)


def _same(found: Tensor, other: Tensor) -> bool:
    bound = ALIKE * (other.square().mean().sqrt() + other.abs())
    return bool(((found - other).abs() <= bound).all())


class Operands:
    """Tensors of a pass, as many as do not fit into the L2 together, and what computes it of them."""

    def __init__(self, problem: ConvolutionProblem, what: Pass, biased: bool, device: int, gpu: Gpu) -> None:
        self.problem, self.what, self.device = problem, what, device
        self.geometry = Geometry(problem.stride, problem.padding, problem.dilation, problem.groups)
        n, p, q, k = problem.output_shape
        _, r, s, width = problem.weight_shape
        shapes = {"x": (n, problem.c, problem.h, problem.w), "dy": (n, k, p, q), "w": (k, width, r, s)}
        first, second, result = {
            "forward": ("x", "w", "dy"), "input_gradient": ("dy", "w", "x"), "weight_gradient": ("x", "dy", "w"),
        }[what]  # fmt: skip
        self.shape = shapes[result]
        moved = 2 * sum(torch.Size(shapes[name]).numel() for name in (first, second, result))
        count = max(2, min(CHAIN, int(ROTATED * gpu.l2_bytes / moved) + 1))
        random = torch.Generator(torch.empty(0, device=device).device).manual_seed(0)  # not the model's numbers
        make = partial(_random, random, DTYPES[problem.dtype])
        self.firsts = [make(shapes[first]) for _ in range(count)]
        self.seconds = [make(shapes[second]) for _ in range(count if second == "dy" else 1)]
        self.outs = [library.empty(self.firsts[0], self.shape) for _ in range(count)]
        self.bias = torch.randn(k, device=device, generator=random) if biased else None
        self._rooms: list[Tensor] = []

    def _at(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(tensors[i % len(tensors)] for tensors in (self.firsts, self.seconds, self.outs))  # type: ignore[return-value]

    def by(self, cut: Any) -> Call:
        """By our kernel."""
        steps = [self._steps(cut, i) for i in range(len(self.firsts))]
        return lambda i: steps[i % len(steps)].run(torch_stream(self.device))

    def _steps(self, cut: Any, i: int) -> Steps:
        first, second, out = (described(tensor, "operand") for tensor in self._at(i))
        if self.what == "forward":
            fused = NOTHING if self.bias is None else Fused(bias=described(self.bias, "bias"))
            return prepare.forward_steps(self.problem, first, second, out, fused, cut)
        if self.what == "input_gradient":
            return prepare.input_gradient_steps(self.problem, first, second, out, cut)
        size = prepare.workspace_bytes(self.problem, cut)
        room = None
        if size:
            self._rooms.append(torch.empty(size, dtype=torch.uint8, device=self.device))
            room = described(self._rooms[-1], "workspace")
        return prepare.weight_gradient_steps(self.problem, first, second, out, out.dtype, room, cut)

    def by_cudnn(self) -> Call:
        """By torch; its results are kept for as many calls as ours have places for theirs."""
        kept: deque[Tensor] = deque(maxlen=len(self.outs))
        forward, gradient, filter_gradient = (
            library.forward, library.input_gradient, library.weight_gradient,
        )  # fmt: skip

        def call(i: int) -> Tensor:
            first, second, _ = self._at(i)
            if self.what == "forward":
                kept.append(forward(first, second, self.bias, *self.geometry))
            else:
                made = gradient if self.what == "input_gradient" else filter_gradient
                kept.append(made(first, second, self.shape, *self.geometry))
            return kept[-1]

        return call


def _random(random: torch.Generator, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return dense(torch.randn(shape, device=random.device, generator=random).to(dtype))
