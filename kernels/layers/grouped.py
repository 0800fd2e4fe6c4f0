"""`conv2d` of torch tensors, and its layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import WrongValue
from ..tensors import autograd, convolution_calls, native_calls
from ..tensors.convolution_calls import DTYPES
from ..tensors.geometry import Geometry, Ints, geometry_of, known_geometry, packed
from ..tensors.operators import forward


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
    if not autograd.direct(*given):
        made = geometry_of(stride, padding, dilation, groups, (w.shape[2], w.shape[3]))
        result: Tensor = forward(x, w, bias, *made)
        return result
    try:
        geometry = known_geometry(stride, padding, dilation, groups, w.shape[2:])
    except TypeError:  # a list is no key
        geometry = geometry_of(stride, padding, dilation, groups, (w.shape[2], w.shape[3]))
    if (known := native_calls.tried(x, w, bias, packed(*geometry[:3]), groups)) is not None:
        return known
    lowered = torch.is_autocast_enabled("cuda")
    if lowered:
        dtype = torch.get_autocast_dtype("cuda")
        x = x if x.dtype is dtype else x.to(dtype)
    return autograd.forward(x, w, bias, geometry, lowered=lowered)


class GroupedConv2d(nn.Conv2d):
    """nn.Conv2d with the same parameters, computed by the kernels where they can: CUDA, f16 or bf16 (autocast too).

    Raises `WrongValue` for a padding mode other than zeros, which no kernel computes.
    """

    # What stride, padding, dilation and groups say together, once it was asked for, and the number it is packed in.
    _moved: Geometry | None = None
    _number: int | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self.padding_mode != "zeros":
            raise WrongValue(
                "padding mode", where="GroupedConv2d", expected="zeros", came=self.padding_mode,
                hint="nn.Conv2d computes it, by torch",
            )  # fmt: skip

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
            result = native_calls.tried(input, weight, bias, self._number, self.groups)
            if result is not None or (result := self._eager(input, weight, bias)) is not None:
                return result
        if not computed_here(input):
            return super().forward(input)
        return self._traced(input, self.weight, self.bias, self._geometry())

    def taps(self) -> Tensor:
        """The filter [k, c / groups, r, s] that the layer multiplies with."""
        return self.weight

    def moved(self, _extents: Ints, /) -> Geometry:
        """How the filter is moved over images of so many (rows, columns)."""
        return self._geometry() if torch.compiler.is_compiling() else self._known_geometry()

    def _geometry(self) -> Geometry:
        steps = (self.stride, self.padding, self.dilation, self.groups)
        return geometry_of(*steps, self.weight.shape[2:])

    def _known_geometry(self) -> Geometry:
        if self._moved is None:
            self._moved = self._geometry()
            self._number = packed(*self._moved[:3])
        return self._moved

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None, moved: Geometry) -> Tensor:
        """What `forward` does, of a filter and padding that are made for the call."""
        if not torch.compiler.is_compiling():
            result = native_calls.tried(x, weight, bias, packed(*moved[:3]), self.groups)
            if result is not None or (result := self._at_once(x, weight, bias, moved)) is not None:
                return result
        return self._traced(x, weight, bias, moved) if computed_here(x) else self._conv_forward(x, weight, bias)

    def _traced(self, x: Tensor, weight: Tensor, bias: Tensor | None, moved: Geometry) -> Tensor:
        """By the operator, which autograd, autocast and whoever traces understand."""
        batch = x if x.dim() == 4 else x.unsqueeze(0)
        result = conv2d(batch, weight, bias, **moved._asdict())
        return result if x.dim() == 4 else result.squeeze(0)

    def _eager(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """The same where nothing is traced, in the least time of Python; None for what takes the long way."""
        if weight is None:
            return None
        return self._at_once(x, weight, bias, self._known_geometry())

    def _at_once(self, x: Tensor, weight: Tensor, bias: Tensor | None, moved: Geometry) -> Tensor | None:
        if x.dim() != 4 or not x.numel() or not autograd.plain(x, weight):
            return None
        lowered = torch.is_autocast_enabled("cuda")
        dtype = torch.get_autocast_dtype("cuda") if lowered else x.dtype
        if dtype not in DTYPES or (bias is not None and not autograd.plain(bias)):
            return None
        plan = convolution_calls.planned(x, weight, moved, dtype if lowered else None)
        if plan.left and plan.left_entirely(x, torch.is_grad_enabled()):
            by_torch: Tensor = self._conv_forward(x, weight, bias)
            return by_torch  # which gets there in less time by itself
        if x.dtype is not dtype:
            x = x.to(dtype)
        return autograd.forward(x, weight, bias, moved, lowered=lowered, plan=plan)


class Rearranging(GroupedConv2d):
    """A layer that is called with a filter, padding or images that are made for the call: by `_convolved`."""

    def forward(self, input: Tensor) -> Tensor:
        """[n, c, h, w] or [c, h, w]; what the kernels do not compute goes to torch's own convolution."""
        return self._convolved(input, self.taps(), self.bias, self.moved(input.shape[-2:]))


def computed_here(x: Tensor) -> bool:
    """Whether a layer's input is, or under autocast becomes, what the kernels compute."""
    if not x.is_cuda or not x.numel():
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return dtype in DTYPES
