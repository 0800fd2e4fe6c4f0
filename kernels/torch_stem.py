"""The first convolution of a model, of a few channels and stride 2, as one of stride 1 over blocks of 2 x 2 pixels.

With blocks[j][a] = x[2 j + a], of rows (columns alike), and r - top = 2 j + a for every tap r,

    y[p] = sum over r of x[2 p + r - top] * w[r] = sum over j, a of blocks[p + j][a] * w[2 j + a + top]

Three channels are no octet, which the copy engine and tensor cores ask for; four pixels of them are twelve, with four
of zeros two octets.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from .convolution.problem import MAX_FILTER, MOST_WIDTH
from .torch_fused import FusedConv2d, fused
from .torch_fused_calls import Following
from .torch_geometry import Geometry

MOST_CHANNELS = 4
STEP = 2


class Line(NamedTuple):
    """One direction of a filter: its taps, the padding on both sides, and the blocks that it meets."""

    taps: int
    before: int
    after: int

    @property
    def first(self) -> int:
        """The first block, from that of the output's own."""
        return -self.before // STEP

    @property
    def places(self) -> int:
        """Blocks that one output meets."""
        return (self.taps - 1 - self.before) // STEP - self.first + 1

    @property
    def missing(self) -> tuple[int, int]:
        """Zeros before and after the taps, so that they fill blocks."""
        before = -self.before - STEP * self.first
        return before, STEP * self.places - self.taps - before

    def padding(self, extent: int) -> tuple[int, int]:
        """Blocks of zeros before and after those of so many pixels."""
        outputs = (extent + self.before + self.after - self.taps) // STEP + 1
        return -self.first, outputs + self.first + self.places - 1 - -(-extent // STEP)


def in_blocks(layer: nn.Conv2d) -> bool:
    """Whether a layer is computed so: few channels, stride 2, and what the kernels take."""
    few = layer.groups == 1 and layer.in_channels <= MOST_CHANNELS
    steps = (layer.stride, layer.dilation, layer.padding_mode) == ((STEP, STEP), (1, 1), "zeros")
    out = layer.out_channels % 8 == 0 and layer.out_channels <= MOST_WIDTH
    return few and steps and out and min(layer.kernel_size) > 1 and max(layer.kernel_size) <= MAX_FILTER


class Stem(FusedConv2d):
    """Such a convolution and what follows it, in evaluation: activation(conv(x) * scale + bias)."""

    def __init__(
        self, layer: nn.Conv2d, scale: Tensor | None, bias: Tensor | None, activation: str, given: Geometry
    ) -> None:
        """`layer` is one of which `in_blocks` holds, and is moved as is `given`."""
        extents = (layer.kernel_size[0], layer.kernel_size[1])
        top, bottom, left, right = given.padding
        self.rows, self.columns = Line(extents[0], top, bottom), Line(extents[1], left, right)
        self.channels = -(-STEP * STEP * layer.in_channels // 8) * 8
        weight = _filter_over_blocks(layer.weight.detach(), self.rows, self.columns, self.channels)
        super().__init__(weight, scale, bias, activation, given)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w], and what is added to the result before the activation."""
        padding = (*self.rows.padding(x.shape[2]), *self.columns.padding(x.shape[3]))
        following = Following(self.scale, self.bias, residual, self.activation)
        return fused(blocks(x, self.channels), self.weight, following, Geometry((1, 1), padding, (1, 1), 1))


def blocks(x: Tensor, channels: int) -> Tensor:
    """[n, c, h, w] as [n, channels, h / 2, w / 2], channels-last: of 2 x 2 pixels all channels, then zeros."""
    n, c, h, w = x.shape
    if h % STEP or w % STEP:
        x = functional.pad(x, (0, w % STEP, 0, h % STEP))
    rows, columns = x.shape[2] // STEP, x.shape[3] // STEP
    pixels = x.permute(0, 2, 3, 1).reshape(n, rows, STEP, columns, STEP, c)
    together = pixels.transpose(2, 3).reshape(n, rows, columns, STEP * STEP * c)
    return functional.pad(together, (0, channels - STEP * STEP * c)).permute(0, 3, 1, 2)


def _filter_over_blocks(w: Tensor, rows: Line, columns: Line, channels: int) -> Tensor:
    """[k, c, r, s] as [k, channels, places, places], its channels in the order of `blocks`."""
    k, c = w.shape[:2]
    whole = functional.pad(w, (*columns.missing, *rows.missing))
    taps = whole.reshape(k, c, rows.places, STEP, columns.places, STEP).permute(0, 3, 5, 1, 2, 4)
    return functional.pad(
        taps.reshape(k, STEP * STEP * c, rows.places, columns.places), (0, 0, 0, 0, 0, channels - STEP * STEP * c)
    )
