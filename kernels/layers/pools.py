"""Pools of channels-last images by kernels: torch's averages take six times what a copy of the images takes, and their
gradients eighteen, maxima four and nine.

Where maxima came from is kept in a byte each, where torch keeps eight. What is no plain CUDA tensor, channels-last, is
torch's, and so is all under torch.compile, which makes kernels of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..pooling.windows import PoolKind, Window
from ..tensors.norm_calls import DTYPES
from ..tensors.pool_calls import averages, largest


class ChannelsLastMaxPool2d(nn.MaxPool2d):
    """nn.MaxPool2d, by kernels where they can."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]."""
        made = None if torch.compiler.is_compiling() else largest(input, window_of(self), self.ceil_mode)
        return super().forward(input) if made is None else made


class ChannelsLastAvgPool2d(nn.AvgPool2d):
    """nn.AvgPool2d, by kernels where they can."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]."""
        made = None
        if not torch.compiler.is_compiling():
            made = averages(input, window_of(self), self.ceil_mode, self.divisor_override, self.count_include_pad)
        return super().forward(input) if made is None else made


POOLED: dict[type[nn.Module], type[nn.Module]] = {
    nn.MaxPool2d: ChannelsLastMaxPool2d, nn.AvgPool2d: ChannelsLastAvgPool2d,
}  # fmt: skip


def window_of(layer: Any) -> Window | None:
    """That of a pool; None where the kernels do not take it."""
    if getattr(layer, "return_indices", False) or pair(getattr(layer, "dilation", 1)) != (1, 1):
        return None
    size, step, padding = pair(layer.kernel_size), pair(layer.stride), pair(layer.padding)
    if step is None and layer.stride in (None, [], ()):  # as torch has it
        step = size
    if size is None or step is None or padding is None:
        return None
    made = Window(size, step, padding)
    return made if made.is_computed else None


def pair(value: Any) -> tuple[int, int] | None:
    """(rows, columns) of one number for both or of two; None of anything else."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(found) not in (1, 2) or not all(isinstance(one, int) for one in found):
        return None
    return found[0], found[-1]


def pool_kinds(model: nn.Module, dtype: torch.dtype) -> list[PoolKind]:
    """The kernels that a model's pools ask for, of channels that one access divides."""
    named = DTYPES.get(dtype)
    found = [window_of(part) for part in model.modules() if type(part) in POOLED.values()]
    return list(dict.fromkeys(PoolKind.of(64, named, window) for window in found if named and window))
