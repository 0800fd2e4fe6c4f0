"""Bilinear upsampling by the faster of torch's two ways.

torch upsamples images that lie channels-first by a thread a pixel, which goes through all images and channels: of 64 x
1024 from 7 x 7 to 14 x 14 that takes 21.8 ms, where channels-last ones take 0.1 (f32, one H200).
"""

from __future__ import annotations

from math import floor

import torch
from torch import Tensor, nn

from ..tensors import autograd
from .pools import pair

MOST_PIXELS = 4096  # of a result, and the fewest images times channels, and channels: where the detour was seen to pay
FEWEST_IMAGES, FEWEST_CHANNELS = 256, 16


class ChannelsLastUpsample(nn.Upsample):
    """nn.Upsample; bilinear, of few pixels and many channels that lie channels-first, by way of channels-last ones."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] and whatever else torch takes; results lie as torch's do."""
        if not autograd.direct(input) or not self._is_slow(input):
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
