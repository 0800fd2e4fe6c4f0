"""Normalisations of channels: x [n, c, ...], weight and bias [c], statistics over the other axes or over groups of c.

Statistics of 16-bit floats are kept in f32; the result has the operand's dtype.
"""

from __future__ import annotations

from math import prod

from ..dsl.declare import update
from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, rsqrt
from .reduction import sum as fold
from .views import reshape


@door
@composite
def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
    name: str = "",
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias, over groups of channels and all of space: arXiv:1803.08494."""
    _check("group_norm", x, weight=weight, bias=bias)
    if groups < 1 or x.shape[1] % groups:
        raise UsageError(f"group_norm: {groups} groups do not divide {x.shape[1]} channels", sides={"x": repr(x)})
    rest = tuple(f"s{k}" for k in range(x.ndim - 2))
    split = reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]), axes=("n", "g", "c", *rest))
    every = axes_of(split)
    mean, variance = _statistics(split, every[:2], every[2:])
    channel = every[1] * split.shape[2] + every[2]
    centred = (split[every] - mean[every[:2]]) * rsqrt(variance[every[:2]] + eps)
    return reshape(define("scale", every, _affine(centred, weight, bias, channel), dtype=x.dtype), x.shape, axes=x.axes)


@door
@composite
def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5, name: str = ""
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over space, for each image and channel: arXiv:1607.08022."""
    _check("instance_norm", x, weight=weight, bias=bias)
    every = axes_of(x)
    mean, variance = _statistics(x, every[:2], every[2:])
    centred = (x[every] - mean[every[:2]]) * rsqrt(variance[every[:2]] + eps)
    return define("scale", every, _affine(centred, weight, bias, every[1]), dtype=x.dtype)


@door
@composite
def batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, name: str = "",
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel: Ioffe and Szegedy, arXiv:1502.03167.

    ``mean`` and ``variance`` [c] are running statistics. With ``training`` those of the batch are used instead, and the
    two, which must be states then, become (1 - momentum) old + momentum of the batch's (its variance divided by n - 1).
    """
    _check("batch_norm", x, weight=weight, bias=bias, mean=mean, variance=variance)
    every = axes_of(x)
    channel, folded = every[1], (every[0], *every[2:])
    if training:
        count = prod(x.shape) // max(1, x.shape[1])
        if count < 2:
            raise UsageError("batch_norm: one value has no variance", sides={"x": repr(x)})
        running = mean, variance
        mean, variance = _statistics(x, (channel,), folded)
        for old, new, share in zip(running, (mean, variance), (momentum, momentum * count / (count - 1)), strict=True):
            moved = (1 - momentum) * old[channel] + share * new[channel]
            update(old, define("running", (channel,), moved, dtype=old.dtype))
    centred = (x[every] - mean[channel]) * rsqrt(variance[channel] + eps)
    return define("scale", every, _affine(centred, weight, bias, channel), dtype=x.dtype)


@door
@composite
def local_response_norm(
    x: Tensor, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, name: str = ""
) -> Tensor:
    """x / (k + alpha * mean of x² over ``size`` channels around)^beta, channels beyond the ends being 0."""
    _check("local_response_norm", x)
    if size < 1:
        raise UsageError(f"local_response_norm(size={size})", hint="at least 1")
    every = axes_of(x)
    window = indices("", **{unique_names((*x.axes, "w"))[-1]: size})
    near = x.get(every[0], every[1] + window - size // 2, *every[2:])
    total = define("squares", every, fold[window](near * near / size), dtype=promote(x.dtype, "f32"))
    return define("divide", every, x[every] / (k + alpha * total[every]) ** beta, dtype=x.dtype)


def _statistics(x: Tensor, outer: tuple[Index, ...], inner: tuple[Index, ...]) -> tuple[Tensor, Tensor]:
    """The mean and the variance over the inner indices."""
    every, kept = axes_of(x), {str(index) for index in outer}
    count = prod(extent for axis, extent in zip(x.axes, x.shape, strict=True) if axis not in kept)
    wide = promote(x.dtype, "f32")
    value = x[every] if DTYPES[x.dtype].compute == x.dtype else cast(x[every], DTYPES[x.dtype].compute)
    mean = define("mean", outer, fold[inner](value / count), dtype=wide)
    centred = x[every] - mean[outer]
    return mean, define("variance", outer, fold[inner](centred * centred / count), dtype=wide)


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None, channel: Index) -> Tensor:
    value = value if weight is None else value * weight[channel]
    return value if bias is None else value + bias[channel]


def _check(function: str, x: Tensor, **channels: Tensor | None) -> None:
    """x is of floats and has channels; what belongs to channels has their number."""
    if DTYPES[x.dtype].kind != "float" or x.ndim < 2:
        raise UsageError(f"{function} takes floats [n, c, ...]", sides={"x": repr(x)})
    for what, tensor in channels.items():
        if tensor is not None and tensor.shape != x.shape[1:2]:
            sides = {"x": repr(x), what: repr(tensor)}
            raise UsageError(f"{function}: {what} has not one number for each channel", sides=sides)
