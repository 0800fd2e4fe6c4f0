"""The convolution and its gradients for eager CUDA tensors, past torch's dispatcher: the same functions in less time.

The operators of `operators` say the same to whatever traces, transforms or lowers a program. Where nothing of
that kind is at work (`direct`), a call here is one autograd node whose forward and backward are prepared calls. The
three functions are each other's derivatives, since the convolution is linear in x and in w: so derivatives of any
order are here too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import channel_sums, convolution_calls, operators
from .convolution_calls import Plan
from .geometry import Geometry, Ints, unpacked
from .lowered import save, saved
from .recorded import applied

_torch: Any = torch  # what is not typed by torch
_PLAIN = (Tensor, torch.nn.Parameter)
_modes = _torch._C._len_torch_dispatch_stack
_tracing = _torch._C._is_tracing
_transforms = _torch._C._functorch.peek_interpreter_stack
_batched = _torch._C._functorch.is_legacy_batchedtensor


def direct(*tensors: Tensor) -> bool:
    """Whether these are plain CUDA tensors that nothing traces: no fake tensors, subclasses, modes or transforms, nor
    forward differentiation, of which kernels know nothing.
    """
    return not torch.compiler.is_compiling() and plain(*tensors)


def plain(*tensors: Tensor) -> bool:
    """The same where nothing is being compiled."""
    for tensor in tensors:
        if type(tensor) not in _PLAIN or not _on_gpu(tensor):
            return False
    return not (_modes() or _tracing() or forward_ad._current_level >= 0) and _transforms() is None


def transformed() -> bool:
    """Whether a transform of torch.func is at work."""
    return _transforms() is not None


def traced() -> bool:
    """Whether torch compiles, traces or differentiates forward: then its own layers are asked."""
    return torch.compiler.is_compiling() or _tracing() or forward_ad._current_level >= 0


def differentiated(x: Tensor) -> bool:
    """Whether a gradient of what is made of x may be asked for, backward or forward."""
    return (x.requires_grad and torch.is_grad_enabled()) or forward_ad._current_level >= 0


_on_gpu: Callable[[Tensor], bool] = attrgetter("is_cuda")  # no frame of Python's: it is asked for every operand


def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, *, lowered: bool = False, plan: Plan | None = None
) -> Tensor:
    """conv(x, w) + bias of tensors that are `direct`; w is first brought to the type of x where it may be `lowered`.

    `plan` is what is planned for them then, where that is known.
    """
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or (bias is not None and bias.requires_grad)):
        made: Tensor = _recorded(x, w, bias, geometry, lowered, plan)
        return made
    return convolution_calls.forward(x, w.to(x.dtype) if lowered else w, bias, geometry, plan)


def input_gradient(dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> Tensor:
    """The gradient of x of `shape`; differentiable."""
    if not direct(dy, w):
        made: Tensor = operators.input_gradient(dy, w, shape, *geometry)
    elif torch.is_grad_enabled() and (dy.requires_grad or w.requires_grad):
        made = _InputGradient.apply(dy, w, shape, geometry)  # type: ignore[no-untyped-call]
    else:
        made = convolution_calls.input_gradient(dy, w, shape, geometry)
    return made


def filter_gradient(x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry, dtype: torch.dtype) -> Tensor:
    """The gradient of w of `shape` and `dtype`; differentiable."""
    if not direct(x, dy):
        made: Tensor = operators.weight_gradient(x, dy, shape, *geometry).to(dtype)
    elif torch.is_grad_enabled() and (x.requires_grad or dy.requires_grad):
        made = _FilterGradient.apply(x, dy, shape, geometry).to(dtype)  # type: ignore[no-untyped-call]
    else:
        made = convolution_calls.filter_gradient(x, dy, shape, geometry, dtype)
    return made


def bias_gradient(dy: Tensor, dtype: torch.dtype, last: bool = False) -> Tensor:
    """The gradient of a bias, of `dtype`: the sum of dy over all but channels; differentiable.

    Those are the second dimension of images or, with `last`, the last one.
    """
    # A gradient may be batched, or be compiled, where the layer's call was neither.
    if torch.is_grad_enabled() or not direct(dy) or _batched(dy):
        return channel_sums.by_torch(dy, dtype, last)
    return channel_sums.channel_sums(dy, dtype, last)


def _again(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    """The convolution itself, in a backward pass."""
    if direct(x, w):
        return forward(x, w, None, geometry)
    made: Tensor = operators.forward(x, w, None, *geometry)
    return made


class _Forward(torch.autograd.Function):
    """Autocast's lowering of w is part of this node: one of its own costs as much as the convolution's launch."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, lowered: bool, plan: Plan | None
    ) -> Tensor:
        ctx.geometry, ctx.bias_dtype = geometry, None if bias is None else bias.dtype
        taps = w.to(x.dtype) if lowered and w.dtype is not x.dtype else None
        save(ctx, x, w, taps)
        w = w if taps is None else taps
        ctx.plan = plan = plan or convolution_calls.planned(x, w, geometry)
        return convolution_calls.forward(x, w, bias, geometry, plan)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        to_x, to_w, to_bias, *_ = ctx.needs_input_grad
        x, w, taps = saved(ctx, to_x and torch.is_grad_enabled())
        assert x is not None
        db = bias_gradient(dy, ctx.bias_dtype) if to_bias else None
        return *_gradients(x, dy, w, taps, ctx.geometry, (to_x, to_w), ctx.plan), db, None, None, None


