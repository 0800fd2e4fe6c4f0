"""What tests of norms have: images, and a block with a residual."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def images(dtype: torch.dtype = torch.float64, seed: int = 1, channels: int = 6) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn((3, channels, 4, 5), generator=random, dtype=torch.float64) + 0.5
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


class Unit(nn.Module):
    """The norm of a branch: in a module of its own, as some models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.conv(x))
        return out


class Residual(nn.Module):
    def __init__(self, downsample: bool = True, drop: bool = False) -> None:
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.unit, self.act2 = Unit(), nn.ReLU(inplace=True)
        self.downsample = Unit() if downsample else None
        self.drop = nn.Dropout(0.5) if drop else None

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        y = self.unit(self.act1(self.bn1(self.conv1(x))))
        if self.drop is not None:
            y = self.drop(y)
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        y += shortcut
        out: Tensor = self.act2(y)
        return out
