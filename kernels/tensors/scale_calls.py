"""Layer scales with the residual behind them as prepared calls of torch tensors, and their gradients: `scaled_sum`.

What is no plain CUDA tensor, dense, is torch's, and so is all under torch.compile, which fuses it by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from ..normalization import scaled_sum as kernels
from ..normalization.scaled_sum import Operands, ScaleKind
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd, native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared
from .operands import ALIGNED, addresses_of
from .recorded import applied

MOST_ROWS = 1 << 31  # that kernels count


def scaled_sum(x: Any, gamma: Any, residual: Any, factors: Any = None) -> Any:
    """x * gamma * factors + residual. gamma is [c], of the last dimension of x, or [..., c, 1, 1] of images.

    Of what is traced it is one call, where nothing is dropped.
    """
    if isinstance(x, fx.Proxy) and factors is None:
        return x.tracer.create_proxy("call_function", scaled_sum, (x, gamma, residual), {})
    if isinstance(x, Tensor) and not autograd.traced() and _is_worth_it(gamma):
        native = native_calls.scaled_sum
        if native is not None and (known := native(x, gamma, residual, factors)) is not None:
            return known
        given = (x, gamma, residual) if factors is None else (x, gamma, residual, factors)
        if autograd.plain(*given) and (plan := _plan(*given)) is not None and not _odd(x, residual):
            if torch.is_grad_enabled():
                return _recorded(x, gamma, residual, factors, plan)
            return plan.run_forward(x, gamma, residual, factors)
    return _by_torch(x, gamma, residual, factors)


def scaled_sum_into(x: Any, gamma: Any, residual: Any, factors: Any = None) -> Any:
    """The same, where the sum is written into the product, and keeps its type."""
    if isinstance(x, fx.Proxy) and factors is None:
        return x.tracer.create_proxy("call_function", scaled_sum_into, (x, gamma, residual), {})
    if isinstance(x, Tensor):
        product = torch.promote_types(x.dtype, gamma.dtype)
        if torch.promote_types(product, residual.dtype) is product:
            return scaled_sum(x, gamma, residual, factors)
    y = _product(x, gamma, factors)
    y += residual
    return y


def _is_worth_it(gamma: Tensor) -> bool:
    """Whether the sum of its gradient is wanted: without it torch keeps no x."""
    return gamma.requires_grad or not torch.is_grad_enabled()


def _by_torch(x: Any, gamma: Any, residual: Any, factors: Any) -> Any:
    return _product(x, gamma, factors) + residual


def _product(x: Any, gamma: Any, factors: Any) -> Any:
    y = x * gamma
    if factors is not None:
        y = factors(y) if isinstance(factors, nn.Module) else y * factors
    return y


def _odd(*tensors: Tensor) -> bool:
    return any(tensor.data_ptr() & ALIGNED for tensor in tensors)


class _Plan:
    """One kind of call: its kernels, its cut, and its launches, once they are prepared."""

    def __init__(self, kind: ScaleKind, x: Tensor, added: torch.dtype, result: torch.dtype, channels: int) -> None:
        """`added` is the residual's type, `result` that of y."""
        from ..runtime.device import properties

        self.device: int = x.get_device()
        self.kind, self.added, self.result, rows = kind, added, result, x.numel() // channels
        self.pixels = rows // x.shape[0]
        self.cut = kind.cut(rows, channels, properties(self.device).sms)
        self.forward: moving.Launches | None = None
        self.gradient: moving.Launches | None = None
        self._teller = native_calls.Teller()

    def run_forward(self, x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None) -> Tensor:
        """y, which lies in memory as x does."""
        y, wide = torch.empty_like(x, dtype=self.result), _wide(factors)
        at = addresses_of(x, gamma, residual, y, *wide)
        if self.forward is None:

            def described(x: int, gamma: int, residual: int, y: int, factors: int = 0) -> Any:
                return kernels.forward(self.cut, Operands(x, gamma, factors, self.pixels), residual, y)

            self.forward = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.forward.run(at, torch_stream(self.device))
        self._teller.tell("scaled_sum", (x, gamma, residual, factors), 0, self.forward)
        return y

    def run_gradient(self, x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of x and gamma."""
        dx, to_gamma = torch.empty_like(x), torch.empty_like(gamma, memory_format=torch.contiguous_format)
        room, wide = x.new_empty(kernels.workspace(self.cut), dtype=torch.float32), _wide(factors)
        at = addresses_of(x, dy, gamma, dx, to_gamma, room, *wide)
        if self.gradient is None:

            def described(x: int, dy: int, gamma: int, dx: int, to_gamma: int, room: int, factors: int = 0) -> Any:
                return kernels.gradient(self.cut, Operands(x, gamma, factors, self.pixels), dy, dx, to_gamma, room)

            self.gradient = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.gradient.run(at, torch_stream(self.device))
        call = (x, gamma, x.new_empty(0, dtype=self.added), factors)
        self._teller.tell("scaled_sum_gradient", call, kernels.workspace(self.cut), self.gradient)
        return dx, to_gamma


def _wide(factors: Tensor | None) -> tuple[Tensor, ...]:
    """As kernels take them: f32."""
    return () if factors is None else (factors.float(),)


_plans: dict[tuple[Any, ...], _Plan | None] = {}


def _plan(x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None = None) -> _Plan | None:
    """None for what is torch's."""
    dropped = None if factors is None else (factors.shape, factors.stride())
    devices = (x.get_device(), gamma.get_device(), residual.get_device())
    key = (
        x.shape, x.stride(), x.dtype, gamma.shape, gamma.stride(), gamma.dtype, residual.shape, residual.stride(),
        residual.dtype, dropped, devices,
    )  # fmt: skip
    if key not in _plans:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("scales")
        _plans[key] = _made(x, gamma, residual, factors)
    return _plans[key]


def _made(x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None) -> _Plan | None:
    images = gamma.dim() in (3, 4)
    if not images and gamma.dim() != 1:
        return None
    memory = torch.channels_last if images else torch.contiguous_format
    if x.dim() != (4 if images else max(2, x.dim())) or not x.numel() or residual.shape != x.shape:
        return None
    channels = x.shape[1 if images else -1]
    shape = (*(1,) * (gamma.dim() - 3), channels, 1, 1) if images else (channels,)
    if tuple(gamma.shape) != shape or not gamma.is_contiguous() or x.numel() // channels >= MOST_ROWS:
        return None
    if not all(each.is_contiguous(memory_format=memory) and each.stride() == x.stride() for each in (x, residual)):
        return None
    if len({each.get_device() for each in (x, gamma, residual)}) != 1:
        return None
    if factors is not None and (factors.numel() != x.shape[0] or not factors.is_contiguous()):
        return None
    result = torch.promote_types(torch.promote_types(x.dtype, gamma.dtype), residual.dtype)
    named = [DTYPES.get(of) for of in (x.dtype, residual.dtype, result, gamma.dtype)]
    types = [each for each in named if each is not None]
    if len(types) < len(named):
        return None
    return _Plan(ScaleKind.of(channels, *types, factors=factors is not None), x, residual.dtype, result, channels)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None, plan: _Plan) -> Tensor:
        ctx.save_for_backward(x, gamma, factors)
        ctx.added, ctx.plan = residual.dtype, plan
        return plan.run_forward(x, gamma, residual, factors)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, factors = ctx.saved_tensors
        return *_gradients(ctx.plan, x, dy, gamma, factors), dy.to(ctx.added), None, None


