"""Biases in training as nodes of autograd of their own, whose gradients kernels sum (`channel_sums`).

    before:  y = layer(x, weight, bias)
    after:   y = linked(layer(x, weight, bias without a gradient), bias)

The bias is added where torch adds it; `linked` gives y as it is, and its backward pass gives dy and the sum of it.
Under autocast torch sums in the lower type and then casts; here sums stay f32.

A convolution of one tap is a product of pixels and channels that adds the bias itself: torch convolves without it, and
adds it in a launch that takes two to four times what a copy of the result does (decision 87).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import autograd, native_calls

HALVES = {torch.float16, torch.bfloat16}
_LOWERED = {*HALVES, torch.float32}


def linked(y: Tensor, bias: Tensor, last: bool) -> Tensor:
    """y, whose gradient's sum is that of `bias`; channels are the `last` dimension or, of images, the second."""
    native = native_calls.linked
    if native is not None and (known := native(y, bias, last)) is not None:
        return known
    made: Tensor = _Linked.apply(y, bias, last)  # type: ignore[no-untyped-call]
    return made


class _Linked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, last: bool) -> Tensor:
        ctx.dtype, ctx.last = bias.dtype, last
        return _own(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        to_y, to_bias, _ = ctx.needs_input_grad
        db = autograd.bias_gradient(dy, ctx.dtype, ctx.last) if to_bias else None
        return dy if to_y else None, db, None


def products(x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    """A convolution of images [n, c, h, w] by a filter [k, c, 1, 1] and its bias, all of types that a product takes."""
    made: Tensor = _Pointwise.apply(x, taps, bias)  # type: ignore[no-untyped-call]
    return made


class _Pointwise(torch.autograd.Function):
    """A convolution of one tap and its bias: products, as one node, of which the first one adds the bias itself. The
    gradients are torch's functions, which record themselves where a gradient of the gradient is asked for.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        taps = w.to(x.dtype)
        to_x, to_w, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if to_w else None, w)
        ctx.shape, ctx.bias_dtype, ctx.taps = x.shape, bias.dtype, taps if to_x and taps is not w else None
        made: Tensor = torch.addmm(bias.to(x.dtype), _rows(x), _rows(taps).t())
        # Which of torch's formats a result is in decides about that of those behind it.
        last = not is_one_pixel(x) or _is_last(x) or _is_last(w)
        return _own(_images(made, x.shape) if last else made.view(len(x), len(w), 1, 1))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        to_x, to_w, to_bias = ctx.needs_input_grad
        db = autograd.bias_gradient(dy, ctx.bias_dtype) if to_bias else None
        slopes, again = _rows(dy), torch.is_grad_enabled() or ctx.taps is None
        dx = dw = None
        with torch.autocast(dy.device.type, enabled=False):
            if to_x:
                dx = torch.mm(slopes, _rows(w.to(dy.dtype) if again else ctx.taps))
                dx = dx.view(ctx.shape) if tuple(ctx.shape[2:]) == (1, 1) else _images(dx, ctx.shape)
            if to_w:
                dw = _laid_as(w, torch.mm(slopes.t(), _rows(x)).to(w.dtype))
        return dx, dw, db


def _own(y: Tensor) -> Tensor:
    """The same memory in a tensor of its own: views made in a node could not be written in place."""
    return y.new_empty(0).set_(y.untyped_storage(), y.storage_offset(), y.size(), y.stride())


def _laid_as(w: Tensor, rows: Tensor) -> Tensor:
    """The gradient of a filter of one tap, with its strides where those say the same: what wraps parameters asks so."""
    if w.stride()[:2] == rows.stride():
        return rows.as_strided(w.shape, w.stride())
    return rows.view(w.shape)


def _is_last(images: Tensor) -> bool:
    """Whether images of one pixel are channels-last to torch, which goes by their strides."""
    return images.shape[1] > 1 and images.stride(3) == images.shape[1]


def is_one_pixel(images: Tensor) -> bool:
    return tuple(images.shape[2:]) == (1, 1)


def _rows(images: Tensor) -> Tensor:
    """Pixels x channels: a view of channels-last images."""
    n, c, h, w = images.shape
    return images.permute(0, 2, 3, 1).reshape(n * h * w, c)


def _images(rows: Tensor, shape: torch.Size) -> Tensor:
    """Channels-last images of such rows, of the extents of others of a shape."""
    n, _, h, w = shape
    return rows.view(n, h, w, rows.shape[1]).permute(0, 3, 1, 2)


def type_of(x: Tensor, *parameters: Tensor) -> torch.dtype | None:
    """The type that a product is of; None where types are others than autocast brings together, or one without it."""
    types = {x.dtype, *(one.dtype for one in parameters)}
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type) if types <= _LOWERED else None
    return x.dtype if len(types) == 1 else None
