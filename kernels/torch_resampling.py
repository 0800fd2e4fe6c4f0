"""Layers that make images smaller or larger where torch takes long for it: pools (`torch_pools`), and bilinear
upsampling.

torch upsamples images that lie channels-first by a thread a pixel, which goes through all images and channels: of 64 x
1024 from 7 x 7 to 14 x 14 that takes 21.8 ms, where channels-last ones take 0.1 (f32, one H200).
"""

from __future__ import annotations

from math import floor

import torch
from torch import Tensor, nn

from . import torch_autograd
from .torch_hooks import like, swapped
from .torch_pools import POOLED, pair, window_of

MOST_PIXELS = 4096  # of a result, and the fewest images times channels, and channels: where the detour was seen to pay
FEWEST_IMAGES, FEWEST_CHANNELS = 256, 16


class ChannelsLastUpsample(nn.Upsample):
    """nn.Upsample; bilinear, of few pixels and many channels that lie channels-first, by way of channels-last ones."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] and whatever else torch takes; results lie as torch's do."""
        if torch_autograd.traced() or not torch_autograd.plain(input) or not self._is_slow(input):
            return super().forward(input)
        return super().forward(input.contiguous(memory_format=torch.channels_last)).contiguous()

    def _is_slow(self, x: Tensor) -> bool:
        if self.mode != "bilinear" or x.dim() != 4 or not x.is_contiguous() or x.shape[1] < FEWEST_CHANNELS:
            return False
        if x.is_contiguous(memory_format=torch.channels_last) or x.shape[0] * x.shape[1] < FEWEST_IMAGES:
            return False
        if self.size is not None:
            down, right = pair(self.size) or (0, 0)
        else:
            by = self.scale_factor if isinstance(self.scale_factor, (tuple, list)) else (self.scale_factor,) * 2
            down, right = (floor(extent * float(step or 1)) for extent, step in zip(x.shape[2:], by, strict=True))
        return 0 < down * right <= MOST_PIXELS


KINDS: dict[type[nn.Module], type[nn.Module]] = {**POOLED, nn.Upsample: ChannelsLastUpsample}


def fuse_resampling(model: nn.Module) -> list[str]:
    """Have kernels compute the pools of `model`, and torch what it upsamples in a faster way, in place: the names of
    the layers.

    Taken are nn.MaxPool2d that gives no indices and nn.AvgPool2d, with windows of up to nine places and steps of up to
    three, and nn.Upsample that is bilinear; not what is derived from them, nor what something hangs on. Images that lie
    otherwise than `torch_pools` and `ChannelsLastUpsample` say are torch's, and so are all under torch.compile.
    """
    return list(swapped(model, _made))


def _made(layer: nn.Module) -> nn.Module | None:
    """What takes its place; None where it stays."""
    kind = KINDS.get(type(layer))
    return like(layer, kind) if kind is not None and _is_ours(layer) else None


def _is_ours(layer: nn.Module) -> bool:
    return layer.mode == "bilinear" if isinstance(layer, nn.Upsample) else window_of(layer) is not None
