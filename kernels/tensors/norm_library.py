"""Batch norm in training and what follows it by torch's own functions: on CPUs, and while a kernel is being compiled.

The same values as the kernels give, whatever the type: halves are f32 in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..normalization.batch_norm import TOLD_BY_RESULT

_aten: Any = torch.ops.aten
IMAGES = (0, 2, 3)
FUNCTIONS: dict[str, Any] = {
    "": lambda v: v,
    "relu": torch.relu,
    "relu6": nn.functional.relu6,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "hardswish": nn.functional.hardswish,
}
SLOPES: dict[str, Any] = {  # of dy and what the activation was given
    "": lambda dy, v: dy,  # noqa: ARG005
    "relu": lambda dy, v: _aten.threshold_backward(dy, v, 0),
    "relu6": lambda dy, v: _aten.hardtanh_backward(dy, v, 0, 6),
    "silu": lambda dy, v: _aten.silu_backward(dy, v),
    "gelu": lambda dy, v: _aten.gelu_backward(dy, v),
    "hardswish": lambda dy, v: _aten.hardswish_backward(dy, v),
}


class Running(NamedTuple):
    """What a layer remembers and a call brings up to date: mean and variance of each channel and the number of batches.

    A `momentum` of None is the mean over all batches.
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor
    momentum: float | None


class Norm(NamedTuple):
    """What a batch norm does to the values of a channel: weight and bias [c], or None, and what follows."""

    weight: Tensor | None
    bias: Tensor | None
    epsilon: float
    activation: str

    @property
    def dtype(self) -> torch.dtype:
        """Of weight and bias; f32 where there is neither."""
        return parameter_type(self.weight, self.bias)


def parameter_type(*values: Tensor | None) -> torch.dtype:
    """The type of a layer's parameters, that of the first one that is there: f32 where none is."""
    return next((value.dtype for value in values if value is not None), torch.float32)


def are_taken(parameters: Sequence[Tensor | None], own: torch.dtype, x: Tensor, channels: int) -> bool:
    """Whether kernels of tensors like x take parameters: all of one type, f32 or that of x, a number a channel."""
    like = (own, (channels,))
    return own in (torch.float32, x.dtype) and all(
        one is None or (one.dtype, tuple(one.shape)) == like for one in parameters
    )


def wide(x: Tensor) -> Tensor:
    """In f32, where it is narrower."""
    return x if x.dtype is torch.float64 else x.float()


def forward(x: Tensor, residual: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """(y, [mean, biased variance]) of [n, c, h, w]."""
    values = wide(x)
    variance, mean = torch.var_mean(values, IMAGES, correction=0)
    before = _along(norm.weight, _normal(values, mean, variance, norm)) + _shift(norm, values)
    if residual is not None:
        before = before + residual
    y = FUNCTIONS[norm.activation](before).to(x.dtype)
    return y.contiguous(memory_format=torch.channels_last), torch.stack([mean, variance])


def remember(running: Running, statistics: Tensor, count: int) -> None:
    """Bring up to date what a layer remembers, of `count` values a channel: their variance is no more biased.

    Raises ValueError, as torch's, for one value a channel, whose variance is not known.
    """
    if count < 2:
        raise ValueError(f"expected more than one value a channel in training, got {count}")
    running.batches.add_(1)
    share = running.batches.reciprocal() if running.momentum is None else running.momentum
    mean, variance = statistics
    for kept, now in ((running.mean, mean), (running.variance, variance * (count / (count - 1)))):
        before = kept.to(torch.promote_types(kept.dtype, now.dtype))  # halves are f32 in between
        kept.copy_(before + share * (now - before))


def gradient(
    x: Tensor, dy: Tensor, other: Tensor | None, statistics: Tensor, norm: Norm
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of x, weight, bias and a residual.

    `other` is the residual or, where the derivative is known from that, y.
    """
    values, (mean, variance) = wide(x), statistics
    normal = _normal(values, mean, variance, norm)
    before = _along(norm.weight, normal) + _shift(norm, values)
    if other is not None:
        before = wide(other) if norm.activation in TOLD_BY_RESULT else before + other
    g = SLOPES[norm.activation](wide(dy), before.to(values.dtype))
    to_weight, to_bias = (g * normal).sum(IMAGES), g.sum(IMAGES)
    count = x.numel() // x.shape[1]
    centred = g - _column(to_bias) / count - normal * _column(to_weight) / count
    dx = _along(norm.weight, centred * _column(torch.rsqrt(variance + norm.epsilon))).to(x.dtype)
    given = None if other is None else _lasting(g.to(x.dtype))
    made = values.dtype if norm.dtype is torch.float32 else norm.dtype
    return _lasting(dx), to_weight.to(made), to_bias.to(made), given


def _lasting(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _normal(values: Tensor, mean: Tensor, variance: Tensor, norm: Norm) -> Tensor:
    return (values - _column(mean)) * _column(torch.rsqrt(variance + norm.epsilon))


def _along(weight: Tensor | None, values: Tensor) -> Tensor:
    return values if weight is None else values * _column(weight.to(values.dtype))


def _shift(norm: Norm, values: Tensor) -> Tensor | float:
    return 0.0 if norm.bias is None else _column(norm.bias.to(values.dtype))


def _column(channels: Tensor) -> Tensor:
    return channels[:, None, None]
