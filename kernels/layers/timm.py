"""Convolutions of timm that are no nn.Conv2d to the letter: padding as TensorFlow has it, and standardized filters.

    same          top + bottom = max(0, (ceil(h / stride) - 1) * stride + (r - 1) * dilation + 1 - h), an odd row at the
                  bottom, so that there are ceil(h / stride) rows; columns alike
    standardized  gain * scale * (w - mean) / sqrt(variance + eps), both of all taps of a channel that is written

timm itself is not imported: its layers are known by their names. What they compute is said by Ross Wightman's
`timm.layers.conv2d_same` and `timm.layers.std_conv` (timm 1.0).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..tensors.geometry import Geometry, Ints, geometry_of
from .fused import FusedConv2d, one_image
from .grouped import GroupedConv2d, Rearranging
from .inherited import inherit
from .large_filters import LargeFilters, is_large
from .stem import OverBlocks, Stem, in_blocks


def same_geometry(extents: Ints, filter_size: Ints, stride: Ints, dilation: Ints, groups: int) -> Geometry:
    """With the padding of images of (rows, columns).

    >>> same_geometry((224, 225), (3, 3), (2, 2), (1, 1), 32).padding
    (0, 1, 1, 1)
    """
    (top, bottom), (left, right) = map(_sides, extents, filter_size, stride, dilation)
    return Geometry((stride[0], stride[1]), (top, bottom, left, right), (dilation[0], dilation[1]), groups)


def _sides(extent: int, taps: int, step: int, gap: int) -> tuple[int, int]:
    whole = max(0, (-(-extent // step) - 1) * step + (taps - 1) * gap + 1 - extent)
    return whole // 2, whole - whole // 2


_known_geometry = lru_cache(maxsize=1024)(same_geometry)


def _geometry_at(extents: Ints, *filter_and_steps: Any) -> Geometry:
    """The same from a cache, but while compiling: then extents may be symbols, which are no key."""
    if torch.compiler.is_compiling():
        return same_geometry(extents, *filter_and_steps)
    return _known_geometry(tuple(extents), *filter_and_steps)


class SameConv2d(Rearranging):
    """timm's Conv2dSame: its padding, by the kernels, is no copy of the images."""

    def moved(self, extents: Ints, /) -> Geometry:
        return _geometry_at(extents, tuple(self.kernel_size), tuple(self.stride), tuple(self.dilation), self.groups)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        top, bottom, left, right = self.moved(input.shape[-2:]).padding
        padded = functional.pad(input, (left, right, top, bottom))
        return functional.conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class Standardized(nn.Conv2d):
    """Mixed into layers whose filters are standardized in every call, in the type of the parameters."""

    gain: Tensor
    scale: float
    eps: float

    def taps(self) -> Tensor:
        """The filter [k, c / groups, r, s] that the layer multiplies with."""
        return standardized(self.weight, self.gain, self.scale, self.eps)


class StandardizedConv2d(Standardized, Rearranging):
    """timm's ScaledStdConv2d."""


class SameStandardizedConv2d(StandardizedConv2d, SameConv2d):
    """timm's ScaledStdConv2dSame, where its padding depends on the images."""


def standardized(weight: Tensor, gain: Tensor, scale: float, eps: float) -> Tensor:
    """A filter, in the order of memory that `weight` has where that is channels-last."""
    alone = weight.shape[2:] == (1, 1)
    taps = weight if alone else weight.permute(0, 2, 3, 1)  # which are one after the other then
    made = functional.batch_norm(
        taps.reshape(1, len(taps), -1), None, None, weight=(gain * scale).view(-1), training=True, momentum=0.0, eps=eps
    )
    made = made.view(taps.shape)
    return made if alone else made.permute(0, 3, 1, 2)


class FusedSameConv2d(FusedConv2d):
    """A `SameConv2d` in evaluation and what follows it. Of `geometry` the padding is not used."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w] or [c, h, w], and what is added to the result before the activation."""
        if x.dim() == 3:
            return one_image(self, x, residual)
        stride, _, dilation, groups = self.geometry
        moved = _geometry_at(x.shape[2:], tuple(self.weight.shape[2:]), stride, dilation, groups)
        return self._fused(x, x, residual, moved)


