"""`tapestry::grouped_conv2d` and its two gradients as torch operators: kernels, fake tensors, autograd, autocast.

Tensors have torch's shapes, x [n, c, h, w] and w [k, c / groups, r, s]; padding is (top, bottom, left, right). Results
are channels-last in memory; operands that are not are copied. CUDA tensors run the kernels of this package on torch's
current stream (`torch_calls`); CPU tensors torch's own convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import torch_calls, torch_library
from .torch_geometry import Geometry, Ints
from .torch_library import empty
from .torch_recorded import Recorded

# Not typed by torch.
_torch: Any = torch
_STEPS = "int[2] stride, int[4] padding, int[2] dilation, int groups"
_LIBRARY = _torch.library.Library("tapestry", "DEF")
_LIBRARY.define(f"grouped_conv2d(Tensor x, Tensor w, Tensor? bias, {_STEPS}) -> Tensor")
_LIBRARY.define(f"grouped_conv2d_input_gradient(Tensor dy, Tensor w, SymInt[4] shape, {_STEPS}) -> Tensor")
_LIBRARY.define(f"grouped_conv2d_weight_gradient(Tensor x, Tensor dy, SymInt[4] shape, {_STEPS}) -> Tensor")
_LIBRARY.define(f"grouped_conv2d_gradients(Tensor x, Tensor dy, Tensor w, {_STEPS}) -> (Tensor, Tensor)")

recorded: list[Recorded] = []  # the operators that have derivatives
forward = torch.ops.tapestry.grouped_conv2d
input_gradient = torch.ops.tapestry.grouped_conv2d_input_gradient
weight_gradient = torch.ops.tapestry.grouped_conv2d_weight_gradient
gradients = torch.ops.tapestry.grouped_conv2d_gradients  # of x and w at once; it has no derivative


def _extents(x: Ints, filter_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> list[int]:
    """Output rows and columns of an input [n, c, h, w]."""
    return [
        (x[2 + i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (filter_size[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    ]


# On CUDA devices: the kernels, prepared calls of them.


def geometry_from(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Geometry:
    """As an operator is given it."""
    top, bottom, left, right = padding
    return Geometry((stride[0], stride[1]), (top, bottom, left, right), (dilation[0], dilation[1]), groups)


def _cuda_forward(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return torch_calls.forward(x, w, bias, geometry_from(stride, padding, dilation, groups))


def _cuda_input_gradient(
    dy: Tensor, w: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return torch_calls.input_gradient(dy, w, tuple(shape), geometry_from(stride, padding, dilation, groups))


def _cuda_weight_gradient(
    x: Tensor, dy: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return torch_calls.filter_gradient(x, dy, tuple(shape), geometry_from(stride, padding, dilation, groups))


def _cuda_gradients(
    x: Tensor, dy: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> tuple[Tensor, Tensor]:
    return torch_calls.gradients(x, dy, w, geometry_from(stride, padding, dilation, groups), w.dtype)


# What an operator would give, without running it.


def _fake_forward(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,  # noqa: ARG001
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    return output_like(x, w, stride, padding, dilation, groups)


def output_like(x: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Tensor:
    """A tensor like the result of a convolution."""
    _torch._check(
        w.shape[1] * groups == x.shape[1], lambda: f"weights {list(w.shape)} for {groups} groups of {x.shape[1]}"
    )
    return empty(x, [x.shape[0], w.shape[0], *_extents(x.shape, w.shape[2:], stride, padding, dilation)])


def _fake_gradient(first: Tensor, _second: Tensor, shape: Ints, *_steps: Any) -> Tensor:
    return empty(first, shape)


def _fake_gradients(x: Tensor, dy: Tensor, w: Tensor, *_steps: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return empty(x, x.shape), empty(w, w.shape)


# Gradients. The three operators are each other's derivatives: the convolution is linear in x and in w.


def _save_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, w, bias, *ctx.steps = inputs
    ctx.save_for_backward(x, w)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _forward_gradient(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, w = ctx.saved_tensors
    to_x, to_w, to_bias = ctx.needs_input_grad[:3]
    db = dy.sum((0, 2, 3), dtype=ctx.bias_dtype) if to_bias else None
    if to_x and to_w and not torch.is_grad_enabled():
        return *gradients(x, dy, w, *ctx.steps), db, None, None, None, None
    dx = input_gradient(dy, w, x.shape, *ctx.steps) if to_x else None
    dw = weight_gradient(x, dy, w.shape, *ctx.steps) if to_w else None
    return dx, dw, db, None, None, None, None


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    first, second, _, *ctx.steps = inputs
    ctx.save_for_backward(first, second)


def _gradient_of_input_gradient(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
    dy, w = ctx.saved_tensors
    first = forward(ddx, w, None, *ctx.steps) if ctx.needs_input_grad[0] else None
    second = weight_gradient(ddx, dy, w.shape, *ctx.steps) if ctx.needs_input_grad[1] else None
    return first, second, None, None, None, None, None


def _gradient_of_weight_gradient(ctx: Any, ddw: Tensor) -> tuple[Tensor | None, ...]:
    x, dy = ctx.saved_tensors
    first = input_gradient(dy, ddw, x.shape, *ctx.steps) if ctx.needs_input_grad[0] else None
    second = forward(x, ddw, None, *ctx.steps) if ctx.needs_input_grad[1] else None
    return first, second, None, None, None, None, None


def _autocast(name: str, device: str) -> None:
    """Cast operands to autocast's type, then run the operator below autocast. A bias stays what it is."""
    operator = getattr(torch.ops.tapestry, name)
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def cast(first: Tensor, second: Tensor, *rest: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            result: Tensor = operator(first.to(dtype), second.to(dtype), *rest)
        return result

    _LIBRARY.impl(name, cast, f"Autocast{device.upper()}")


def _register() -> None:
    table: tuple[tuple[str, Any, Any, Any, Any, Any], ...] = (
        ("grouped_conv2d", torch_library.forward, _cuda_forward, _fake_forward, _forward_gradient, _save_forward),
        (
            "grouped_conv2d_input_gradient",
            torch_library.input_gradient,
            _cuda_input_gradient,
            _fake_gradient,
            _gradient_of_input_gradient,
            _save_gradient,
        ),
        (
            "grouped_conv2d_weight_gradient",
            torch_library.weight_gradient,
            _cuda_weight_gradient,
            _fake_gradient,
            _gradient_of_weight_gradient,
            _save_gradient,
        ),
    )
    for name, on_cpu, on_cuda, fake, backward, save in table:
        _LIBRARY.impl(name, on_cpu, "CPU")
        _torch.library.register_fake(f"tapestry::{name}", fake, lib=_LIBRARY)
        recorded.append(Recorded(_LIBRARY, name, on_cuda, backward, save))
        for device in ("cpu", "cuda"):
            _autocast(name, device)
    _LIBRARY.impl("grouped_conv2d_gradients", torch_library.gradients, "CPU")
    _LIBRARY.impl("grouped_conv2d_gradients", _cuda_gradients, "CUDA")
    _torch.library.register_fake("tapestry::grouped_conv2d_gradients", _fake_gradients, lib=_LIBRARY)


_register()