_recorded = applied(_Recorded)


def _gradients(plan: _Plan, x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of x and gamma."""
    if torch.is_grad_enabled() or not autograd.direct(dy) or autograd._batched(dy):
        return _differentiable(x, dy, gamma, factors)
    x = _laid(x, gamma)
    if dy.stride() != x.stride() or _odd(dy):
        dy = torch.empty_like(x, dtype=dy.dtype).copy_(dy)
    return plan.run_gradient(x, dy, gamma, factors)


def _laid(x: Tensor, gamma: Tensor) -> Tensor:
    """As it was given: what keeps tensors elsewhere may give them back as it likes."""
    made = x.contiguous(memory_format=torch.channels_last if gamma.dim() > 1 else torch.contiguous_format)
    return made.clone() if _odd(made) else made


def scaled_sum_backward_of(
    x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The same as the extension asks for it; `like` is of the residual's type."""
    x = _laid(x, gamma)
    given = (x, gamma, torch.empty_like(x, dtype=like.dtype))
    plan = _plan(*given) if factors is None else _plan(*given, factors)
    assert plan is not None  # the forward pass had one
    return _gradients(plan, x, dy, gamma, factors)


def _differentiable(x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of x and gamma by torch's functions, whose own derivatives may be asked for."""
    slopes = dy if factors is None else dy * factors
    products, over = slopes * x, [d for d in range(x.dim()) if d != (x.dim() - 1 if gamma.dim() == 1 else 1)]
    return (slopes * gamma).to(x.dtype), products.sum(over).reshape(gamma.shape).to(gamma.dtype)
