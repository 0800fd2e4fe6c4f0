"""What follows a convolution or a product of torch tensors on CUDA, `normalization/followed.py`, as one prepared call.

In place, where nobody else has the tensor yet, or not. Nothing here is differentiable, and nothing passes through
torch's dispatcher.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..normalization import followed as kernels
from ..normalization.followed import FollowedKind, Operands
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd, convolution_calls, native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared
from .operands import ALIGNED, addresses_of

ACTIVATIONS = ("", "relu", "silu", "gelu", "hardswish")
_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}  # as the extension takes them


class Following(NamedTuple):
    """What follows x: activation(x * scale + bias + residual); None for what does not."""

    scale: Tensor | None
    bias: Tensor | None
    residual: Tensor | None
    activation: str


class _Plan:
    """One kind of call, and its launch, once it is prepared."""

    def __init__(self, x: Tensor, channels: int, then: Following, out: Tensor | None) -> None:
        from ..runtime.device import properties

        self.device: int = x.get_device()
        parameters = DTYPES[_parameters(x, then)]
        residual = then.residual is not None
        self.kind = FollowedKind.of(channels, DTYPES[x.dtype], then.activation, residual, parameters)
        self.cut = self.kind.cut(x.numel() // channels, channels, properties(self.device).sms)
        self.there = [one is not None for one in (out, *then[:3])]
        self.launches: moving.Launches | None = None
        self._teller = native_calls.Teller()

    def run(self, x: Tensor, then: Following, out: Tensor | None) -> Tensor | None:
        """The result; None while the kernel is being compiled in the background."""
        at = addresses_of(x, out, *then[:3])
        if self.launches is None:
            self.launches = convolution_calls.launches_of(self._described, at)
            if self.launches is None:
                return None
        self.launches.run(at, torch_stream(self.device))
        known = (x, out, *then[:3], self.cut.channels, _NUMBERS[then.activation])
        self._teller.tell("followed", known, 0, self.launches)
        return x if out is None else out

    def _described(self, at: moving.Addresses) -> Any:
        x, *rest = at
        out, scale, bias, residual = (rest.pop(0) if there else 0 for there in self.there)
        return prepared(
            self.kind, kernels.launch(self.cut, Operands(x, scale, bias, residual), out or x), self.device
        )  # fmt: skip


_plans: dict[tuple[Any, ...], _Plan] = {}


def follow(x: Tensor, then: Following, last: bool, out: Tensor | None = None) -> Tensor | None:
    """activation(x * scale + bias + residual) in `out`, which lies as x does, or in the place of x; None where it is
    torch's to compute, and both are as they were.

    Channels are the `last` dimension of dense x or, of channels-last images, the second one. Scale and bias are
    [channels], of one type, that of x or f32; a residual is taken that lies as x does.
    """
    native = None if autograd.traced() else native_calls.followed
    if native is not None and (known := native(x, out, *then[:3], _NUMBERS[then.activation], int(last))) is not None:
        return known
    if not _fits(x, then, last):
        return None
    channels = x.shape[-1 if last else 1]
    there = tuple(one is None for one in (out, *then[:3]))
    key = (channels, x.numel(), x.dtype, x.get_device(), _parameters(x, then), there, then.activation)
    plan = _plans.get(key)
    if plan is None:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("followers")
        plan = _plans[key] = _Plan(x, channels, then, out)
    return plan.run(x, then, out)


def _parameters(x: Tensor, then: Following) -> torch.dtype:
    """Their type."""
    return next((one.dtype for one in then[:2] if one is not None), x.dtype)


def _fits(x: Tensor, then: Following, last: bool) -> bool:
    there = [one for one in (x, *then[:3]) if one is not None]
    if not autograd.direct(*there) or x.dtype not in DTYPES or not x.numel() or x.data_ptr() & ALIGNED:
        return False
    if torch.is_grad_enabled() and any(one.requires_grad for one in there):
        return False
    if last:
        dense = x.dim() > 1 and x.is_contiguous()
    else:
        dense = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not dense or any(one.device != x.device for one in there):
        return False
    dtype = _parameters(x, then)
    if dtype not in (x.dtype, torch.float32):
        return False
    if not all(one is None or _is_parameter(one, dtype, x.shape[-1 if last else 1]) for one in then[:2]):
        return False
    return then.residual is None or _lies_as(then.residual, x, last)


def _is_parameter(values: Tensor, dtype: torch.dtype, channels: int) -> bool:
    return values.dtype is dtype and tuple(values.shape) == (channels,) and values.is_contiguous()


def _lies_as(residual: Tensor, x: Tensor, last: bool) -> bool:
    if residual.dtype is not x.dtype or residual.shape != x.shape or residual.data_ptr() & ALIGNED:
        return False
    return residual.is_contiguous(memory_format=torch.contiguous_format if last else torch.channels_last)
