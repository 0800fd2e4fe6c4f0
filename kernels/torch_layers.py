"""`conv2d` of torch tensors, its layer, and a swap of a model's layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from . import torch_autograd, torch_calls, torch_native
from .convolution.problem import GROUP_WIDTHS, MAX_FILTER
from .convolution.recipes import PASSES
from .errors import WrongValue
from .torch_calls import DTYPES
from .torch_geometry import Geometry, Ints, geometry_of, known_geometry, packed
from .torch_operators import forward

CUDNN_WIDTH = 128  # channels a group from which cuDNN was faster in all passes on an H200, 2026-11-22


def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Ints = 1,
    padding: int | Ints | str = 0,
    dilation: int | Ints = 1,
    groups: int = 1,
) -> Tensor:
    """x [n, c, h, w], w [c, c / groups, r, s] and bias [c] -> [n, c, p, q], differentiable.

    `padding` is an int, (rows, columns), (top, bottom, left, right), "same" or "valid". On CUDA: f16 or bf16, group
    widths up to 128, filters up to 7, stride and dilation 1 or 2; raises BadConvolution for anything else.
    """
    given = (x, w) if bias is None else (x, w, bias)
    if not torch_autograd.direct(*given):
        made = geometry_of(stride, padding, dilation, groups, (w.shape[2], w.shape[3]))
        result: Tensor = forward(x, w, bias, *made)
        return result
    try:
        geometry = known_geometry(stride, padding, dilation, groups, w.shape[2:])
    except TypeError:  # a list is no key
        geometry = geometry_of(stride, padding, dilation, groups, (w.shape[2], w.shape[3]))
    if (known := torch_native.tried(x, w, bias, packed(*geometry[:3]), groups)) is not None:
        return known
    lowered = torch.is_autocast_enabled("cuda")
    if lowered:
        dtype = torch.get_autocast_dtype("cuda")
        x = x if x.dtype is dtype else x.to(dtype)
    return torch_autograd.forward(x, w, bias, geometry, lowered=lowered)


class GroupedConv2d(nn.Conv2d):
    """nn.Conv2d with the same parameters, computed by the kernels where they can: CUDA, f16 or bf16 (autocast too)."""

    # What stride, padding, dilation and groups say together, once it was asked for, and the number it is packed in.
    _moved: Geometry | None = None
    _number: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Geometry._fields:
            self.__dict__.pop("_moved", None)
            self.__dict__.pop("_number", None)
        super().__setattr__(name, value)

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]; other types and devices go to torch's own convolution."""
        if not torch.compiler.is_compiling():
            parameters = self._parameters  # each attribute of a module that is a parameter takes a microsecond to find
            weight, bias = parameters.get("weight"), parameters.get("bias")
            result = torch_native.tried(input, weight, bias, self._number, self.groups)
            if result is not None or (result := self._eager(input, weight, bias)) is not None:
                return result
        if not _computed_here(input):
            return super().forward(input)
        batch = input if input.dim() == 4 else input.unsqueeze(0)
        result = conv2d(
            batch,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )
        return result if input.dim() == 4 else result.squeeze(0)

    def _eager(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """The same where nothing is traced, in the least time of Python; None for what takes the long way."""
        if weight is None or x.dim() != 4 or not torch_autograd.plain(x, weight):
            return None
        lowered = torch.is_autocast_enabled("cuda")
        dtype = torch.get_autocast_dtype("cuda") if lowered else x.dtype
        if dtype not in DTYPES or (bias is not None and not torch_autograd.plain(bias)):
            return None
        if self._moved is None:
            steps = (self.stride, self.padding, self.dilation, self.groups)
            self._moved = geometry_of(*steps, (weight.shape[2], weight.shape[3]))
            self._number = packed(*self._moved[:3])
        plan = torch_calls.planned(x, weight, self._moved, dtype if lowered else None)
        if plan.left and plan.left_entirely(x, torch.is_grad_enabled()):
            return super().forward(x)  # torch gets there in less time by itself
        if x.dtype is not dtype:
            x = x.to(dtype)
        return torch_autograd.forward(x, weight, bias, self._moved, lowered=lowered, plan=plan)


def _computed_here(x: Tensor) -> bool:
    """Whether a layer's input is, or under autocast becomes, what the kernels compute."""
    if not x.is_cuda:
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return dtype in DTYPES


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
        swapped.setdefault(module, _like(module))
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
        f"a subclass, {type(layer).__name__}, whose forward may differ": type(layer) is nn.Conv2d,
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


def _like(layer: nn.Conv2d) -> GroupedConv2d:
    same: dict[str, Any] = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
    size: Any = layer.kernel_size
    biased = layer.bias is not None
    new = GroupedConv2d(layer.in_channels, layer.out_channels, size, bias=biased, device="meta", **same)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)
