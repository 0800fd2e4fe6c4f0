"""Layers that torch computes and whose biases learn: kernels sum the gradients of these (`tensors/bias_calls`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..tensors import autograd, native_calls
from ..tensors.bias_calls import HALVES, is_one_pixel, linked, products, type_of
from .grouped import GroupedConv2d
from .timm import KINDS, Standardized, StandardizedConv2d


def _linkable(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether a layer learns its bias, the last of its parameters, here."""
    if not torch.is_grad_enabled() or not _plain(x, *parameters):
        return False
    return parameters[-1].requires_grad  # type: ignore[union-attr]


def _plain(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether all are plain tensors of the layer's own, and nothing traces or transforms."""
    if autograd.traced() or any(one is None for one in parameters):
        return False
    return autograd.plain(x, *parameters)  # type: ignore[arg-type]


class BiasedLinear(nn.Linear):
    """nn.Linear with the same parameters; the gradient of its bias is summed by kernels."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., c] to [..., k]."""
        weight, bias = self._parameters.get("weight"), self._parameters.get("bias")
        native = None if torch.compiler.is_compiling() else native_calls.biased_linear  # of which no graph may depend
        if native is not None and not autograd.traced():
            known = native(input, weight, bias)
            if known is not None:
                return known
        if not _linkable(input, weight, bias):
            return super().forward(input)
        assert weight is not None
        assert bias is not None
        if input.dim() > 1 and input.numel() and tuple(weight.shape) == (len(bias), input.shape[-1]):
            dtype = type_of(input, weight, bias)
            if dtype is not None and dtype.is_floating_point:
                return products(input.to(dtype), weight, bias, last=True)
        return linked(functional.linear(input, weight, bias.detach()), bias, True)


class BiasedConv2d(nn.Conv2d):
    """nn.Conv2d with the same parameters; the gradient of its bias is summed by kernels."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]."""
        weight, bias, taps = self._parameters.get("weight"), self._parameters.get("bias"), self.taps()
        native = None if torch.compiler.is_compiling() else native_calls.biased_convolution
        moved = self._moved() if native is not None and weight is not None and not autograd.traced() else None
        if moved is not None:
            assert native is not None
            known = native(input, taps, bias, *moved)
            if known is not None:
                return known
        if _plain(input, weight, bias) and input.dim() == 4:
            assert bias is not None
            dtype = type_of(input, taps, bias)
            if dtype is not None and self._is_pointwise(input, taps, bias) and self._is_taken_as_rows(input, dtype):
                return products(input.to(dtype), taps, bias)
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
        if is_one_pixel(x):
            return dtype.is_floating_point
        if dtype not in HALVES or self.stride not in ((1, 1), 1, (1,)) or not x.numel():
            return False
        return x.shape[1] > 1 and x.is_contiguous(memory_format=torch.channels_last)

    def taps(self) -> Tensor:
        """The filter [k, c / groups, r, s] that the layer multiplies with."""
        return self.weight


class BiasedStandardizedConv2d(Standardized, BiasedConv2d):
    """The same of timm's ScaledStdConv2d."""


BIASED: dict[type[GroupedConv2d], type[BiasedConv2d]] = {
    GroupedConv2d: BiasedConv2d, StandardizedConv2d: BiasedStandardizedConv2d,
}  # fmt: skip
KINDS.update({biased: kind for kind, biased in BIASED.items()})  # what is swapped or fused later finds what they were
