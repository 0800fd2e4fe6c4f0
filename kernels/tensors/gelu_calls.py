"""Gelu of torch tensors and its gradient as prepared calls, the gradient with its sums by channel.

The extension asks for them what it does not know; layers and what they are for: `layers/gelu`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..normalization import gelu as kernels
from ..normalization.gelu import GeluKind
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import convolution_calls, native_calls
from .convolution_calls import DTYPES, REMEMBERED
from .norm_calls import prepared
from .operands import addresses_of


class _Plan:
    """One kind of call, and its launches, once they are prepared."""

    def __init__(self, x: Tensor, channels: int) -> None:
        from ..runtime.device import properties

        self.device: int = x.get_device()
        self.kind = GeluKind.of(channels, DTYPES[x.dtype])
        self.cut = self.kind.cut(x.numel() // channels, channels, properties(self.device).sms)
        self.forward: moving.Launches | None = None
        self.gradient: moving.Launches | None = None
        self._teller = native_calls.Teller()

    def run_forward(self, x: Tensor) -> Tensor | None:
        """y, which lies in memory as x does; None while kernels are being compiled in the background."""
        y = torch.empty_like(x)
        at = addresses_of(x, y)
        if self.forward is None:
            self.forward = convolution_calls.launches_of(
                lambda at: prepared(self.kind, kernels.forward(self.cut, *at), self.device), at
            )
            if self.forward is None:
                return None
        self.forward.run(at, torch_stream(self.device))
        self._teller.tell("gelu", (x, self.cut.channels), 0, self.forward)
        return y

    def run_gradient(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor] | None:
        """That of x, and its sums; None likewise."""
        dx, sums = torch.empty_like(x), x.new_empty(self.cut.channels, dtype=torch.float32)
        room = sums.new_empty(kernels.workspace(self.cut))
        at = addresses_of(x, dy, dx, sums, room)
        if self.gradient is None:
            self.gradient = convolution_calls.launches_of(
                lambda at: prepared(self.kind, kernels.gradient(self.cut, *at), self.device), at
            )
            if self.gradient is None:
                return None
        self.gradient.run(at, torch_stream(self.device))
        self._teller.tell("gelu_gradient", (x, self.cut.channels), kernels.workspace(self.cut), self.gradient)
        return dx, sums


_plans: dict[tuple[Any, ...], _Plan] = {}


def _plan(x: Tensor, channels: int) -> _Plan:
    key = (channels, x.numel(), x.dtype, x.get_device())
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            native_calls.forget("gelus")
        found = _plans[key] = _Plan(x, channels)
    return found


def gelu_of(x: Tensor, channels: int) -> Tensor:
    """As the extension asks for what it does not know: of dense halves, whose innermost extent is the channels."""
    made = _plan(x, channels).run_forward(x)
    return functional.gelu(x) if made is None else made


def gelu_gradient_of(x: Tensor, dy: Tensor, channels: int) -> tuple[Tensor, Tensor | None]:
    """The gradient of x and, from the kernels, its f32 sums by channel; `dy` lies as x does."""
    made = _plan(x, channels).run_gradient(x, dy)
    return (torch.ops.aten.gelu_backward(dy, x), None) if made is None else made
