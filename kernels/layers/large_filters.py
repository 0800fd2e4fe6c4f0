"""Depthwise convolutions with filters of 8 to 12 rows and columns, as grouped ones over blocks of pixels.

Kernels take filters of up to seven. Of rows (columns alike), with blocks[j][a] = x[2 j + a] and y[2 p + b] the outputs,

    y[2 p + b] = sum over r of x[2 p + b + r - top] * w[r] = sum over j, a of blocks[p + j][a] * w[2 j + a - b + top]

so that a channel is a group of two, or of four where both rows and columns are many, whose filter is half as long.
Images, results and their gradients are copied, by torch; what a filter becomes is its product with a matrix of zeros
and ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..convolution.pixels import Line
from ..convolution.problem import MAX_FILTER, ConvolutionProblem
from ..tensors import autograd, convolution_calls, native_calls
from ..tensors.convolution_calls import DTYPES
from ..tensors.fused_calls import Following
from ..tensors.geometry import Geometry, Ints, packed
from ..tensors.lowered import save, saved
from ..tensors.operands import lies_first
from ..tensors.recorded import alias
from .fused import FusedConv2d, fused
from .grouped import Rearranging, computed_here, conv2d

# Elements of images from which on the GPU gains 0.4 ms a layer (one H200, 2026-11-30). Copies and products of filters
# take the host longer than torch's layer does.
FEWEST = 1 << 20


class Axis(NamedTuple):
    """One direction: the filter's taps, the padding on both sides, and the pixels of a block."""

    taps: int
    before: int
    after: int

    @property
    def step(self) -> int:
        """Pixels of a block."""
        return 1 if self.taps <= MAX_FILTER else 2

    @property
    def met(self) -> Line:
        """What outputs of a block meet together: a filter of one tap more for each but the first."""
        return Line(self.taps + self.step - 1, self.before, self.after, self.step, self.step)

    @property
    def first(self) -> int:
        """The first block that they meet, from their own."""
        return self.met.first

    @property
    def places(self) -> int:
        """Blocks that they meet."""
        return self.met.places

    @property
    def missing(self) -> tuple[int, int]:
        """Zeros before and after the taps: as many numbers then as a window that is moved by `step` places passes."""
        before = self.step - 1 - self.before - self.step * self.first
        return before, self.step * self.places + self.step - 1 - self.taps - before

    def outputs(self, extent: int) -> int:
        return extent + self.before + self.after - self.taps + 1

    def padding(self, extent: int) -> tuple[int, int]:
        """Blocks of zeros before and after those of so many pixels; negative where some are met by no output."""
        blocks, made = -(-extent // self.step), -(-self.outputs(extent) // self.step)
        return -self.first, made - 1 + self.first + self.places - blocks


class Large(NamedTuple):
    """A filter's two directions; the pixels of a block and the blocks that outputs of one meet, (rows, columns).

    The latter follow from the former, and are worked out once: every call asks for them a dozen times.
    """

    rows: Axis
    columns: Axis
    step: tuple[int, int]
    places: tuple[int, int]

    @property
    def width(self) -> int:
        """Pixels of a block: channels of a group."""
        return self.step[0] * self.step[1]

    @property
    def fits(self) -> bool:
        """Whether the kernels take the filter over blocks, and not the filter itself."""
        return self.width > 1 and max(self.places) <= MAX_FILTER

    def blocks(self, extents: Ints) -> tuple[int, int]:
        """Rows and columns of blocks of so many of pixels."""
        return -(-extents[0] // self.step[0]), -(-extents[1] // self.step[1])

    def outputs(self, extents: Ints) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.rows.outputs(extents[0]), self.columns.outputs(extents[1])


def large_for(taps: Sequence[int], padding: Sequence[int]) -> Large:
    """For `taps` (rows, columns) and padding (top, bottom, left, right)."""
    rows, columns = Axis(taps[0], padding[0], padding[1]), Axis(taps[1], padding[2], padding[3])
    return Large(rows, columns, (rows.step, columns.step), (rows.places, columns.places))


def is_large(layer: nn.Conv2d) -> bool:
    """Whether a layer is computed so, however it is padded."""
    depthwise = layer.groups == layer.in_channels == layer.out_channels and layer.in_channels % 8 == 0
    plain = (layer.stride, layer.dilation, layer.padding_mode) == ((1, 1), (1, 1), "zeros")
    # The worst padding of taps leaves as many blocks as the best one of one more. Filters that are long in but one
    # direction were not timed.
    worst = large_for(layer.kernel_size, (1, 0, 1, 0))
    return depthwise and plain and worst.fits and min(layer.kernel_size) > MAX_FILTER


def problem_of(large: Large, shape: Ints, dtype: torch.dtype) -> ConvolutionProblem:
    """The convolution of the blocks of images of `shape` [n, c, h, w]. Raises `BadConvolution`."""
    n, c, h, w = shape
    moved = moved_over(large, (h, w), c)
    extents = (n, *large.blocks((h, w)), c * large.width, c, *large.places)
    return ConvolutionProblem(*extents, moved.stride, moved.dilation, moved.padding, DTYPES[dtype])


def moved_over(large: Large, extents: Ints, channels: int) -> Geometry:
    """How the filter over blocks is moved over those of images of (rows, columns)."""
    top, bottom = large.rows.padding(extents[0])
    left, right = large.columns.padding(extents[1])
    return Geometry((1, 1), (top, bottom, left, right), (1, 1), channels)


def blocks_of(x: Tensor, large: Large) -> Tensor:
    """Images [n, c, h, w] as blocks [n, c * width, rows, columns], channels-last: a channel's pixels side by side."""
    (n, c, h, w), (down, across), (rows, columns) = x.shape, large.step, large.blocks(x.shape[2:])
    if rows * down != h or columns * across != w:
        x = functional.pad(x, (0, columns * across - w, 0, rows * down - h))
    pixels = x.permute(0, 2, 3, 1).reshape(n, rows, down, columns, across, c)
    return pixels.permute(0, 1, 3, 5, 2, 4).reshape(n, rows, columns, c * large.width).permute(0, 3, 1, 2)


def pixels_of(y: Tensor, large: Large, extents: Ints) -> Tensor:
    """Blocks of outputs [n, c * width, rows, columns] as [n, c, *extents], channels-last."""
    (n, channels, rows, columns), (down, across) = y.shape, large.step
    apart = y.permute(0, 2, 3, 1).reshape(n, rows, columns, channels // large.width, down, across)
    made = apart.permute(0, 1, 4, 2, 5, 3).reshape(n, rows * down, columns * across, channels // large.width)
    if (rows * down, columns * across) != tuple(extents):
        made = made[:, : extents[0], : extents[1]].contiguous()
    return made.permute(0, 3, 1, 2)


def filter_over(w: Tensor, large: Large) -> Tensor:
    """A filter [c, 1, r, s] as one over blocks [c * width, width, rows, columns], channels-last."""
    (down, across), (rows, columns) = large.step, large.places
    filled = functional.pad(w[:, 0], (*large.columns.missing, *large.rows.missing))
    # What an output of a block meets is a window of it, later outputs' earlier ones.
    windows = filled.unfold(1, down * rows, 1).unfold(2, across * columns, 1).flip(1, 2)
    laid = windows.reshape(len(w), down, across, rows, down, columns, across)
    taps = laid.permute(0, 1, 2, 3, 5, 4, 6).reshape(len(w) * large.width, rows, columns, large.width)
    return taps.permute(0, 3, 1, 2)


def convolved(x: Tensor, w: Tensor, bias: Tensor | None, large: Large, dtype: torch.dtype) -> Tensor:
    """conv(x, w) + bias of `dtype`, by functions that autograd and torch.compile know."""
    added = None if bias is None else bias.repeat_interleave(large.width)
    over = moved_over(large, x.shape[2:], len(w))._asdict()
    found = conv2d(blocks_of(x.to(dtype), large), filter_over(w, large).to(dtype), added, **over)
    return pixels_of(found, large, large.outputs(x.shape[2:]))


# -- the same as one node of autograd ----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _laid(large: Large, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[r * s, width * rows * columns * width], whose product with a filter is the filter over blocks."""
    taps = large.rows.taps * large.columns.taps
    each = torch.eye(taps, dtype=dtype, device="cpu").view(taps, 1, large.rows.taps, large.columns.taps)
    return filter_over(each, large).permute(0, 2, 3, 1).reshape(taps, -1).to(device)


@lru_cache(maxsize=256)
def _places(large: Large, device: torch.device) -> Tensor:
    """[r * s * width]: where each tap lies in the filter over blocks, once for each output of a block."""
    taps = large.rows.taps * large.columns.taps
    laid = _laid(large, torch.float32, torch.device("cpu")).view(taps, large.width, -1)
    first = torch.arange(large.width, device="cpu") * laid.shape[2]
    return (laid.argmax(2) + first).flatten().to(device)


def _filters(w: Tensor, large: Large, dtype: torch.dtype) -> Tensor:
    """`filter_over` in one product."""
    made = w.detach().to(dtype).reshape(len(w), -1) @ _laid(large, dtype, w.device)
    return made.view(len(w) * large.width, *large.places, large.width).permute(0, 3, 1, 2)


class _Large(torch.autograd.Function):
    """Kept are the images as they are given; blocks are made again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, large: Large, over: Geometry, dtype: torch.dtype
    ) -> Tensor:
        ctx.large, ctx.over, ctx.bias_dtype = large, over, None if bias is None else bias.dtype
        blocks, taps = blocks_of(x.to(dtype), large), _filters(w, large, dtype)
        save(ctx, x, w, taps)
        added = None if bias is None else bias.repeat_interleave(large.width)
        found = native_calls.tried(blocks, taps, added, packed(*over[:3]), over.groups)
        if found is None:
            found = convolution_calls.forward(blocks, taps, added, over)
        return pixels_of(found, large, large.outputs(x.shape[2:]))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        large, (to_x, to_w, to_bias, *_), again = ctx.large, ctx.needs_input_grad, torch.is_grad_enabled()
        x, w, taps = saved(ctx, again)
        assert x is not None
        assert taps is not None
        db = autograd.bias_gradient(dy, ctx.bias_dtype) if to_bias else None
        if not (to_x or to_w):
            dx = dw = None
        elif again:
            x, w = alias(x), alias(w)
            wanted = [one for one, there in ((x, to_x), (w, to_w)) if there]
            y = convolved(x, w, None, large, taps.dtype)
            made = iter(torch.autograd.grad(y, wanted, dy, create_graph=True))
            dx, dw = (next(made) if there else None for there in (to_x, to_w))
        else:
            dx, dw = _gradients(x, w, dy, taps, large, ctx.over, (to_x, to_w))
        return dx, dw, db, None, None, None


def _gradients(
    x: Tensor, w: Tensor, dy: Tensor, taps: Tensor, large: Large, over: Geometry, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Those of x and w that are wanted, `taps` being w over blocks; of w the sum, in f32, of its places there."""
    slopes, dx, dw, to_taps = blocks_of(dy, large), None, None, None
    if all(wanted):
        blocks = blocks_of(x.to(taps.dtype), large)
        to_blocks, to_taps = convolution_calls.gradients(blocks, slopes, taps, over, torch.float32)
        dx = pixels_of(to_blocks, large, x.shape[2:]).to(x.dtype)
    elif wanted[0]:
        extents = (len(x), len(taps), *large.blocks(x.shape[2:]))
        dx = pixels_of(convolution_calls.input_gradient(slopes, taps, extents, over), large, x.shape[2:]).to(x.dtype)
    else:
        blocks = blocks_of(x.to(taps.dtype), large)
        to_taps = convolution_calls.filter_gradient(blocks, slopes, taps.shape, over, torch.float32)
    if to_taps is not None:
        each = to_taps.permute(0, 2, 3, 1).reshape(len(w), -1).index_select(1, _places(large, w.device))
        dw = each.view(len(w), -1, large.width).sum(2).view(w.shape).to(w.dtype)
    return dx, dw


@lru_cache(maxsize=1024)
def _known(
    taps: tuple[int, int], padding: tuple[int, ...], extents: tuple[int, int], channels: int
) -> tuple[Large, Geometry]:
    large = large_for(taps, padding)
    return large, moved_over(large, extents, channels)


class LargeFilters(Rearranging):
    """A depthwise convolution with a large filter, over blocks of pixels where kernels compute it."""

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None, moved: Geometry) -> Tensor:
        made: Tensor
        if x.dim() != 4 or x.shape[1] != self.in_channels or x.numel() < FEWEST or not computed_here(x):
            made = self._conv_forward(x, weight, bias)
            return made
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        if not autograd.direct(*((x, weight) if bias is None else (x, weight, bias))):
            return convolved(x, weight, bias, large_for(weight.shape[2:], moved.padding), dtype)
        large, over = _known((weight.shape[2], weight.shape[3]), moved.padding, (x.shape[2], x.shape[3]), self.groups)
        made = _Large.apply(x, weight, bias, large, over, dtype)  # type: ignore[no-untyped-call]
        return made


class FusedLargeFilters(FusedConv2d):
    """Such a layer in evaluation and what follows it: activation(conv(x) * scale + bias), its filter over blocks."""

    def __init__(self, layer: LargeFilters, scale: Tensor | None, bias: Tensor | None, activation: str) -> None:
        """Of a layer whose padding does not depend on its images."""
        given = layer.moved(())
        self.taps = (layer.kernel_size[0], layer.kernel_size[1])
        large = large_for(self.taps, given.padding)
        factor, added = (None if one is None else one.repeat_interleave(large.width) for one in (scale, bias))
        super().__init__(filter_over(layer.weight.detach(), large), factor, added, activation, given)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w] or [c, h, w]; nothing is added to the result."""
        assert residual is None
        if x.dim() == 3:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        extents, padding, channels = (x.shape[2], x.shape[3]), self.geometry.padding, self.geometry.groups
        if torch.compiler.is_compiling():  # extents may be symbols, which are no key
            large = large_for(self.taps, padding)
            over = moved_over(large, extents, channels)
        else:
            large, over = _known(self.taps, padding, extents, channels)
        found = fused(blocks_of(x, large), self.weight, Following(self.scale, self.bias, None, self.activation), over)
        made = pixels_of(found, large, large.outputs(extents))
        return made.contiguous() if self.keeps and lies_first(x) else made