def _gradients(
    x: Tensor,
    dy: Tensor,
    w: Tensor,
    lowered: Tensor | None,
    geometry: Geometry,
    wanted: tuple[bool, bool],
    plan: Plan | None,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and w where they are wanted; differentiable. `lowered` is w as it was brought to x's type."""
    taps = w if lowered is None else lowered
    if all(wanted) and not torch.is_grad_enabled() and plain(x, dy, taps):
        return convolution_calls.gradients(x, dy, taps, geometry, w.dtype, plan)
    if lowered is not None and torch.is_grad_enabled():
        taps = w.to(x.dtype)  # again, so that derivatives of what follows find their way to w
    dx = input_gradient(dy, taps, x.shape, geometry) if wanted[0] else None
    dw = filter_gradient(x, dy, w.shape, geometry, w.dtype) if wanted[1] else None
    return dx, dw


def backward_of(
    x: Tensor, dy: Tensor, w: Tensor, lowered: Tensor | None, moved: int, groups: int, to_x: bool, to_w: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The same as the extension asks for it."""
    return _gradients(x, dy, w, lowered, unpacked(moved, groups), (to_x, to_w), None)


_recorded = applied(_Forward)


class _InputGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(dy, w)
        ctx.geometry = geometry
        return convolution_calls.input_gradient(dy, w, shape, geometry)

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
        dy, w = ctx.saved_tensors
        to_dy, to_w, _, _ = ctx.needs_input_grad
        first = _again(ddx, w, ctx.geometry) if to_dy else None
        second = filter_gradient(ddx, dy, w.shape, ctx.geometry, w.dtype) if to_w else None
        return first, second, None, None


class _FilterGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, dy)
        ctx.geometry = geometry
        return convolution_calls.filter_gradient(x, dy, shape, geometry)

    @staticmethod
    def backward(ctx: Any, ddw: Tensor) -> tuple[Tensor | None, ...]:
        x, dy = ctx.saved_tensors
        to_x, to_dy, _, _ = ctx.needs_input_grad
        first = input_gradient(dy, ddw, x.shape, ctx.geometry) if to_x else None
        second = _again(x, ddw, ctx.geometry) if to_dy else None
        return first, second, None, None


for _operator in operators.recorded:
    _operator.only_if_needed(plain)
