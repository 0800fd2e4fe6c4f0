"""A swap of a model's convolutions for layers of ours, and which of them that cannot be done to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from ..convolution.pixels import OCTET
from ..convolution.problem import GROUP_WIDTHS, MAX_FILTER, MOST_WIDTH
from ..convolution.recipes import Pass
from ..errors import WrongValue
from ..layers.grouped import GroupedConv2d
from ..layers.large_filters import is_large
from ..layers.stem import in_blocks
from ..layers.timm import LARGE_FILTERS, kind_of, like
from .arguments import check_example, check_model
from .hooks import bare

CUDNN_WIDTH = 128  # channels a group from which cuDNN was faster in all passes on an H200, 2026-11-22


@dataclass(frozen=True)
class Replaced:
    """What `replace_convolutions` did: names of the layers taken, and why each other convolution was left alone.

    `passes` are those of the taken layers that cuDNN computes all the same, where it is predicted to be faster.
    """

    taken: tuple[str, ...]
    left: dict[str, str]
    passes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{len(self.taken)} convolutions taken, {len(self.left)} left"]
        for name in self.taken:
            by_cudnn = ", ".join(what.replace("_", " ") for what in self.passes.get(name, ()))
            lines.append(f"  {name}: {by_cudnn} by cuDNN" if by_cudnn else f"  {name}")
        return "\n".join([*lines, *(f"  {name}: left, {why}" for name, why in self.left.items())])


def replace_convolutions(model: nn.Module, example: Any = None, *, gpu: str = "H200") -> Replaced:
    """Swap every nn.Conv2d of `model` that the kernels compute for a `GroupedConv2d`, in place.

    Those are grouped ones, dense ones of fewer than 128 channels, first ones of fewer than 8 (over blocks of pixels,
    where images have no gradient), and depthwise ones with filters of up to 12 rows and columns.

    So are timm's Conv2dSame, ScaledStdConv2d and ScaledStdConv2dSame (`layers/timm.py`); of another subclass nobody
    knows what its forward does.

    Parameters are shared with the old layers and keep their names, so state_dicts load as before; weights are laid out
    channels-last, and so are results. A layer used in several places stays one layer. With an `example` (a tensor or a
    tuple of arguments; nothing is computed, autocast counts where it is on), layers are left alone that cuDNN is
    predicted to be faster at in all passes on a `gpu`; what is said of single passes is decided in every call, by its
    shape, example or not.

    Raises `WrongType` for what is no model or an example without a tensor, and `WrongValue` for an example that the
    model does not take and a GPU that is not known.
    """
    check_model(model, "replace_convolutions")
    if example is not None:
        check_example(example, "replace_convolutions")
    return replaced(model, {} if example is None else _slower_passes(model, example, gpu))


def replaced(model: nn.Module, slower: Mapping[nn.Conv2d, _Passes], one_group: bool = True) -> Replaced:
    """The same, with what is known of passes; layers of `one_group` that need warpgroups only where asked for."""
    taken: list[str] = []
    left: dict[str, str] = {}
    swapped: dict[nn.Conv2d, GroupedConv2d] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(module, nn.Conv2d) or isinstance(module, GroupedConv2d):
            continue
        reason = "it is the model itself: wrap it in a module" if module is model else unfit(module)
        if reason is None and module.groups == 1 and not (one_group or needs_no_warpgroups(module)):
            reason = "one group"
        if reason is None and module in slower and not slower[module].ours:
            reason = "cuDNN is predicted to be faster"
        if reason:
            left[name] = reason
            continue
        swapped.setdefault(module, like(module))
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, swapped[module])
        taken.append(name)
    new = {swapped[layer]: found.by_cudnn for layer, found in slower.items() if layer in swapped and found.by_cudnn}
    by_cudnn: dict[str, tuple[str, ...]] = {name: new[layer] for name, layer in model.named_modules() if layer in new}
    return Replaced(tuple(taken), left, by_cudnn)


class _Passes(NamedTuple):
    """Passes of a layer that cuDNN is predicted to be faster at in every call, and the others."""

    by_cudnn: tuple[Pass, ...]
    ours: tuple[Pass, ...]


def _slower_passes(model: nn.Module, example: Any, gpu: str) -> dict[nn.Conv2d, _Passes]:
    """Of the layers that are called, and that the kernels compute."""
    from ..cost.gpu import known_gpu
    from .convolutions import convolutions

    known = known_gpu(gpu)
    found: dict[nn.Conv2d, _Passes] = {}
    if known is None:
        raise WrongValue("no such GPU", where="replace_convolutions", expected="one the cost model knows", came=gpu)
    for met in convolutions(model, example):
        if unfit(met.layer) is not None:
            continue
        by_cudnn, before = met.left(known), found.get(met.layer, _Passes(met.passes, ())).by_cudnn
        passes = tuple(what for what in before if what in by_cudnn)
        found[met.layer] = _Passes(passes, tuple(what for what in met.passes if what not in passes))
    return found


def unfit(layer: nn.Conv2d) -> str | None:
    """Why the kernels do not compute this layer, or None."""
    width, wide = (channels // layer.groups for channels in (layer.in_channels, layer.out_channels))
    size, octets = layer.kernel_size, layer.in_channels % 8 == layer.out_channels % 8 == 0
    widest = max(width, wide)
    facts = {
        f"a subclass, {type(layer).__name__}, whose forward may differ": kind_of(layer) is not None,
        "padding mode " + layer.padding_mode: layer.padding_mode == "zeros",
        "hooks or parametrizations hang on it": bare(layer),
    }
    if layer.groups == 1 and layer.in_channels < OCTET:
        facts |= {
            f"{layer.in_channels} channels in and {layer.out_channels} out": layer.out_channels % OCTET == 0,
            f"{layer.out_channels} channels out, more than {MOST_WIDTH}": layer.out_channels <= MOST_WIDTH,
            f"a filter of {size[0]}x{size[1]} with stride {layer.stride} and dilation {layer.dilation} over "
            f"{layer.in_channels} channels": in_blocks(layer),
        }
    else:
        facts |= {
            f"{layer.in_channels} channels in and {layer.out_channels} out": width == wide or octets,
            f"group width {widest}, not below {CUDNN_WIDTH}, where cuDNN was measured to be faster": widest
            < CUDNN_WIDTH,
            "a matrix product, that cuDNN is made for": layer.groups > 1 or max(size) > 1 or needs_no_warpgroups(layer),
            f"{layer.in_channels} channels, no multiple of 8": octets,
            f"filter {size[0]}x{size[1]}, larger than {MAX_FILTER}": max(size) <= MAX_FILTER or _is_large(layer),
            f"stride {layer.stride}, not 1 or 2": set(layer.stride) <= {1, 2},
            f"dilation {layer.dilation}, not 1 or 2": set(layer.dilation) <= {1, 2},
        }
    return next((reason for reason, holds in facts.items() if not holds), None)


def _is_large(layer: nn.Conv2d) -> bool:
    return kind_of(layer) in LARGE_FILTERS and is_large(layer)


def needs_no_warpgroups(layer: nn.Conv2d) -> bool:
    """Whether kernels of narrow groups compute a layer of one group: on GPUs without products of warpgroups, too."""
    return layer.in_channels == layer.out_channels and layer.in_channels in GROUP_WIDTHS
