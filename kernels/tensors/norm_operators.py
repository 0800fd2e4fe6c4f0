"""`tapestry::batch_norm_act`, the one that remembers and their gradient as operators, and past torch's dispatcher.

    y = activation((x - mean) / sqrt(variance + epsilon) * weight + bias + residual)

with the mean and the variance of the batch, which are the second result, f32 [2, c]. x, residual and results are
[n, c, h, w], channels-last; parameters and what is remembered are of one type, f32 or that of x. CUDA tensors run the
kernels of this package on torch's current stream, CPU tensors torch's functions. A gradient of a gradient is refused.

`batch_norm_act_remembered` brings what a layer remembers up to date as well, in the same launches. Below autograd, and
so in the graphs of torch.compile, it is `batch_norm_act_lowered`, and the gradient is `batch_norm_act_gradients`: these
two have no derivatives, and the extension computes them without Python, as such graphs are the host's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import autograd, native_calls, norm_calls, norm_library
from .norm_calls import other_of
from .norm_library import Norm, Running
from .recorded import Recorded, applied, no_second_derivative, unrecorded

_torch: Any = torch
_LIBRARY = _torch.library.Library("tapestry", "FRAGMENT")
_NORM = "Tensor? weight, Tensor? bias, float epsilon, str activation"
_LIBRARY.define(f"batch_norm_act(Tensor x, Tensor? residual, {_NORM}) -> (Tensor, Tensor)")
_LIBRARY.define(
    f"batch_norm_act_gradient(Tensor x, Tensor dy, Tensor? other, Tensor statistics, {_NORM})"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
_KEPT = "Tensor? weight, Tensor? bias, Tensor(a!) mean, Tensor(b!) variance, Tensor(c!) batches, float momentum"
for _name in ("remembered", "lowered"):
    _LIBRARY.define(
        f"batch_norm_act_{_name}(Tensor x, Tensor? residual, {_KEPT}, float epsilon, str activation)"
        " -> (Tensor, Tensor)"
    )
_LIBRARY.define(
    f"batch_norm_act_gradients(Tensor x, Tensor dy, Tensor? other, Tensor statistics, {_NORM})"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
operator = torch.ops.tapestry.batch_norm_act
remembered = torch.ops.tapestry.batch_norm_act_remembered
lowered = torch.ops.tapestry.batch_norm_act_lowered.default
gradient_operator = torch.ops.tapestry.batch_norm_act_gradient
gradients = torch.ops.tapestry.batch_norm_act_gradients.default


# -- what the operators do ---------------------------------------------------------------------------------------------


def _cuda_forward(x: Tensor, residual: Tensor | None, *norm: Any) -> tuple[Tensor, Tensor]:
    return norm_calls.forward(x, residual, Norm(*norm), None)[:2]


def _cpu_forward(x: Tensor, residual: Tensor | None, *norm: Any) -> tuple[Tensor, Tensor]:
    return norm_library.forward(x, residual, Norm(*norm))


def _fake_forward(x: Tensor, residual: Tensor | None, *norm: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    return _like(x), x.new_empty((2, x.shape[1]), dtype=wide)


def _cuda_gradient(x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, *norm: Any) -> tuple[Tensor, ...]:
    named = Norm(*norm)
    plan = norm_calls.plan_of(x, other, named, None)
    return _four(x, *norm_calls.gradient(plan, x, dy, other, statistics, named))


def _cpu_gradient(x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, *norm: Any) -> tuple[Tensor, ...]:
    return _four(x, *norm_library.gradient(x, dy, other, statistics, Norm(*norm)))


def _fake_gradient(
    x: Tensor,
    dy: Tensor,  # noqa: ARG001
    other: Tensor | None,
    statistics: Tensor,
    *norm: Any,
) -> tuple[Tensor, ...]:
    own = Norm(*norm).dtype
    own = statistics.dtype if own is torch.float32 else own
    to_weight, to_bias = (statistics.new_empty(x.shape[1], dtype=own) for _ in range(2))
    return _four(x, _like(x), to_weight, to_bias, None if other is None else _like(x))


def lowered_norm(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    """`batch_norm_act_lowered`, where the extension does not know a call of it."""
    native_calls.take_over()
    norm, running = _apart(rest)
    return norm_calls.forward(x, residual, norm, running)[:2]


def lowered_norm_gradients(
    x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, *norm: Any
) -> tuple[Tensor, ...]:
    """`batch_norm_act_gradients`, likewise."""
    native_calls.take_over()
    return _cuda_gradient(x, dy, other, statistics, *norm)


def _cpu_lowered(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    norm, running = _apart(rest)
    y, statistics = norm_library.forward(x, residual, norm)
    norm_library.remember(running, statistics, x.numel() // x.shape[1])
    return y, statistics


def _fake_lowered(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_forward(x, residual, *_apart(rest)[0])


def _apart(rest: Sequence[Any]) -> tuple[Norm, Running]:
    """What an operator that remembers is given behind x and residual."""
    weight, bias, mean, variance, batches, momentum, *settings = rest
    return Norm(weight, bias, *settings), Running(mean, variance, batches, None if momentum < 0 else momentum)


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


def _four(x: Tensor, dx: Tensor, to_weight: Tensor, to_bias: Tensor, passed: Tensor | None) -> tuple[Tensor, ...]:
    """Operators have as many results each time: an empty one where there is no residual."""
    return dx, to_weight, to_bias, x.new_empty(0) if passed is None else passed


# -- autograd ----------------------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, residual, weight, bias, *rest = inputs
    ctx.settings, ctx.remembers = rest[-2:], len(rest) > 2
    y, statistics = output
    ctx.with_residual = residual is not None
    ctx.mark_non_differentiable(statistics)
    ctx.save_for_backward(x, other_of(y, residual, ctx.settings[1]), statistics, weight, bias)


def _backward(ctx: Any, dy: Tensor, _: Any) -> tuple[Any, ...]:
    x, other, statistics, weight, bias = ctx.saved_tensors
    compute = gradient_operator if torch.is_grad_enabled() else gradients
    dx, to_weight, to_bias, passed = compute(x, dy, other, statistics, weight, bias, *ctx.settings)
    to_residual = None if not ctx.with_residual else dy if other is None else passed
    made = (dx, to_residual, None if weight is None else to_weight, None if bias is None else to_bias)
    return *made, *(None for _ in range(6 if ctx.remembers else 2))


def _below_autograd(keys: Any, *given: Any) -> Any:
    return lowered.redispatch(keys, *given)


def _refused(*_: Any) -> Any:
    raise no_second_derivative("batch norm", "fuse_norms")


def _register() -> None:
    for name, on_cpu, on_cuda, fake, backward, save in (
        ("batch_norm_act", _cpu_forward, _cuda_forward, _fake_forward, _backward, _save),
        ("batch_norm_act_gradient", _cpu_gradient, _cuda_gradient, _fake_gradient, _refused, None),
    ):
        _LIBRARY.impl(name, on_cpu, "CPU")
        _torch.library.register_fake(f"tapestry::{name}", fake, lib=_LIBRARY)
        Recorded(_LIBRARY, name, on_cuda, backward, save).only_if_needed(autograd.plain)
    unrecorded(_LIBRARY, "batch_norm_act_lowered", _cpu_lowered, lowered_norm, _fake_lowered)
    unrecorded(_LIBRARY, "batch_norm_act_gradients", _cpu_gradient, lowered_norm_gradients, _fake_gradient)
    _LIBRARY.impl("batch_norm_act_remembered", _cpu_lowered, "CPU")
    _torch.library.register_fake("tapestry::batch_norm_act_remembered", _fake_lowered, lib=_LIBRARY)
    Recorded(_LIBRARY, "batch_norm_act_remembered", lowered_norm, _backward, _save, _below_autograd)


_register()


class _Recorded(torch.autograd.Function):
    """The same for tensors that nothing traces, and what a layer remembers as well: one node, prepared calls."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None,
        norm: Norm, running: Running | None,
    ) -> Tensor:  # fmt: skip
        y, statistics, ctx.plan = norm_calls.forward(x, residual, norm, running)
        other = None if residual is None else other_of(y, residual, norm.activation)
        ctx.save_for_backward(x, other, statistics, weight, bias)
        ctx.settings, ctx.with_residual = norm[2:], residual is not None
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, other, statistics, weight, bias = ctx.saved_tensors
        norm = Norm(weight, bias, *ctx.settings)
        dx, to_weight, to_bias, passed = _gradients(ctx.plan, x, dy, other, statistics, norm)
        to_residual = None if not ctx.with_residual else dy if other is None else passed
        given = (None if weight is None else to_weight, None if bias is None else to_bias)
        return dx, to_residual, *given, None, None


def _gradients(
    plan: Any, x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, norm: Norm
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    if torch.is_grad_enabled():  # what is asked for may be a derivative of this, which the operator refuses
        made: tuple[Tensor, Tensor, Tensor, Tensor] = gradient_operator(x, dy, other, statistics, *norm)
        return made
    return norm_calls.gradient(plan, x, dy, other, statistics, norm)


def norm_backward_of(
    x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, weight: Tensor | None, bias: Tensor | None,
    setting: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The gradients of x, weight, bias and a residual as the extension asks for them."""
    norm = norm_calls.norm_of(setting, weight, bias)
    return _gradients(norm_calls.plan_of(x, other, norm, None), x, dy, other, statistics, norm)


_recorded = applied(_Recorded)


def direct(x: Tensor, residual: Tensor | None, norm: Norm, running: Running | None) -> Tensor:
    """y of plain CUDA tensors; what is remembered is brought up to date."""
    if torch.is_grad_enabled():
        made: Tensor = _recorded(x, residual, norm.weight, norm.bias, norm, running)
        return made
    return norm_calls.forward(x, residual, norm, running)[0]
