"""`tapestry::grouped_conv2d_fused`: a grouped convolution with scale, bias, residual and activation in one launch.

    activation(conv(x, w) * scale + bias + residual)

`scale` and `bias` are f32 a channel, `residual` is like the result, `activation` is a name of `ACTIVATIONS` or empty.
For inference: nothing here is differentiable. On CPU tensors, where cuDNN is the faster one, and while a kernel is
compiled in the background, torch computes one step after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..convolution.problem import BadConvolution
from ..tensors import autograd, fused_calls, library
from ..tensors.convolution_calls import DTYPES
from ..tensors.fused_calls import Following
from ..tensors.geometry import Geometry
from ..tensors.operands import lies_first
from ..tensors.operators import extents, geometry_from, output_like

_torch: Any = torch
_LIBRARY = _torch.library.Library("tapestry", "FRAGMENT")
_LIBRARY.define(
    "grouped_conv2d_fused(Tensor x, Tensor w, Tensor? scale, Tensor? bias, Tensor? residual, str activation, "
    "int[2] stride, int[4] padding, int[2] dilation, int groups) -> Tensor"
)
operator = torch.ops.tapestry.grouped_conv2d_fused
FUNCTIONS: dict[str, Any] = {
    "": lambda y: y,
    "relu": torch.relu,
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "hardswish": nn.functional.hardswish,
}


def fused(x: Any, w: Tensor, then: Following, geometry: Geometry) -> Tensor:
    """The operator, past torch's dispatcher where nothing traces and no autocast is on; in steps for gradients of x.

    What is added and no tensor like the result, as graphs add it, too, is added behind the launch.
    """
    residual = then.residual
    if isinstance(x, fx.Proxy):
        return operator(x, w, *then, *geometry)  # type: ignore[no-any-return]
    if autograd.differentiated(x) or (isinstance(residual, Tensor) and autograd.differentiated(residual)):
        return in_steps(x, w, then, geometry)
    traced = autograd.traced()
    if not traced and (known := fused_calls.known(x, w, then, geometry)) is not None:
        return known
    if residual is not None and not _is_like_result(residual, x, w, geometry):
        y = fused(x, w, then._replace(residual=None, activation=""), geometry)
        summed: Tensor = FUNCTIONS[then.activation](y + residual)
        return summed
    if not traced and autograd.plain(x, w) and x.dtype in DTYPES and not torch.is_autocast_enabled("cuda"):
        return _on_cuda(x, w, then, geometry)
    return operator(x, w, *then, *geometry)  # type: ignore[no-any-return]


def _is_like_result(residual: Any, x: Tensor, w: Tensor, geometry: Geometry) -> bool:
    """Whether it has the extents and the type of a convolution, which the launch takes: torch adds others, too."""
    where = x.device.type
    dtype = torch.get_autocast_dtype(where) if torch.is_autocast_enabled(where) else x.dtype
    if not isinstance(residual, Tensor) or residual.dtype is not dtype or residual.device != x.device:
        return False
    made = (x.shape[0], w.shape[0], *extents(x.shape, w.shape[2:], *geometry[:3]))
    return tuple(residual.shape) == made


def _on_cuda(x: Tensor, w: Tensor, then: Following, geometry: Geometry) -> Tensor:
    try:
        made = fused_calls.fused(x, w, then, geometry)
    except BadConvolution:  # more elements than the kernels count, or a type that they do not compute
        made = None
    return in_steps(x, w, then, geometry) if made is None else made


def in_steps(x: Tensor, w: Tensor, then: Following, geometry: Geometry) -> Tensor:
    """The same by torch's own functions; halves are f32 in between."""
    scale, bias, residual, activation = then
    y = library.forward(x, w, None, *geometry)
    wide = y.float() if y.dtype in DTYPES else y
    if scale is not None:
        wide = wide * scale.to(wide.dtype)[:, None, None]
    if bias is not None:
        wide = wide + bias.to(wide.dtype)[:, None, None]
    if residual is not None:
        wide = wide + residual
    made: Tensor = FUNCTIONS[activation](wide).to(y.dtype)
    return made if autograd.transformed() else made.contiguous(memory_format=torch.channels_last)


