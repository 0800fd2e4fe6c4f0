"""Layer norms of torch tensors on CUDA as prepared calls, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..normalization import layer_norm
from ..normalization.layer_norm import Gradients, Operands, RowKind
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared
from .norm_library import are_taken, parameter_type
from .operands import ALIGNED, addresses_of
from .recorded import alias, applied


class _Plan:
    """One kind of call: its kernels, its cut, and its launches, once they are prepared."""

    def __init__(self, kind: RowKind, x: Tensor, result: torch.dtype, first: bool, epsilon: float) -> None:
        from ..runtime.device import properties

        self.device: int = x.get_device()
        channels = x.shape[1 if first else -1]
        self.kind, self.result, self.first, self.epsilon = kind, result, first, epsilon
        self.cut = kind.cut(x.numel() // channels, channels, properties(self.device).sms)
        self.forward: moving.Launches | None = None
        self.gradient: moving.Launches | None = None
        self._teller = native_calls.Teller()

    def run_forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """y, and of each row mean and one over the deviation."""
        y = torch.empty_like(x, dtype=self.result)
        statistics = x.new_empty((self.cut.rows, 2), dtype=torch.float32)
        at = addresses_of(x, y, statistics, weight, bias)
        if self.forward is None:

            def described(x: int, y: int, statistics: int, *rest: int) -> Sequence[Any]:
                operands = Operands(x, *_parameters(weight, bias, rest), statistics)
                return layer_norm.forward(self.kind, self.cut, operands, self.epsilon, y)

            self.forward = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.forward.run(at, torch_stream(self.device))
        self._teller.tell("layer_norm", (x, y, weight, bias, self.epsilon, self.first), 0, self.forward)
        return y, statistics

    def run_gradient(self, x: Tensor, dy: Tensor, statistics: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        """Of x, weight and bias."""
        dx, room = torch.empty_like(x), statistics.new_empty(self.cut.workspace)
        own = parameter_type(weight)
        to_weight, to_bias = (statistics.new_empty(self.cut.channels, dtype=own) for _ in range(2))
        at = addresses_of(x, dy, statistics, dx, to_weight, to_bias, room, weight)
        if self.gradient is None:

            def described(x: int, dy: int, statistics: int, dx: int, *rest: int) -> Sequence[Any]:
                to_weight, to_bias, room, *given = rest
                operands = Operands(x, *_parameters(weight, None, given), statistics)
                gradients = Gradients(dy, dx, to_weight, to_bias)
                return layer_norm.gradient(self.kind, self.cut, operands, gradients, room)

            self.gradient = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.gradient.run(at, torch_stream(self.device))
        call = (x, dy, weight, self.epsilon, self.first)
        self._teller.tell("layer_norm_gradient", call, self.cut.workspace, self.gradient)
        return dx, to_weight, to_bias


def _parameters(weight: Tensor | None, bias: Tensor | None, addresses: Sequence[int]) -> tuple[int, int]:
    """Their addresses, of which those are given that are there; 0 for one that is not."""
    found = iter(addresses)
    first, second = (0 if one is None else next(found) for one in (weight, bias))
    return first, second


_plans: dict[tuple[Any, ...], _Plan | None] = {}


def _plan(
    x: Tensor, result: torch.dtype, first: bool, parameters: tuple[Tensor | None, ...], epsilon: float
) -> _Plan | None:
    """None for what is torch's."""
    layouts = [None if one is None else (one.dtype, one.shape, one.get_device()) for one in parameters]
    key = (x.shape, x.stride(), x.dtype, x.get_device(), result, first, *layouts, epsilon)
    if key not in _plans:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("layer_norms")
        _plans[key] = _made(x, result, first, parameters, epsilon)
    return _plans[key]


def _made(
    x: Tensor, result: torch.dtype, first: bool, parameters: tuple[Tensor | None, ...], epsilon: float
) -> _Plan | None:
    memory = torch.channels_last if first else torch.contiguous_format
    if x.dim() != (4 if first else max(2, x.dim())) or not x.is_contiguous(memory_format=memory) or not x.numel():
        return None
    channels, own = x.shape[1 if first else -1], parameter_type(parameters[0])
    types = [DTYPES.get(of) for of in (x.dtype, result, own)]
    if not all(types) or not are_taken(parameters, own, x, channels):
        return None
    if any(one is not None and one.get_device() != x.get_device() for one in parameters):
        return None
    kind = RowKind.of(channels, *types)  # type: ignore[arg-type]
    return None if kind is None else _Plan(kind, x, result, first, epsilon)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, plan: _Plan) -> Tensor:
        y, statistics = plan.run_forward(x, weight, bias)
        ctx.save_for_backward(x, weight, bias, statistics)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, statistics = ctx.saved_tensors
        dx, to_weight, to_bias = _gradients(ctx.plan, x, dy, statistics, weight, bias)
        return dx, None if weight is None else to_weight, None if bias is None else to_bias, None


_recorded = applied(_Recorded)


def normalized(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, first: bool, result: torch.dtype
) -> Tensor | None:
    """The layer norm of x, of a type, over channels that come `first` or last; None where that is torch's."""
    plan = _plan(x, result, first, (weight, bias), epsilon)
    return None if plan is None or x.data_ptr() & ALIGNED else _recorded(x, weight, bias, plan)


def _gradients(
    plan: _Plan, x: Tensor, dy: Tensor, statistics: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Of x, weight and bias."""
    if torch.is_grad_enabled():
        return _differentiable(x, weight, bias, dy, plan)
    x = _laid(x, plan.first)
    if dy.stride() != x.stride() or dy.data_ptr() & ALIGNED:
        dy = torch.empty_like(x, dtype=dy.dtype).copy_(dy)
    return plan.run_gradient(x, dy, statistics, weight)


def _laid(x: Tensor, first: bool) -> Tensor:
    """As it was given: what keeps tensors elsewhere may give them back as it likes."""
    made = x.contiguous(memory_format=torch.channels_last if first else torch.contiguous_format)
    return made.clone() if made.data_ptr() & ALIGNED else made


def layer_norm_backward_of(
    x: Tensor, dy: Tensor, statistics: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, first: bool
) -> tuple[Tensor | None, ...]:
    """The same as the extension asks for it."""
    plan = _plan(_laid(x, first), dy.dtype, first, (weight, bias), epsilon)
    assert plan is not None  # the forward pass had one
    return _gradients(plan, x, dy, statistics, weight, bias)


def _differentiable(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, dy: Tensor, plan: _Plan
) -> tuple[Tensor | None, ...]:
    """The gradients by torch's functions, whose own derivatives may be asked for."""
    with torch.enable_grad(), torch.autocast("cuda", enabled=False):
        x, (weight, bias) = alias(x), (None if one is None else alias(one) for one in (weight, bias))
        rows = (x.permute(0, 2, 3, 1) if plan.first else x).float()
        scale, shift = (None if one is None else one.float() for one in (weight, bias))
        y = nn.functional.layer_norm(rows, (plan.cut.channels,), scale, shift, plan.epsilon).to(plan.result)
        given = [one for one in (x, weight, bias) if one is not None and one.requires_grad]
        made = torch.autograd.grad(y.permute(0, 3, 1, 2) if plan.first else y, given, dy, create_graph=True)
    found = iter(made)
    return tuple(next(found) if one is not None and one.requires_grad else None for one in (x, weight, bias))
