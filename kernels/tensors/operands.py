"""Operands of convolutions as the kernels take them: rows, dense ones, what is added to channels; and results."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..convolution.problem import BadConvolution
from .geometry import Ints

ADDED = (torch.float32, torch.float16, torch.bfloat16)  # types of a bias
ALIGNED = 15  # the bits of addresses, and of strides in bytes, that have to be 0 for the copy engine


def addresses_of(*tensors: Tensor | None) -> tuple[int, ...]:
    """Of those that are there."""
    return tuple([tensor.data_ptr() for tensor in tensors if tensor is not None])


def rows(tensor: Tensor) -> Tensor:
    """[a, b, y, x] as [a, y, x, b]: the same memory."""
    return tensor.detach().permute(0, 2, 3, 1)


def dense(tensor: Tensor) -> Tensor:
    """The same values, channels-last."""
    return rows(tensor).contiguous().permute(0, 3, 1, 2)


def lies_first(images: Tensor) -> bool:
    """Whether images [n, c, h, w] lie channels-first and in no other order: by numbers, which torch has under vmap."""
    return images.is_contiguous() and images.shape[1] > 1 and images.stride(1) > 1


def walked(tensor: Tensor) -> bool:
    """Whether the kernels take images as they lie: channels-last, or a part of such a tensor that the copy engine can
    fetch, as `torch.split` and the gradient of `torch.cat` give."""
    found = rows(tensor)
    if found.is_contiguous():
        return True
    *extents, channels = found.shape
    *steps, step = found.stride()
    counts = [channels, *(by for by, extent in zip(steps, extents, strict=True) if extent > 1)]
    numbers = [tensor.data_ptr(), *(tensor.element_size() * count for count in counts)]
    return step == 1 and min(counts) > 0 and not any(number & ALIGNED for number in numbers)


def is_wide(bias: Tensor) -> bool:
    """Whether the kernels add it as it is."""
    return bias.dtype is torch.float32 and bias.is_contiguous()


def wide(bias: Tensor, x: Tensor) -> Tensor:
    """A bias as the kernels add it: f32, dense, on the device of x."""
    if bias.device != x.device:
        came = f"{x.device}, {bias.device}"
        raise BadConvolution("operands on different devices", where="conv2d", expected="one device", came=came)
    if bias.dtype not in ADDED:
        expected = "torch.float32, torch.float16 or torch.bfloat16"
        raise BadConvolution("the type of the bias on CUDA", where="conv2d", expected=expected, came=str(bias.dtype))
    return bias.detach() if is_wide(bias) else bias.detach().float().contiguous()


class Result(NamedTuple):
    """What to allocate: the arguments of `torch.empty_strided`, fewer where the type is an operand's."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def like(cls, tensor: Tensor, shape: Ints, dtype: torch.dtype | None = None) -> Result:
        """Channels-last, on the device of `tensor` and, unless another is given, of its type."""
        a, b, y, x = (int(extent) for extent in shape)
        return cls((a, b, y, x), (b * y * x, 1, x * b, b), dtype or tensor.dtype, tensor.device)

    def allocated(self, like: Tensor) -> Tensor:
        """On the device of `like`."""
        if like.dtype is self.dtype:
            return like.new_empty_strided(self.shape, self.strides)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
