"""`tapestry::grouped_conv2d` and its two gradients as torch operators: kernels, fake tensors, autograd, autocast.

Tensors have torch's shapes, x [n, c, h, w] and w [k, c / groups, r, s]; padding is (top, bottom, left, right). Results
are channels-last in memory; operands that are neither that nor parts of such are copied. CUDA tensors run the kernels
of this package on torch's current stream (`convolution_calls`); CPU tensors torch's own convolution.

The filter of a convolution in f16 or bf16 may be of f32; so is its gradient then.

Below autograd, and so in the graphs of torch.compile, a convolution is `grouped_conv2d_lowered`, and both its
gradients are `grouped_conv2d_gradients`. Such a graph is the host's work more than the GPU's, and these take less of
it: two numbers say how the filter is moved, and an f32 filter is brought to the type of x within the call, as its
gradient is written in f32, where a graph would launch a kernel for each. The first of the two gives the filter as it
was brought there, too, and the other one takes it; of no elements, it says that there is none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import convolution_calls, library, native_calls
from .convolution_calls import DTYPES
from .geometry import Geometry, Ints, packed, unpacked
from .library import empty
from .recorded import Recorded, unrecorded

# Not typed by torch.
_torch: Any = torch
_STEPS = "int[2] stride, int[4] padding, int[2] dilation, int groups"
_LIBRARY = _torch.library.Library("tapestry", "DEF")
_LIBRARY.define(f"grouped_conv2d(Tensor x, Tensor w, Tensor? bias, {_STEPS}) -> Tensor")
_LIBRARY.define(f"grouped_conv2d_input_gradient(Tensor dy, Tensor w, SymInt[4] shape, {_STEPS}) -> Tensor")
_LIBRARY.define(f"grouped_conv2d_weight_gradient(Tensor x, Tensor dy, SymInt[4] shape, {_STEPS}) -> Tensor")
_LIBRARY.define("grouped_conv2d_lowered(Tensor x, Tensor w, Tensor? bias, int moved, int groups) -> (Tensor, Tensor)")
_LIBRARY.define(
    "grouped_conv2d_gradients(Tensor x, Tensor dy, Tensor w, Tensor taps, int moved, int groups) -> (Tensor, Tensor)"
)

recorded: list[Recorded] = []  # the operators that have derivatives
forward = torch.ops.tapestry.grouped_conv2d
input_gradient = torch.ops.tapestry.grouped_conv2d_input_gradient
weight_gradient = torch.ops.tapestry.grouped_conv2d_weight_gradient
lowered = torch.ops.tapestry.grouped_conv2d_lowered.default  # neither of these two has a derivative
gradients = torch.ops.tapestry.grouped_conv2d_gradients.default  # of x and w at once


def extents(x: Ints, filter_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> list[int]:
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
    return _on_cuda(x, w, bias, geometry_from(stride, padding, dilation, groups))


def _narrower(x: Tensor, w: Tensor) -> bool:
    """Whether a filter of f32 is to be brought to the type of x."""
    return w.dtype is torch.float32 and x.dtype in DTYPES


def _lowered_filter(x: Tensor, w: Tensor) -> Tensor:
    """w in the type of x, where it is to be brought there; else a tensor of no elements."""
    return w.to(x.dtype) if _narrower(x, w) else x.new_empty(0)


def _taps(x: Tensor, w: Tensor, lowered_filter: Tensor) -> Tensor:
    """What is multiplied with: w, or as it was brought to the type of x."""
    if lowered_filter.numel():
        return lowered_filter
    return w.to(x.dtype) if _narrower(x, w) else w


def _on_cuda(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, lowered_filter: Tensor | None = None
) -> Tensor:
    if not _narrower(x, w):
        return convolution_calls.forward(x, w, bias, geometry)
    plan = convolution_calls.planned(x, w, geometry, x.dtype)
    taps = w.to(x.dtype) if lowered_filter is None else lowered_filter
    return convolution_calls.forward(x, taps, bias, geometry, plan)


def _cuda_input_gradient(
    dy: Tensor, w: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return convolution_calls.input_gradient(dy, w, tuple(shape), geometry_from(stride, padding, dilation, groups))


def _cuda_weight_gradient(
    x: Tensor, dy: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return convolution_calls.filter_gradient(x, dy, tuple(shape), geometry_from(stride, padding, dilation, groups))


def lowered_forward(x: Tensor, w: Tensor, bias: Tensor | None, moved: int, groups: int) -> tuple[Tensor, Tensor]:
    """`grouped_conv2d_lowered`, where the extension does not know a call of it."""
    native_calls.take_over()
    taps = _lowered_filter(x, w)
    return _on_cuda(x, w, bias, unpacked(moved, groups), taps), taps


def lowered_gradients(x: Tensor, dy: Tensor, w: Tensor, taps: Tensor, moved: int, groups: int) -> tuple[Tensor, Tensor]:
    """`grouped_conv2d_gradients`, likewise."""
    native_calls.take_over()
    geometry, dtype = unpacked(moved, groups), x.dtype
    if not _narrower(x, w):
        return convolution_calls.gradients(x, dy, w, geometry, dtype)
    plan = convolution_calls.planned(x, w, geometry, dtype)
    return convolution_calls.gradients(x, dy, _taps(x, w, taps), geometry, w.dtype, plan)


# On CPUs.


def _cpu_forward(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    return _on_cpu(x, w, bias, geometry_from(stride, padding, dilation, groups))


def _on_cpu(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    return library.forward(x, w.to(x.dtype) if _narrower(x, w) else w, bias, *geometry)


def _cpu_lowered(x: Tensor, w: Tensor, bias: Tensor | None, moved: int, groups: int) -> tuple[Tensor, Tensor]:
    return _on_cpu(x, w, bias, unpacked(moved, groups)), _lowered_filter(x, w)


def _cpu_gradients(x: Tensor, dy: Tensor, w: Tensor, taps: Tensor, moved: int, groups: int) -> tuple[Tensor, Tensor]:
    dx, dw = library.gradients(x, dy, _taps(x, w, taps), *unpacked(moved, groups))
    return dx, dw.to(w.dtype)


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
    return empty(x, [x.shape[0], w.shape[0], *extents(x.shape, w.shape[2:], stride, padding, dilation)])


def _fake_lowered(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,  # noqa: ARG001
    moved: int,
    groups: int,
) -> tuple[Tensor, Tensor]:
    return output_like(x, w, *unpacked(moved, groups)), _lowered_filter(x, w)


def _fake_gradient(first: Tensor, _second: Tensor, shape: Ints, *_steps: Any) -> Tensor:
    return empty(first, shape)


def _fake_gradients(x: Tensor, dy: Tensor, w: Tensor, *_steps: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return empty(x, x.shape), empty(w, w.shape)


# Gradients. The three operators are each other's derivatives: the convolution is linear in x and in w.


def _save_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, Tensor]) -> None:
    x, w, bias, *ctx.steps = inputs
    if isinstance(output, Tensor):
        ctx.save_for_backward(x, w)
    else:
        _, taps = output
        ctx.mark_non_differentiable(taps)
        ctx.save_for_backward(x, w, taps)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _forward_gradient(ctx: Any, dy: Tensor, _of_taps: Tensor | None = None) -> tuple[Tensor | None, ...]:
    x, w, *lowered_filter = ctx.saved_tensors
    to_x, to_w, to_bias = ctx.needs_input_grad[:3]
    db = dy.sum((0, 2, 3), dtype=ctx.bias_dtype) if to_bias else None
    *moved, groups = ctx.steps
    if to_x and to_w and not torch.is_grad_enabled() and lowered_filter:
        number = packed(*map(tuple, moved))
        return *gradients(x, dy, w, lowered_filter[0], number, groups), db, None, None, None, None
    taps = w.to(x.dtype) if _narrower(x, w) else w
    dx = input_gradient(dy, taps, x.shape, *ctx.steps) if to_x else None
    dw = weight_gradient(x, dy, w.shape, *ctx.steps).to(w.dtype) if to_w else None
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


def _below_autograd(
    keys: Any, x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """The lowered operator, whose second result is for the gradient alone; the same operator where what is asked for
    takes more than its number holds.
    """
    number = packed(tuple(stride), tuple(padding), tuple(dilation))
    if number is None:
        return forward.default.redispatch(keys, x, w, bias, stride, padding, dilation, groups)
    return lowered.redispatch(keys, x, w, bias, number, groups)


def _autocast(name: str, device: str) -> None:
    """Cast operands to autocast's type, then run the operator below autocast. A bias stays what it is, and so does a
    filter of f32, which a convolution lowers itself.
    """
    operator = getattr(torch.ops.tapestry, name)
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def cast(first: Tensor, second: Tensor, *rest: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            kept = second.dtype is torch.float32 and name == "grouped_conv2d"
            result: Tensor = operator(first.to(dtype), second if kept else second.to(dtype), *rest)
        return result

    _LIBRARY.impl(name, cast, f"Autocast{device.upper()}")


def _register() -> None:
    table: tuple[tuple[str, Any, Any, Any, Any, Any, Any], ...] = (
        (
            "grouped_conv2d",
            _cpu_forward,
            _cuda_forward,
            _fake_forward,
            _forward_gradient,
            _save_forward,
            _below_autograd,
        ),
        (
            "grouped_conv2d_input_gradient",
            library.input_gradient,
            _cuda_input_gradient,
            _fake_gradient,
            _gradient_of_input_gradient,
            _save_gradient,
            None,
        ),
        (
            "grouped_conv2d_weight_gradient",
            library.weight_gradient,
            _cuda_weight_gradient,
            _fake_gradient,
            _gradient_of_weight_gradient,
            _save_gradient,
            None,
        ),
    )
    for name, on_cpu, on_cuda, fake, backward, save, below in table:
        _LIBRARY.impl(name, on_cpu, "CPU")
        _torch.library.register_fake(f"tapestry::{name}", fake, lib=_LIBRARY)
        recorded.append(Recorded(_LIBRARY, name, on_cuda, backward, save, below, on_cpu))
        for device in ("cpu", "cuda"):
            _autocast(name, device)
    unrecorded(_LIBRARY, "grouped_conv2d_lowered", _cpu_lowered, lowered_forward, _fake_lowered)
    unrecorded(_LIBRARY, "grouped_conv2d_gradients", _cpu_gradients, lowered_gradients, _fake_gradients)


_register()
