"""Biases of layers that torch computes, in training: their gradients are summed by kernels (`torch_channel_sums`).

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
from torch import Tensor, nn
from torch.nn import functional

from . import torch_autograd, torch_native
from .torch_gelu import SummedGELU, summed
from .torch_hooks import like, swapped
from .torch_layers import GroupedConv2d
from .torch_timm import KINDS, Standardized, StandardizedConv2d, kind_of


def linked(y: Tensor, bias: Tensor, last: bool) -> Tensor:
    """y, whose gradient's sum is that of `bias`; channels are the `last` dimension or, of images, the second."""
    native = torch_native.linked
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
        db = torch_autograd.bias_gradient(dy, ctx.dtype, ctx.last) if to_bias else None
        return dy if to_y else None, db, None


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
        last = not _is_one_pixel(x) or _is_last(x) or _is_last(w)
        return _own(_images(made, x.shape) if last else made.view(len(x), len(w), 1, 1))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        to_x, to_w, to_bias = ctx.needs_input_grad
        db = torch_autograd.bias_gradient(dy, ctx.bias_dtype) if to_bias else None
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


def _is_one_pixel(images: Tensor) -> bool:
    return tuple(images.shape[2:]) == (1, 1)


def _rows(images: Tensor) -> Tensor:
    """Pixels x channels: a view of channels-last images."""
    n, c, h, w = images.shape
    return images.permute(0, 2, 3, 1).reshape(n * h * w, c)


def _images(rows: Tensor, shape: torch.Size) -> Tensor:
    """Channels-last images of such rows, of the extents of others of a shape."""
    n, _, h, w = shape
    return rows.view(n, h, w, rows.shape[1]).permute(0, 3, 1, 2)


def _type_of(x: Tensor, *parameters: Tensor) -> torch.dtype | None:
    """The type that a product is of; None where types are others than autocast brings together, or one without it."""
    types = {x.dtype, *(one.dtype for one in parameters)}
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type) if types <= _LOWERED else None
    return x.dtype if len(types) == 1 else None


_HALVES = {torch.float16, torch.bfloat16}
_LOWERED = {*_HALVES, torch.float32}


def _linkable(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether a layer learns its bias, the last of its parameters, here."""
    if not torch.is_grad_enabled() or not _plain(x, *parameters):
        return False
    return parameters[-1].requires_grad  # type: ignore[union-attr]


def _plain(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether all are plain tensors of the layer's own, and nothing traces or transforms."""
    if torch_autograd.traced() or any(one is None for one in parameters):
        return False
    return torch_autograd.plain(x, *parameters)  # type: ignore[arg-type]


class BiasedLinear(nn.Linear):
    """nn.Linear with the same parameters; the gradient of its bias is summed by kernels."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., c] to [..., k]."""
        weight, bias = self._parameters.get("weight"), self._parameters.get("bias")
        native = None if torch.compiler.is_compiling() else torch_native.biased_linear  # of which no graph may depend
        if native is not None and not torch_autograd.traced():
            known = native(input, weight, bias)
            if known is not None:
                return known
        if not _linkable(input, weight, bias):
            return super().forward(input)
        assert weight is not None
        assert bias is not None
        return linked(functional.linear(input, weight, bias.detach()), bias, True)


class BiasedConv2d(nn.Conv2d):
    """nn.Conv2d with the same parameters; the gradient of its bias is summed by kernels."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]."""
        weight, bias, taps = self._parameters.get("weight"), self._parameters.get("bias"), self.taps()
        native = None if torch.compiler.is_compiling() else torch_native.biased_convolution
        moved = self._moved() if native is not None and weight is not None and not torch_autograd.traced() else None
        if moved is not None:
            assert native is not None
            known = native(input, taps, bias, *moved)
            if known is not None:
                return known
        if _plain(input, weight, bias) and input.dim() == 4:
            assert bias is not None
            dtype = _type_of(input, taps, bias)
            if dtype is not None and self._is_pointwise(input, taps, bias) and self._is_taken_as_rows(input, dtype):
                products: Tensor = _Pointwise.apply(input.to(dtype), taps, bias)  # type: ignore[no-untyped-call]
                return products
            if _linkable(input, weight, bias):
                return linked(self._conv_forward(input, taps, bias.detach()), bias, False)
        by_torch: Tensor = self._conv_forward(input, taps, self.bias)
        return by_torch

    def _moved(self) -> tuple[int, ...] | None:
        """As the extension takes it; None where it is said in another way, by a word or by one number for both."""
        stride, padding, dilation = self.stride, self.padding, self.dilation
        if self.padding_mode != "zeros" or type(stride) is not tuple or type(dilation) is not tuple:
            return None
        if type(padding) is not tuple or len(stride) != 2 or len(padding) != 2 or len(dilation) != 2:
            return None
        return *stride, *padding, *dilation, self.groups

    def _is_pointwise(self, x: Tensor, taps: Tensor, bias: Tensor) -> bool:
        """Whether it has one tap, which is a product over channels."""
        if tuple(taps.shape[2:]) != (1, 1) or self.groups != 1 or (x.shape[1], len(bias)) != (taps.shape[1], len(taps)):
            return False
        return self.padding_mode == "zeros" and self.padding in ((0, 0), 0, (0,), "valid", "same")

    def _is_taken_as_rows(self, x: Tensor, dtype: torch.dtype) -> bool:
        """Whether images lie as a product takes them, of a type that torch multiplies no slower than it convolves: of
        f32 its products are exact where its convolutions are TF32.
        """
        if _is_one_pixel(x):
            return dtype.is_floating_point
        if dtype not in _HALVES or self.stride not in ((1, 1), 1, (1,)) or not x.numel():
            return False
        return x.shape[1] > 1 and x.is_contiguous(memory_format=torch.channels_last)

    def taps(self) -> Tensor:
        """The filter [k, c / groups, r, s] that the layer multiplies with."""
        return self.weight


class BiasedStandardizedConv2d(Standardized, BiasedConv2d):
    """The same of timm's ScaledStdConv2d."""


_KINDS: dict[type[GroupedConv2d], type[BiasedConv2d]] = {
    GroupedConv2d: BiasedConv2d, StandardizedConv2d: BiasedStandardizedConv2d,
}  # fmt: skip
KINDS.update({biased: kind for kind, biased in _KINDS.items()})  # what is swapped or fused later finds what they were


def fuse_biases(model: nn.Module) -> list[str]:
    """Have kernels sum the gradients of biases in `model`, in place: the names of the layers whose biases those are.

    Taken are nn.Linear, nn.Conv2d and timm's ScaledStdConv2d, not what else is derived from them, that have a bias and
    nothing that hangs on them; and exact gelus, which may stand behind them (`torch_gelu`) and are not named.
    Parameters are shared with the old layers and keep their names. What is no plain CUDA tensor torch sums, and so it
    does under torch.compile.
    """
    return [name for name, made in swapped(model, _made).items() if not isinstance(made, SummedGELU)]


def _made(layer: nn.Module) -> nn.Module | None:
    """What takes its place; None where it stays."""
    kind = _kind(layer)
    if kind is None:
        return summed(layer)
    return None if layer.bias is None else like(layer, kind)


def _kind(layer: nn.Module) -> type[nn.Module] | None:
    if type(layer) is nn.Linear:
        return BiasedLinear
    if not isinstance(layer, nn.Conv2d) or isinstance(layer, (GroupedConv2d, BiasedConv2d)):  # which have it anyway
        return None
    kind = kind_of(layer)
    return None if kind is None else _KINDS.get(kind)
