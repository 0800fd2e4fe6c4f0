"""Torch's own convolution and its gradients: on CPUs, and on CUDA where cuDNN is faster or our kernel is not there yet.

Tensors have torch's shapes; padding is (top, bottom, left, right). Results have the strides that the operators promise,
channels-last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .geometry import Ints

_torch: Any = torch  # what is not typed by torch


def empty(like: Tensor, shape: Ints) -> Tensor:
    """A new tensor of the type and on the device of `like`, channels-last even where the shape leaves that open."""
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """conv(x, w) + bias [n, k, p, q]; the bias may be of another type."""
    inner, outer = _split(padding)
    bias = None if bias is None else bias.to(x.dtype)
    steps, gaps = list(stride), list(dilation)
    return _canonical(torch.nn.functional.conv2d(_padded(x, outer), w, bias, steps, inner, gaps, groups))


def input_gradient(
    dy: Tensor, w: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """The gradient of x of `shape` [n, c, h, w]."""
    inner, outer = _split(padding)
    top, bottom, left, right = outer
    x = empty(dy, (shape[0], shape[1], shape[2] + top + bottom, shape[3] + left + right))
    dx, _ = _backward(dy, x, w, stride, inner, dilation, groups, [True, False])
    return _canonical(_padded(dx, [-side for side in outer]))


def weight_gradient(
    x: Tensor, dy: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """The gradient of w of `shape` [k, c / groups, r, s]."""
    inner, outer = _split(padding)
    w = empty(dy, shape)
    _, dw = _backward(dy, _padded(x, outer), w, stride, inner, dilation, groups, [False, True])
    return _canonical(dw)


def gradients(
    x: Tensor, dy: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> tuple[Tensor, Tensor]:
    """Both of them, in one call."""
    inner, outer = _split(padding)
    dx, dw = _backward(dy, _padded(x, outer), w, stride, inner, dilation, groups, [True, True])
    return _canonical(_padded(dx, [-side for side in outer])), _canonical(dw)


def setting() -> str:
    """What cuDNN's time depends on beside the call: its version, and how torch is told to choose its algorithms."""
    cudnn: Any = torch.backends.cudnn
    told = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    words = [name for name, on in told.items() if on]
    return ", ".join((f"cuDNN {cudnn.version()}", *words))


def _split(padding: Ints) -> tuple[list[int], Ints]:
    """What torch's convolution pads by itself, rows and columns, and what has to be padded or cut off before."""
    top, bottom, left, right = padding
    if top == bottom >= 0 and left == right >= 0:
        return [top, left], (0, 0, 0, 0)
    return [0, 0], padding


def _padded(x: Tensor, padding: Ints) -> Tensor:
    """Zeros on each side; rows and columns cut off where negative."""
    top, bottom, left, right = padding
    return torch.nn.functional.pad(x, (left, right, top, bottom)) if any(padding) else x


def _backward(
    dy: Tensor, x: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int, wanted: list[bool]
) -> tuple[Tensor, Tensor]:
    backward = torch.ops.aten.convolution_backward.default
    steps, sides, gaps = list(stride), list(padding), list(dilation)
    dx, dw, _ = backward(dy, x, w, None, steps, sides, gaps, False, [0, 0], groups, [*wanted, False])
    return dx, dw


def _canonical(result: Tensor) -> Tensor:
    _, c, h, w = result.shape
    if result.stride() == (c * h * w, 1, w * c, c) or _torch._C._are_functorch_transforms_active():
        return result  # transforms may not write into new tensors, and promise no strides
    return empty(result, result.shape).copy_(result)
