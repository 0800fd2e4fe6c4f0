"""A swap of a model's convolutions for layers of ours, and which of them that cannot be done to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from . import torch_calls
from .convolution.problem import GROUP_WIDTHS, MAX_FILTER
from .convolution.recipes import PASSES
from .errors import WrongValue
from .torch_layers import GroupedConv2d
from .torch_timm import kind_of, like

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

    So are timm's Conv2dSame, ScaledStdConv2d and ScaledStdConv2dSame (`torch_timm.py`); of another subclass nobody
    knows what its forward does.

    Parameters are shared with the old layers and keep their names, so state_dicts load as before; weights are laid out
    channels-last. A layer used in several places stays one layer. With an `example` (a tensor or a tuple of arguments;
    nothing is computed, autocast counts where it is on), layers are left alone that cuDNN is predicted to be faster at
    in all passes on a `gpu`; what is said of single passes is decided in every call, by its shape, example or not.
    """
    taken: list[str] = []
    slower = {} if example is None else _slower_passes(model, example, gpu)
    left: dict[str, str] = {}
    swapped: dict[nn.Conv2d, GroupedConv2d] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(module, nn.Conv2d) or isinstance(module, GroupedConv2d):
            continue
        reason = "it is the model itself: wrap it in a module" if module is model else unfit(module)
        if reason is None and set(slower.get(module, ())) == set(PASSES):
            reason = "cuDNN is predicted to be faster"
        if reason:
            left[name] = reason
            continue
        swapped.setdefault(module, like(module))
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, swapped[module])
        taken.append(name)
    new = {swapped[layer]: passes for layer, passes in slower.items() if layer in swapped}
    by_cudnn = {name: new[layer] for name, layer in model.named_modules() if layer in new}
    return Replaced(tuple(taken), left, by_cudnn)


def _slower_passes(model: nn.Module, example: Any, gpu: str) -> dict[nn.Conv2d, tuple[str, ...]]:
    """The passes of layers that cuDNN is predicted to be faster at in every call; a layer without any is left out."""
    from .cost.gpu import known_gpu
    from .torch_models import convolutions

    known = known_gpu(gpu)
    found: dict[nn.Conv2d, list[str]] = {}
    if known is None:
        raise WrongValue("no such GPU", where="replace_convolutions", expected="one the cost model knows", came=gpu)
    for met in convolutions(model, example):
        passes: list[str] = [what for what in PASSES if torch_calls.left_on(met.problem, what, known)]
        found[met.layer] = [what for what in found.get(met.layer, passes) if what in passes]
    return {layer: tuple(passes) for layer, passes in found.items() if passes}


def unfit(layer: nn.Conv2d) -> str | None:
    """Why the kernels do not compute this layer, or None."""
    width, wide = (channels // layer.groups for channels in (layer.in_channels, layer.out_channels))
    size, octets = layer.kernel_size, layer.in_channels % 8 == layer.out_channels % 8 == 0
    facts = {
        f"a subclass, {type(layer).__name__}, whose forward may differ": kind_of(layer) is not None,
        "padding mode " + layer.padding_mode: layer.padding_mode == "zeros",
        f"{layer.in_channels} channels in and {layer.out_channels} out": width == wide or (layer.groups > 1 and octets),
        f"group width {width}, not below {CUDNN_WIDTH}, where cuDNN was measured to be faster": max(width, wide)
        < CUDNN_WIDTH,
        "one group of many channels, a product that cuDNN is made for": layer.groups > 1 or width in GROUP_WIDTHS,
        f"{layer.in_channels} channels, no multiple of 8": octets,
        f"filter {size[0]}x{size[1]}, larger than {MAX_FILTER}": max(size) <= MAX_FILTER,
        f"stride {layer.stride}, not 1 or 2": set(layer.stride) <= {1, 2},
        f"dilation {layer.dilation}, not 1 or 2": set(layer.dilation) <= {1, 2},
        "hooks or parametrizations hang on it": _plain(layer),
    }
    return next((reason for reason, holds in facts.items() if not holds), None)


def _plain(layer: nn.Module) -> bool:
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return not any(hooks) and not hasattr(layer, "parametrizations")
