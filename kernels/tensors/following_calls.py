"""What follows a convolution or a product of torch tensors on CUDA, `normalization/followed.py`, as one prepared call.

y, which nobody else has yet, is written over. Nothing here is differentiable, and nothing passes through torch's
dispatcher.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..normalization import followed as kernels
from ..normalization.followed import FollowedKind
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd, convolution_calls, native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared
from .operands import ALIGNED, addresses_of

ACTIVATIONS = ("", "relu", "silu", "gelu", "hardswish")
_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}  # as the extension takes them


class _Plan:
    """One kind of call, and its launch, once it is prepared."""

    def __init__(self, y: Tensor, channels: int, bias: Tensor | None, residual: Tensor | None, activation: str) -> None:
        from ..runtime.device import properties

        self.device: int = y.get_device()
        parameters = DTYPES[y.dtype if bias is None else bias.dtype]
        self.kind = FollowedKind.of(channels, DTYPES[y.dtype], activation, residual is not None, parameters)
        self.cut = self.kind.cut(y.numel() // channels, channels, properties(self.device).sms)
        self.there = (bias is not None, residual is not None)
        self.launches: moving.Launches | None = None
        self._teller = native_calls.Teller()

    def run(self, y: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str) -> Tensor | None:
        """y; None while the kernel is being compiled in the background."""
        at = addresses_of(y, bias, residual)
        if self.launches is None:
            self.launches = convolution_calls.launches_of(self._described, at)
            if self.launches is None:
                return None
        self.launches.run(at, torch_stream(self.device))
        known = (y, bias, residual, self.cut.channels, _NUMBERS[activation])
        self._teller.tell("followed", known, 0, self.launches)
        return y

    def _described(self, at: moving.Addresses) -> Any:
        y, *rest = at
        bias, residual = (rest.pop(0) if there else 0 for there in self.there)
        return prepared(self.kind, kernels.launch(self.cut, y, bias, residual), self.device)


_plans: dict[tuple[Any, ...], _Plan] = {}


def follow(y: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str, last: bool) -> Tensor | None:
    """activation(y + bias + residual) in the place of y; None where it is torch's to compute, and y is as it was.

    Channels are the `last` dimension of dense y or, of channels-last images, the second one. `bias` is [channels], of
    the type of y or f32; a residual is taken that lies as y does.
    """
    native = native_calls.followed
    if native is not None and (known := native(y, bias, residual, _NUMBERS[activation], int(last))) is not None:
        return known
    if not _fits(y, bias, residual, last):
        return None
    channels = y.shape[-1 if last else 1]
    dtype = None if bias is None else bias.dtype
    key = (channels, y.numel(), y.dtype, y.get_device(), dtype, residual is None, activation)
    plan = _plans.get(key)
    if plan is None:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("followers")
        plan = _plans[key] = _Plan(y, channels, bias, residual, activation)
    return plan.run(y, bias, residual, activation)


def _fits(y: Tensor, bias: Tensor | None, residual: Tensor | None, last: bool) -> bool:
    there = [one for one in (y, bias, residual) if one is not None]
    if not autograd.plain(*there) or y.dtype not in DTYPES or not y.numel() or y.data_ptr() & ALIGNED:
        return False
    if torch.is_grad_enabled() and any(one.requires_grad for one in there):
        return False
    if last:
        dense = y.dim() > 1 and y.is_contiguous()
    else:
        dense = y.dim() == 4 and y.is_contiguous(memory_format=torch.channels_last)
    if not dense or any(one.device != y.device for one in there):
        return False
    return (bias is None or _is_bias(bias, y, last)) and (residual is None or _lies_as(residual, y, last))


def _is_bias(bias: Tensor, y: Tensor, last: bool) -> bool:
    typed = bias.dtype in (y.dtype, torch.float32)
    return typed and tuple(bias.shape) == (y.shape[-1 if last else 1],) and bias.is_contiguous()


def _lies_as(residual: Tensor, y: Tensor, last: bool) -> bool:
    if residual.dtype is not y.dtype or residual.shape != y.shape or residual.data_ptr() & ALIGNED:
        return False
    return residual.is_contiguous(memory_format=torch.contiguous_format if last else torch.channels_last)
