"""Blocks of pixels of torch tensors, and filters over them (`convolution/pixels.py`): by prepared calls, and by torch.

Images are [n, c, h, w] anywhere in memory and come out as [n, width, rows, columns], channels-last; filters are
[k, c, r, s], and come out as [k, width, rows, columns]. What a filter becomes is differentiable, any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..convolution import pixels
from ..convolution.pixels import Blocks, PixelKind
from ..normalization.stretches import Launch
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd
from .convolution_calls import DTYPES as HALVES
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared

FLOATS = frozenset(DTYPES)  # types that images and filters may have

_launches: dict[tuple[Any, ...], moving.Launches] = {}


def gathered(x: Tensor, blocks: Blocks, dtype: torch.dtype) -> Tensor:
    """Images as blocks of `dtype`; differentiable by torch."""
    if not _plain(x) or dtype not in HALVES:
        return gathered_by_torch(x.to(dtype), blocks)
    shape = (len(x), blocks.rows.blocks(x.shape[2]), blocks.columns.blocks(x.shape[3]), blocks.width)
    return _rearranged(pixels.gathered, x, blocks, shape, kind_of_images(blocks, x.dtype, dtype), dtype)


def filter_over(w: Tensor, blocks: Blocks, dtype: torch.dtype) -> Tensor:
    """A filter as one over blocks, of `dtype`; differentiable by torch."""
    if not _plain(w) or dtype not in HALVES:
        return filter_by_torch(w, blocks).to(dtype)
    shape = (len(w), *blocks.places, blocks.width)
    return _rearranged(pixels.taps, w, blocks, shape, kind_of_filters(blocks, w.dtype, dtype), dtype)


def kinds_of(x: torch.dtype, w: torch.dtype, blocks: Blocks, dtype: torch.dtype) -> tuple[PixelKind, ...]:
    """The kernels of calls with images and a filter of these types."""
    return kind_of_images(blocks, x, dtype), kind_of_filters(blocks, w, dtype)


def kind_of_images(blocks: Blocks, x: torch.dtype, dtype: torch.dtype) -> PixelKind:
    """The same of images of type `x`."""
    return PixelKind.of(blocks, DTYPES[x], DTYPES[dtype], DTYPES[dtype])


def kind_of_filters(blocks: Blocks, w: torch.dtype, dtype: torch.dtype) -> PixelKind:
    """What filters of type `w` become, computed in `dtype`."""
    return PixelKind.of(blocks, DTYPES[dtype], DTYPES[dtype], DTYPES[w])


def _plain(tensor: Tensor) -> bool:
    """Whether the kernels take it, and nothing is recorded of it."""
    recorded = tensor.requires_grad and torch.is_grad_enabled()
    return not recorded and autograd.direct(tensor) and tensor.dtype in DTYPES


def _rearranged(
    launch: Callable[..., Launch],
    given: Tensor,
    blocks: Blocks,
    shape: Sequence[int],
    kind: PixelKind,
    dtype: torch.dtype,
) -> Tensor:
    """What a launch makes of a tensor, of `shape` in memory; prepared where it is the first of its kind."""
    out, device = given.new_empty(shape, dtype=dtype), given.get_device()
    if given.numel():  # else there is no launch
        extents, strides = given.shape, given.stride()
        addresses, key = (given.data_ptr(), out.data_ptr()), (device, launch, blocks, extents, strides, kind)
        known = _launches.get(key)
        if known is None:
            if len(_launches) >= REMEMBERED:
                _launches.clear()
            known = _launches[key] = moving.launches(
                lambda at: prepared(kind, [launch(blocks, extents, strides, *at)], device), addresses
            )
        known.run(addresses, torch_stream(device))
    return out.permute(0, 3, 1, 2)


# -- by torch ----------------------------------------------------------------------------------------------------------


def gathered_by_torch(x: Tensor, blocks: Blocks) -> Tensor:
    n, c, h, w = x.shape
    step, rows, columns = blocks.step, blocks.rows.blocks(h), blocks.columns.blocks(w)
    if rows * step != h or columns * step != w:
        x = functional.pad(x, (0, columns * step - w, 0, rows * step - h))
    pixels_of = x.permute(0, 2, 3, 1).reshape(n, rows, step, columns, step, c)
    together = pixels_of.transpose(2, 3).reshape(n, rows, columns, step * step * c)
    return functional.pad(together, (0, blocks.width - step * step * c)).permute(0, 3, 1, 2)


def filter_by_torch(w: Tensor, blocks: Blocks) -> Tensor:
    k, c = w.shape[:2]
    (rows, columns), step = blocks.places, blocks.step
    whole = functional.pad(w, (*blocks.columns.missing, *blocks.rows.missing))
    laid = whole.reshape(k, c, rows, step, columns, step).permute(0, 3, 5, 1, 2, 4)
    filled = laid.reshape(k, step * step * c, rows, columns)
    return functional.pad(filled, (0, 0, 0, 0, 0, blocks.width - step * step * c))


def taps_by_torch(gradient: Tensor, blocks: Blocks) -> Tensor:
    """What is linear in a filter, turned round: the taps of a gradient over blocks."""
    k, c, r, s = len(gradient), blocks.channels, blocks.rows.taps, blocks.columns.taps
    (rows, columns), step = blocks.places, blocks.step
    laid = gradient[:, : step * step * c].reshape(k, step, step, c, rows, columns).permute(0, 3, 4, 1, 5, 2)
    above, ahead = blocks.rows.missing[0], blocks.columns.missing[0]
    return laid.reshape(k, c, rows * step, columns * step)[:, :, above : above + r, ahead : ahead + s]
