"""Batch norms of channels-last torch tensors on CUDA as prepared calls (see `convolution_calls`): looked up by one key.

Tensors are [n, c, h, w], dense and channels-last; parameters and what is remembered are of one type, f32 or that of x.
Nothing here is differentiable, and nothing passes through torch's dispatcher but what allocates.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..normalization import batch_norm, stretches
from ..normalization.batch_norm import TOLD_BY_RESULT, Gradients, NormKind, Operands, Remembered
from ..normalization.stretches import Launch
from ..runtime import moving
from ..runtime.compiler import Recipe
from ..runtime.stream import torch_stream
from . import native_calls
from .convolution_calls import REMEMBERED
from .norm_library import Norm, Running, parameter_type
from .operands import ALIGNED, addresses_of

_torch: Any = torch  # what is not typed by torch
DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


class Compilable(Protocol):
    """Kernels of one source."""

    def recipe(self, kernel: Any) -> Recipe: ...


class _Plan:
    """One kind of call: its cut, its launches, once they are prepared, and the plan of its gradient."""

    __slots__ = ("cut", "device", "gradient", "kind", "launches", "momentum", "parameters", "told", "workspace")

    def __init__(self, x: Tensor, norm: Norm, residual: bool, momentum: float | None, parameters: torch.dtype) -> None:
        """`momentum` is None in that of a gradient; `parameters` is their type."""
        from ..runtime.device import properties

        activation = norm.activation
        rows, channels = x.numel() // x.shape[1], x.shape[1]
        self.momentum, self.told = momentum, False
        self.device: int = x.get_device()
        self.parameters = parameters
        self.kind = NormKind.of(channels, DTYPES[x.dtype], activation, residual, DTYPES[parameters])
        room = stretches.RESIDENTS * properties(self.device).sms
        self.cut = stretches.balanced(rows, channels, self.kind.vector, room)
        self.workspace = self.cut.workspace if momentum is not None else batch_norm.gradient_workspace(self.cut)
        self.launches: moving.Launches | None = None
        passes = residual and activation != ""
        self.gradient = self if momentum is None else _Plan(x, norm, passes, None, norm.dtype)

    def run(self, given: Sequence[Tensor | None], norm: Norm, stream: int) -> None:
        """Launch with the tensors that are there."""
        addresses = addresses_of(*given)
        if self.launches is None:
            absent = [tensor is None for tensor in given]
            self.launches = moving.launches(
                lambda at: prepared(self.kind, self._described(_spread(absent, at), norm.epsilon), self.device),
                addresses,
            )
        self.launches.run(addresses, stream)

    def is_news(self, given: Sequence[Tensor | None], taken: Sequence[Tensor | None]) -> bool:
        """Whether the extension is to be told of this call now: it takes what was `given` as it is."""
        if self.told or native_calls.convolve is None or any(a is not b for a, b in zip(given, taken, strict=True)):
            return False
        self.told = True
        return True

    def _described(self, at: Sequence[int], epsilon: float) -> Sequence[Launch]:
        """The launches, of addresses that are 0 for what is not there."""
        if self.momentum is None:
            x, dy, dx, to_weight, to_bias, room, statistics, other, passed, weight, bias = at
            operands = Operands(x, other, weight, bias, statistics, epsilon)
            return batch_norm.gradient(self.cut, operands, Gradients(dy, dx, passed, to_weight, to_bias), room)
        x, y, statistics, room, residual, weight, bias, mean, variance, batches = at
        operands = Operands(x, residual, weight, bias, statistics, epsilon)
        return batch_norm.forward(self.cut, operands, y, room, Remembered(mean, variance, batches, self.momentum))


def prepared(kind: Compilable, launches: Sequence[Launch], device: int) -> list[Any]:
    """Launches of kernels that come out of one compilation, loaded and packed."""
    from ..runtime.background import obtained
    from ..runtime.device import device_architecture
    from ..runtime.module import load

    made, arch = [], device_architecture(device)
    for launch in launches:
        kernel = load(obtained(kind.recipe(launch.kernel), arch), device)
        made.append(kernel.prepare(launch.grid, launch.block, launch.arguments, programmatic=True))
    return made


_plans: dict[tuple[Any, ...], _Plan] = {}
_rooms: dict[tuple[int, int], Tensor] = {}  # what calls on a stream work in, one after another
_settings: dict[int, tuple[float, str]] = {}
_turn = threading.Lock()  # nobody's launches come between those of a call: they share what they work in
_capturing = _torch._C._cuda_isCurrentStreamCapturing


def plan_of(x: Tensor, residual: Tensor | None, norm: Norm, running: Running | None) -> _Plan:
    """The plan of a call and of its gradient."""
    weight, bias, epsilon, activation = norm
    momentum = 0.0 if running is None else momentum_of(running.momentum)
    there = (residual is None, weight is None, bias is None, running is None)
    parameters = parameter_type(weight, bias, None if running is None else running.mean)
    key = (x.shape, x.dtype, x.get_device(), there, parameters, momentum, epsilon, activation)
    plan = _plans.get(key)
    if plan is None:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("norms")
        plan = _plans[key] = _Plan(x, norm, residual is not None, momentum, parameters)
    return plan


def _room(plan: _Plan, stream: int) -> Tensor:
    """f32 to work in: a tensor of the stream's own, or of the graph that is being captured."""
    size = plan.workspace
    if _capturing():
        return torch.empty(size, dtype=torch.float32, device=plan.device)
    found = _rooms.get((plan.device, stream))
    if found is None or found.numel() < size:
        made = torch.empty(2 * size, dtype=torch.float32, device=plan.device)
        found = _rooms[plan.device, stream] = made
    return found


