"""Layers that make images smaller or larger where torch takes long for it: pools, and bilinear upsampling."""

from __future__ import annotations

from torch import nn

from ..layers.inherited import like
from ..layers.pools import POOLED, window_of
from ..layers.upsampling import ChannelsLastUpsample
from .arguments import check_model
from .hooks import swapped

KINDS: dict[type[nn.Module], type[nn.Module]] = {**POOLED, nn.Upsample: ChannelsLastUpsample}


def fuse_resampling(model: nn.Module) -> list[str]:
    """Have kernels compute the pools of `model`, and torch what it upsamples in a faster way, in place: the names of
    the layers.

    Taken are nn.MaxPool2d that gives no indices and nn.AvgPool2d, with windows of up to nine places and steps of up to
    three, and nn.Upsample that is bilinear; not what is derived from them, nor what something hangs on. Images that lie
    otherwise than `layers/pools` and `ChannelsLastUpsample` say are torch's, and so are all under torch.compile.

    Raises `WrongType` for what is no model.
    """
    check_model(model, "fuse_resampling")
    return list(swapped(model, _made))


def _made(layer: nn.Module) -> nn.Module | None:
    """What takes its place; None where it stays."""
    kind = KINDS.get(type(layer))
    return like(layer, kind) if kind is not None and _is_ours(layer) else None


def _is_ours(layer: nn.Module) -> bool:
    return layer.mode == "bilinear" if isinstance(layer, nn.Upsample) else window_of(layer) is not None
