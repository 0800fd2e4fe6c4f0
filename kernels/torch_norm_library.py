"""Batch norm in training and what follows it by torch's own functions: on CPUs, and while a kernel is being compiled.

The same values as the kernels give, whatever the type: halves are f32 in between.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .normalization.batch_norm import TOLD_BY_RESULT

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
    """What a layer remembers and a call brings up to date: mean, variance (f32 a channel) and the number of batches.

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
    mean, variance = statistics.to(running.mean.dtype).unbind()
    running.mean.lerp_(mean, share)
    running.variance.lerp_(variance * (count / (count - 1)), share)


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
    return _lasting(dx), to_weight, to_bias, given


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
