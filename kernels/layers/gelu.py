"""Gelu behind layers whose biases learn: the kernel of its gradient sums that for the bias, too.

    before:  dx = dy * slope(x); bias gradient = sum of dx, which is read again
    after:   both in one pass

The extension alone does it: its node of autograd hands the sum to that of the layer in front (`biases`), which
takes it where its gradient is that very tensor. Of halves that are dense; all else is torch's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..normalization.gelu import GeluKind
from ..tensors import autograd, native_calls
from ..tensors.convolution_calls import DTYPES


class SummedGELU(nn.GELU):
    """nn.GELU, the exact one, whose gradient comes with its sum where that is a bias's."""

    def forward(self, input: Tensor) -> Tensor:
        """Of any shape."""
        native = None if torch.compiler.is_compiling() else native_calls.gelu
        if native is not None and self.approximate == "none" and not autograd.traced():
            known = native(input)
            if known is not None:
                return known
        return super().forward(input)


def gelu_kinds(model: nn.Module, dtype: torch.dtype) -> list[GeluKind]:
    """The kernels that a model's gelus ask for, of channels that one access divides."""
    named = DTYPES.get(dtype)
    return [GeluKind.of(64, named)] if named and any(isinstance(part, SummedGELU) for part in model.modules()) else []
