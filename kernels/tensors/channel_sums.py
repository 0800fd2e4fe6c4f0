"""Gradients of biases: sums of torch tensors on CUDA over all but their channels, as prepared calls.

torch's own sum takes up to six times as long as a copy of the tensor, where reading it takes half of that. Channels are
dense in memory: the second dimension of channels-last images, or the `last` one of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..normalization import images
from ..normalization.images import ImageKind
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import convolution_calls, native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, computed, prepared
from .operands import ALIGNED


class _Known:
    """One kind of call: its cut, and its launches, once they are prepared."""

    __slots__ = ("cut", "device", "kind", "launches", "told", "workspace")

    def __init__(self, x: Tensor, channels: int) -> None:
        from ..runtime.device import properties

        self.device: int = x.get_device()
        self.kind = ImageKind.of(channels, DTYPES[x.dtype], "f32")
        self.cut = images.over_all(x.numel() // channels, self.kind, channels, properties(self.device).sms)
        self.workspace = images.room_of_totals(self.cut)
        self.launches: moving.Launches | None = None
        self.told = False

    def run(self, x: Tensor) -> Tensor | None:
        """The sums, f32; None where their kernels are being compiled in the background."""
        made = x.new_empty(self.cut.channels, dtype=torch.float32)
        operands = [x, made]
        if self.workspace:
            operands.append(made.new_empty(self.workspace))
        addresses = tuple([operand.data_ptr() for operand in operands])
        if self.launches is None:
            self.launches = convolution_calls.launches_of(self._described, addresses)
            if self.launches is None:
                return None
        self.launches.run(addresses, torch_stream(self.device))
        if native_calls.convolve is not None and not self.told:
            self.told = True
            native_calls.learn_sums(x, self.cut.channels, self.workspace, self.launches)
        return made

    def _described(self, at: moving.Addresses) -> Any:
        x, made, *room = at
        return prepared(self.kind, images.totals(self.cut, x, room[0] if room else 0, made), self.device)


_known: dict[tuple[Any, ...], _Known] = {}


def channel_sums(x: Tensor, dtype: torch.dtype, last: bool = False) -> Tensor:
    """The sum of a plain CUDA tensor [n, c, h, w] or, `last`, [..., c] over all but channels, of `dtype`, in f32.

    What is not dense, channels innermost, torch sums. Not differentiable.
    """
    made = None
    if (_rows(x) if last else computed(x)) and x.numel() and not x.data_ptr() & ALIGNED:
        channels = x.shape[-1 if last else 1]
        key = (channels, x.numel(), x.dtype, x.get_device())
        known = _known.get(key)
        if known is None:
            native_calls.begin()
            if len(_known) >= REMEMBERED:
                forget()
            known = _known[key] = _Known(x, channels)
        made = known.run(x)
    return by_torch(x, dtype, last) if made is None else made.to(dtype)


def _rows(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in DTYPES and x.dim() > 0 and x.is_contiguous()


def by_torch(x: Tensor, dtype: torch.dtype, last: bool = False) -> Tensor:
    """The same by torch's function, of any tensor; differentiable."""
    over, wide = tuple(range(x.dim() - 1)) if last else (0, 2, 3), torch.promote_types(dtype, torch.float32)
    return x.sum(over, dtype=wide).to(dtype) if over else x.to(dtype)


def sums_of(x: Tensor, last: bool) -> Tensor:
    """The same as the extension asks for it: f32."""
    return channel_sums(x, torch.float32, last)


def forget() -> None:
    """Every call is planned anew."""
    _known.clear()
    native_calls.forget("sums")


def sum_kinds(layers: Iterable[nn.Module], dtype: torch.dtype) -> list[ImageKind]:
    """The kernels that the biases of layers in training ask for, of activations of a type."""
    named, biases = DTYPES.get(dtype), (getattr(layer, "bias", None) for layer in layers)
    channels = [len(bias) for bias in biases if isinstance(bias, Tensor) and bias.requires_grad]
    return list(dict.fromkeys(ImageKind.of(count, named, "f32") for count in channels if named))
