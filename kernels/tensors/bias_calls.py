"""Biases in training as nodes of autograd of their own, whose gradients kernels sum (`channel_sums`).

    before:  y = layer(x, weight, bias)
    after:   y = linked(layer(x, weight, bias without a gradient), bias)

The bias is added where torch adds it; `linked` gives y as it is, and its backward pass gives dy and the sum of it.
Under autocast torch sums in the lower type and then casts; here sums stay f32.

A linear layer is a product of rows and a matrix that adds the bias itself, and so is a convolution of one tap, of
pixels and channels: torch convolves without it, and adds it in a launch that takes two to four times what a copy of the
result does (decision 87). They are one node each, with autocast's casts in it, and the gradient of a matrix of f32 is
f32 as it was summed, where torch rounds and then casts it (decision 92).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import autograd, native_calls
from .lowered import save, saved

HALVES = {torch.float16, torch.bfloat16}
_LOWERED = {*HALVES, torch.float32}
_WIDE_PRODUCTS = hasattr(torch.ops.aten.mm, "dtype")  # products of halves with results of f32


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


def products(x: Tensor, w: Tensor, bias: Tensor, last: bool = False) -> Tensor:
    """A convolution of images [n, c, h, w] by a filter [k, c, 1, 1] or, with `last`, rows [..., c] by a matrix [k, c],
    and a bias, all of types that a product takes.
    """
    made: Tensor = _Product.apply(x, w, bias, last)  # type: ignore[no-untyped-call]
    return made


class _Product(torch.autograd.Function):
    """Such a layer as one node. The gradients are torch's functions, which record themselves where a gradient of the
    gradient is asked for.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor, last: bool) -> Tensor:
        taps = w.to(x.dtype)
        to_x, to_w, *_ = ctx.needs_input_grad
        # torch's linear layers, unlike its convolutions, save no weight that no gradient asks for.
        save(ctx, x if to_w else None, w, None if taps is w else taps, to_x or not last)
        ctx.shape, ctx.dtypes, ctx.last = x.shape, (w.dtype, bias.dtype), last
        made: Tensor = torch.addmm(bias.to(x.dtype), _rows(x, last), _rows(taps, last).t())
        if last:
            return _own(made.view(*x.shape[:-1], len(w)))
        # Which of torch's formats a result is in decides about that of those behind it.
        channels_last = not is_one_pixel(x) or _is_last(x) or _is_last(w)
        return _own(_images(made, x.shape) if channels_last else made.view(len(x), len(w), 1, 1))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        to_x, to_w, to_bias, _ = ctx.needs_input_grad
        last, (own, added), again = ctx.last, ctx.dtypes, torch.is_grad_enabled()
        x, w, taps = saved(ctx, again and to_x)
        db = autograd.bias_gradient(dy, added, last) if to_bias else None
        slopes, dx, dw = _rows(dy, last), None, None
        with torch.autocast(dy.device.type, enabled=False):
            if to_x:
                dx = torch.mm(slopes, _rows(w.to(dy.dtype) if again or taps is None else taps, last))
                dx = dx.view(ctx.shape) if last or tuple(ctx.shape[2:]) == (1, 1) else _images(dx, ctx.shape)
            if to_w:
                assert x is not None
                dw = _matrix_gradient(slopes, _rows(x, last), own)
                dw = dw if last else _laid_as(w, dw)
        return dx, dw, db, None


def _matrix_gradient(slopes: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """That of a layer's matrix, of its type: of f32 as it is summed, where torch multiplies so."""
    halves = dtype is torch.float32 and slopes.is_cuda and rows.dtype in HALVES and slopes.dtype is rows.dtype
    if halves and _WIDE_PRODUCTS and not torch.is_grad_enabled() and autograd.plain(slopes, rows):
        return torch.mm(slopes.t(), rows, out_dtype=dtype)
    return torch.mm(slopes.t(), rows).to(dtype)


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


def _rows(of: Tensor, last: bool) -> Tensor:
    """Rows x channels: a view of channels-last images or of dense rows."""
    if last:
        return of.reshape(-1, of.shape[-1])
    n, c, h, w = of.shape
    return of.permute(0, 2, 3, 1).reshape(n * h * w, c)


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
