"""Squeeze-and-excitation: y = x * gate(mean of x over each image), the gate a part of the model.

    before:  m = x.mean((2, 3), keepdim=True);  y = x * gate(m)
    after:   x, m, link = squeezed(x);          y = excited(x, gate(m), link)

Torch makes fifteen passes over x and tensors of its size, forward and backward; here they are seven. x is handed from
`squeezed` to `excited`, and its gradient back, which is dy until `squeezed` knows the mean's too:

    dx = dy * gate + dm / pixels        one pass, in the backward of `squeezed`

In inference they are three, each faster than torch's. Plain channels-last CUDA tensors are computed by kernels
(`normalization/images.cu`); all else is torch's, and so it is under torch.compile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from . import autograd, native_calls
from .image_calls import launched, worth_it
from .norm_calls import computed, fetchable
from .recorded import applied, no_second_derivative


class Link:
    """What `excited` tells the gradient of `squeezed`: the gate."""

    __slots__ = ("gate",)

    def __init__(self) -> None:
        self.gate: Tensor | None = None


def squeezed(x: Any, over: tuple[int, int] = (-2, -1)) -> Any:
    """x, its mean over each image [n, c, 1, 1], and what connects it with `excited`, which alone may take the x.

    Of what is traced it is one call. The mean is that `over` two dimensions, of whatever is no batch of images, too.
    """
    if isinstance(x, fx.Proxy):
        return x.tracer.create_proxy("call_function", squeezed, (x, over), {})
    native = None if autograd.traced() else native_calls.squeezed
    if native is not None and (made := native(x)) is not None:
        return made
    if not isinstance(x, Tensor) or (torch.is_grad_enabled() and not x.requires_grad) or not _fits(x):
        return x, x.mean(over, keepdim=True), None
    link = Link()
    passed, mean = _squeeze(x, link)
    return passed, mean, link


def excited(x: Any, gate: Any, link: Any) -> Any:
    """x * gate."""
    if isinstance(x, fx.Proxy):
        return x.tracer.create_proxy("call_function", excited, (x, gate, link), {})
    if link is None:
        return x * gate
    native = native_calls.excited
    if native is not None and (known := native(x, gate, link)) is not None:
        return known
    if gate.shape != (*x.shape[:2], 1, 1) or gate.dtype is not x.dtype:  # torch's, once the gradient is x's own again
        link.gate = torch.ones_like(x[:, :, :1, :1])
        return x * gate
    made: Tensor = _excite(x, gate, link)
    return made


def _fits(x: Tensor) -> bool:
    if not autograd.direct(x) or not computed(x) or not x.numel():
        return False
    return worth_it(x)


class _Squeeze(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, link: Link) -> tuple[Tensor, Tensor]:
        ctx.link = link
        mean = x.new_empty((*x.shape[:2], 1, 1))
        launched("means", x, mean)
        return x.view_as(x), mean

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dm: Tensor) -> tuple[Tensor, None]:
        return squeeze_backward_of(dy, dm, ctx.link.gate), None


class _Excite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, link: Link) -> Tensor:
        link.gate = gate = gate.detach().contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        launched("scaled", x, gate, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        (x,) = ctx.saved_tensors
        return *excite_backward_of(x, dy), None


def squeeze_backward_of(dy: Tensor, dm: Tensor, gate: Tensor) -> Tensor:
    """The gradient of what was squeezed, as the extension asks for it too."""
    _once()
    dy = fetchable(dy)
    dx = torch.empty_like(dy)
    launched("mapped", dy, gate, dm.contiguous(), dx)
    return dx


def excite_backward_of(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Of what is excited, until `squeezed` knows its gradient, and of the gate; likewise."""
    _once()
    dy, dgate = fetchable(dy), x.new_empty((*x.shape[:2], 1, 1))
    launched("products", fetchable(x), dy, dgate)  # what keeps tensors elsewhere may give them back as it likes
    return dy, dgate


_squeeze = applied(_Squeeze)
_excite = applied(_Excite)


def _once() -> None:
    """Gradients are not recorded: what is between the two is known to neither of them."""
    if torch.is_grad_enabled():
        raise no_second_derivative("squeeze-and-excitation", "fuse_excitations")