class SameStem(nn.Module):
    """A first convolution over blocks of pixels whose padding depends on its images: one for each of what is left of
    their rows and columns by whole steps."""

    def __init__(
        self, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: str, layer: nn.Conv2d
    ) -> None:
        super().__init__()
        self.step = layer.stride[0]
        left = product(range(self.step), repeat=2)
        moves = (moved(layer, (self.step + rows, self.step + columns)) for rows, columns in left)
        self.stems = nn.ModuleList(Stem(weight, scale, bias, activation, move) for move in moves)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w] or [c, h, w], and what is added to the result before the activation."""
        rows, columns = x.shape[-2:]
        made: Tensor = self.stems[self.step * (rows % self.step) + columns % self.step](x, residual)
        return made


class SameOverBlocks(OverBlocks, SameConv2d):
    """A first layer that is timm's Conv2dSame."""


class StandardizedOverBlocks(OverBlocks, StandardizedConv2d):
    """A first layer that is timm's ScaledStdConv2d."""


class SameStandardizedOverBlocks(OverBlocks, SameStandardizedConv2d):
    """A first layer that is timm's ScaledStdConv2dSame, where its padding depends on the images."""


# -- which layers ------------------------------------------------------------------------------------------------------


KINDS: dict[type[nn.Conv2d], type[GroupedConv2d]] = {nn.Conv2d: GroupedConv2d}  # that compute the same


def kind_of(layer: nn.Conv2d) -> type[GroupedConv2d] | None:
    """The class of ours that computes what a layer of torch's or of timm's does; None of any other subclass."""
    if isinstance(layer, GroupedConv2d):
        return type(layer)
    if type(layer) in KINDS:
        return KINDS[type(layer)]
    if type(layer).__module__.partition(".")[0] != "timm":
        return None
    return {
        "Conv2dSame": SameConv2d,
        "ScaledStdConv2d": StandardizedConv2d,
        "ScaledStdConv2dSame": SameStandardizedConv2d if getattr(layer, "same_pad", False) else StandardizedConv2d,
    }.get(type(layer).__name__)


def is_same(layer: nn.Conv2d) -> bool:
    """Whether its padding depends on the images."""
    kind = kind_of(layer)
    return kind is not None and issubclass(kind, SameConv2d)


def is_standardized(layer: nn.Conv2d) -> bool:
    """Whether its filter is made anew in every call."""
    kind = kind_of(layer)
    return kind is not None and issubclass(kind, StandardizedConv2d)


def moved(layer: nn.Conv2d, extents: Ints) -> Geometry:
    """How the filter of a layer, ours or not, is moved over images of (rows, columns). Raises `BadConvolution`."""
    if is_same(layer):
        return same_geometry(extents, layer.kernel_size, layer.stride, layer.dilation, layer.groups)
    return geometry_of(layer.stride, layer.padding, layer.dilation, layer.groups, layer.kernel_size)


class SameLargeFilters(LargeFilters, SameConv2d):
    """A depthwise layer with a large filter that is timm's Conv2dSame."""


LARGE_FILTERS: dict[type[GroupedConv2d], type[LargeFilters]] = {
    GroupedConv2d: LargeFilters, SameConv2d: SameLargeFilters,
}  # fmt: skip
OVER_BLOCKS: dict[type[GroupedConv2d], type[OverBlocks]] = {
    GroupedConv2d: OverBlocks, SameConv2d: SameOverBlocks, StandardizedConv2d: StandardizedOverBlocks,
    SameStandardizedConv2d: SameStandardizedOverBlocks,
}  # fmt: skip


def like(layer: nn.Conv2d) -> GroupedConv2d:
    """A layer of ours with the parameters of one that has a kind, whose weights are laid out channels-last."""
    kind = kind_of(layer)
    assert kind is not None
    if in_blocks(layer):
        kind = OVER_BLOCKS[kind]
    elif is_large(layer):
        kind = LARGE_FILTERS[kind]
    size: Any = layer.kernel_size
    new = kind(layer.in_channels, layer.out_channels, size, bias=layer.bias is not None, device="meta", **_steps(layer))
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    new.weight, new.bias = layer.weight, layer.bias
    if isinstance(new, StandardizedConv2d):
        given: Any = layer
        new.gain, new.scale, new.eps = given.gain, given.scale, given.eps
    return inherit(new.train(layer.training), layer)


def _steps(layer: nn.Conv2d) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}


def settle_filters(model: nn.Module) -> None:
    """Standardize filters once, for a model that does not learn any more: their layers become torch's, in place.

    Those whose padding depends on the images stay.
    """
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Conv2d) and kind_of(layer) is StandardizedConv2d:
                setattr(parent, name, _settled(layer))


def _settled(layer: Any) -> nn.Conv2d:
    made = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, device="meta", **_steps(layer))
    made.weight = nn.Parameter(standardized(layer.weight, layer.gain, layer.scale, layer.eps).detach())
    made.bias = layer.bias
    return made.train(layer.training)