def _declared(step: Callable[[Tensor, Tensor, Following, Geometry], Tensor]) -> Callable[..., Tensor]:
    """A step that takes what the operator is given, as it is declared."""

    def given(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
        return step(x, w, Following(*rest[:4]), geometry_from(*rest[4:]))

    return given


def _fake(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    return output_like(x, w, *rest[4:])


def _lowering(device: str) -> Any:
    """Below autocast: images and filter in its type, what a channel has in f32."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device.upper()}"))

    def cast(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            then = Following(*rest[:4])
            added = None if then.residual is None else then.residual.to(dtype)
            made: Tensor = operator(x.to(dtype), w.to(dtype), *then._replace(residual=added), *rest[4:])
        return made

    return cast


_LIBRARY.impl("grouped_conv2d_fused", _declared(in_steps), "CPU")
_LIBRARY.impl("grouped_conv2d_fused", _declared(_on_cuda), "CUDA")
_torch.library.register_fake("tapestry::grouped_conv2d_fused", _fake, lib=_LIBRARY)
for _device in ("cpu", "cuda"):
    _LIBRARY.impl("grouped_conv2d_fused", _lowering(_device), f"Autocast{_device.upper()}")


class FusedConv2d(nn.Module):
    """A grouped convolution and what follows it, in evaluation: activation(conv(x) * scale + bias + residual)."""

    weight: Tensor
    scale: Tensor | None
    bias: Tensor | None

    def __init__(
        self, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: str, geometry: Geometry
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().contiguous(memory_format=torch.channels_last))
        self.register_buffer("scale", None if scale is None else scale.detach().float())
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self.activation, self.geometry = activation, geometry
        self.keeps = False

    def forward(self, x: Any, residual: Any = None) -> Tensor:
        """[n, c, h, w] or [c, h, w], and what is added to the result before the activation."""
        if not isinstance(x, fx.Proxy) and x.dim() == 3:
            return one_image(self, x, residual)
        return self._fused(x, x, residual, self.geometry)

    def _fused(self, x: Any, images: Any, residual: Any, geometry: Geometry) -> Tensor:
        """The call, of what is made of x; the result lies as x does where somebody `keeps` to that, by views."""
        then = Following(self.scale, self.bias, residual, self.activation)
        made = fused(images, self.weight, then, geometry)
        return made.contiguous() if self.keeps and not isinstance(x, fx.Proxy) and lies_first(x) else made

    def _apply(self, fn: Any, recurse: bool = True) -> FusedConv2d:
        """Scale and bias stay in f32 whatever the model is converted to."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("scale", "bias"):
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, values.float())
        return self

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, {self.geometry}, activation={self.activation or None}"


def one_image(layer: nn.Module, x: Tensor, residual: Any) -> Tensor:
    """What a layer makes of an image without a batch."""
    added = residual.unsqueeze(0) if isinstance(residual, Tensor) and residual.dim() == 3 else residual
    made: Tensor = layer(x.unsqueeze(0), added)
    return made.squeeze(0)


class Pointwise(nn.Module):
    """A 1 x 1 convolution and its bias, if it has one, as a matrix product over channels."""

    bias: nn.Parameter | None

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().flatten(1), requires_grad=False)
        self.bias = nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, x: Any) -> Tensor:
        """[n, c, h, w] -> [n, k, h, w], channels-last but where x is channels-first; or [c, h, w] -> [k, h, w]."""
        if isinstance(x, fx.Proxy):
            return self._product(x)  # type: ignore[arg-type]
        if x.dim() == 3:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        made = self._product(x)
        return made.contiguous() if lies_first(x) else made

    def _product(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.permute(0, 2, 3, 1), self.weight, self.bias).permute(0, 3, 1, 2)