def _spread(absent: Sequence[bool], addresses: Sequence[int]) -> list[int]:
    """The addresses of what is there, 0 for what is not."""
    found = iter(addresses)
    return [0 if missing else next(found) for missing in absent]


def forward(x: Tensor, residual: Tensor | None, norm: Norm, running: Running | None) -> tuple[Tensor, Tensor, _Plan]:
    """(y, [mean, biased variance], the plan); what is remembered is brought up to date."""
    plan, given = plan_of(x, residual, norm, running), (x, residual)
    x, residual = fetchable(x), None if residual is None else fetchable(residual)
    stream, y = torch_stream(plan.device), torch.empty_like(x)
    statistics = x.new_empty((2, plan.cut.channels), dtype=torch.float32)
    mean, variance, batches = (None, None, None) if running is None else running[:3]
    with _turn:
        room = _room(plan, stream)
        plan.run((x, y, statistics, room, residual, norm.weight, norm.bias, mean, variance, batches), norm, stream)
    if plan.is_news(given, (x, residual)):
        call = (x, residual, norm.weight, norm.bias, mean, _named_setting(norm), plan.momentum)
        native_calls.learn("norm", call, plan.workspace, plan.launches)
    return y, statistics, plan


def gradient(
    plan: _Plan, x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, norm: Norm
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of x, weight, bias and, where an activation comes behind it, of a residual.

    `other` is the residual or, where the derivative is known from that, y; None too where nothing comes behind. The
    plan is that of the call.
    """
    plan, given = plan.gradient, (x, dy, other)
    x, dy, other = fetchable(x), fetchable(dy), None if other is None else fetchable(other)
    stream, channels, dx = torch_stream(plan.device), plan.cut.channels, torch.empty_like(x)
    to_weight, to_bias = (statistics.new_empty(channels, dtype=plan.parameters) for _ in range(2))
    passed = None if other is None else torch.empty_like(x)
    with _turn:
        made = (dx, to_weight, to_bias, _room(plan, stream))
        plan.run((x, dy, *made, statistics, other, passed, norm.weight, norm.bias), norm, stream)
    if plan.is_news(given, (x, dy, other)):
        call = (x, other, norm.weight, norm.bias, _named_setting(norm))
        native_calls.learn("norm_gradient", call, plan.workspace, plan.launches)
    return dx, to_weight, to_bias, passed


def momentum_of(momentum: float | None) -> float:
    """As the kernels take it, of a layer that remembers: a negative one is the mean over all batches."""
    return -1.0 if momentum is None else float(momentum)


@functools.cache
def setting_of(epsilon: float, activation: str) -> int:
    """A number for both, as the extension takes it: its lowest bits say whether there is an activation, and whether its
    derivative is known from its result.
    """
    number = len(_settings) << 2 | (activation in TOLD_BY_RESULT) << 1 | (activation != "")
    _settings[number] = (epsilon, activation)
    return number


def _named_setting(norm: Norm) -> int:
    """The same of a norm; the extension then knows it by name too, as operators of graphs have it."""
    number = setting_of(norm.epsilon, norm.activation)
    native_calls.name_setting(number, norm.epsilon, norm.activation)
    return number


def norm_of(setting: int, weight: Tensor | None, bias: Tensor | None) -> Norm:
    """A norm of what a number was made for."""
    return Norm(weight, bias, *_settings[setting])


def fetchable(x: Tensor) -> Tensor:
    """Dense, channels-last, and at an address of whole accesses."""
    if not x.is_contiguous(memory_format=torch.channels_last):
        x = x.contiguous(memory_format=torch.channels_last)
    return x.clone() if x.data_ptr() & ALIGNED else x


def other_of(y: Tensor, residual: Tensor | None, activation: str) -> Tensor | None:
    """What the gradient asks for besides x: less is kept where that is y."""
    if residual is None or not activation:
        return None
    return y if activation in TOLD_BY_RESULT else residual


def computed(x: Tensor) -> bool:
    """Whether the kernels take such an input."""
    return x.is_cuda and x.dtype in DTYPES and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
