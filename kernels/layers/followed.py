"""Convolutions and linear layers that torch computes, in evaluation, with what follows them:

    activation(layer(x) + bias + residual)

Of halves on a GPU cuDNN does all of that in one launch where the activation is relu. Any other is one launch behind a
layer without a bias (`tensors/following_calls`): products that add a bias take up to twice as long as those that do
not, and convolutions launch something for it. Of single pixels, and all else, by torch in steps. For inference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from ..normalization.followed import FollowedKind
from ..tensors import autograd
from ..tensors.bias_calls import HALVES, is_one_pixel
from ..tensors.following_calls import Following, follow
from ..tensors.norm_calls import DTYPES
from ..tensors.operands import lies_first
from .fused import FUNCTIONS, one_image

_torch: Any = torch
_LIBRARY = _torch.library.Library("tapestry", "FRAGMENT")
_LIBRARY.define(
    "conv2d_followed(Tensor x, Tensor w, Tensor bias, Tensor? residual, str activation, "
    "int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor"
)
operator: Any = torch.ops.tapestry.conv2d_followed
_REFUSED: set[tuple[Any, ...]] = set()  # what cuDNN has no engine for


def _convolved(
    x: Tensor, w: Tensor, bias: Tensor, residual: Tensor | None, activation: str, *moved: Any
) -> Tensor:  # fmt: skip
    """The operator, past torch's dispatcher; as it comes by way of that, numbers are in lists."""
    if _is_kernels(x, w) and _is_residual(residual):
        moved = (*map(tuple, moved[:3]), moved[3])
        pointwise = tuple(w.shape[2:]) == (1, 1) and moved[1] == (0, 0) and moved[-1] == 1
        if pointwise and is_one_pixel(x) and residual is None:
            return _pixels(x, w, bias, activation)
        if activation == "relu":
            known = _by_cudnn(x, w, bias, residual, moved)
            if known is not None:
                return known
        else:
            y = functional.conv2d(x, w, None, *moved)
            return _laid(x, _then(y, bias, residual, activation, False))
    return _laid(x, _in_steps(functional.conv2d(x, w, bias, *moved), residual, activation))


def _laid(x: Tensor, made: Tensor) -> Tensor:
    """A result that lies as images do: without cuDNN torch's convolutions give channels-first ones."""
    if autograd.transformed():  # torch does not say then how they lie
        return made
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return made.contiguous(memory_format=torch.channels_last) if last else made


def _is_kernels(*tensors: Tensor) -> bool:
    """Whether these are plain halves on a GPU, and nothing is recorded or cast."""
    if not autograd.direct(*tensors) or torch.is_autocast_enabled("cuda"):
        return False
    dtype, recorded = tensors[0].dtype, torch.is_grad_enabled()
    for one in tensors:
        if one.dtype is not dtype or (recorded and one.requires_grad):
            return False
    return dtype in HALVES and tensors[0].numel() > 0


def _is_residual(residual: Any) -> bool:
    """Whether there is none, or a tensor of which nothing is recorded: a graph may add a number."""
    if residual is None:
        return True
    return isinstance(residual, Tensor) and not (torch.is_grad_enabled() and residual.requires_grad)


def _pixels(x: Tensor, w: Tensor, bias: Tensor, activation: str) -> Tensor:
    """Of images of one pixel: a product of so few rows that one launch less is what counts."""
    rows, taps = x.flatten(1), w.flatten(1)
    if activation == "relu":
        return _torch._addmm_activation(bias, rows, taps.t())[:, :, None, None]  # type: ignore[no-any-return]
    return _in_steps(functional.linear(rows, taps, bias), None, activation)[:, :, None, None]


def _by_cudnn(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor | None, moved: tuple[Any, ...]) -> Tensor | None:
    """With relu, by cuDNN; None where it does not."""
    if not torch.backends.cudnn.enabled or bias.dtype is not x.dtype:
        return None
    if residual is not None and (residual.dtype is not x.dtype or residual.shape != _extents(x, w, *moved)):
        return None
    key = (x.shape, x.dtype, w.shape, residual is None, moved)
    if key in _REFUSED:
        return None
    try:
        if residual is None:
            return _torch.cudnn_convolution_relu(x, w, bias, *moved)  # type: ignore[no-any-return]
        return _torch.cudnn_convolution_add_relu(x, w, residual, 1.0, bias, *moved)  # type: ignore[no-any-return]
    except torch.cuda.OutOfMemoryError:  # which is no matter of engines, and may not come again
        raise
    except RuntimeError:
        if len(_REFUSED) < 1024:
            _REFUSED.add(key)
        return None


def _extents(x: Tensor, w: Tensor, stride: Any, padding: Any, dilation: Any, _groups: int) -> tuple[int, ...]:
    """Of the result."""
    found = [len(x), len(w)]
    for n, taps, step, pad, gap in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True):
        found.append((n + 2 * pad - gap * (taps - 1) - 1) // step + 1)
    return tuple(found)


def _then(y: Tensor, bias: Tensor, residual: Tensor | None, activation: str, last: bool) -> Tensor:
    """What follows a layer without its bias; y is written over."""
    if residual is not None and residual.shape == y.shape and residual.dtype is y.dtype:
        residual = residual.contiguous(memory_format=torch.contiguous_format if last else torch.channels_last)
    made = follow(y, Following(None, bias, residual, activation), last)
    if made is not None:
        return made
    return _in_steps(y + (bias if last else bias[:, None, None]), residual, activation)


def _in_steps(y: Tensor, residual: Tensor | None, activation: str) -> Tensor:
    made: Tensor = FUNCTIONS[activation](y if residual is None else y + residual)
    return made


def _fake(
    x: Tensor, w: Tensor, bias: Tensor, residual: Tensor | None, activation: str, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> Tensor:  # fmt: skip
    return _in_steps(functional.conv2d(x, w, bias, stride, padding, dilation, groups), residual, activation)


_LIBRARY.impl("conv2d_followed", _convolved, "CompositeExplicitAutograd")
_torch.library.register_fake("tapestry::conv2d_followed", _fake, lib=_LIBRARY)


class Constant(nn.Module):
    """A tensor that a model made of none of its operands, kept in one dimension: where a module is told how its images
    lie, torch takes what has five for volumes, which lie in another way, and refuses.
    """

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.extents = tuple(values.shape)
        self.register_buffer("values", values.detach().flatten())

    def forward(self) -> Tensor:
        """As it was."""
        return self.values.view(self.extents)


class FollowedConv2d(nn.Module):
    """A convolution that torch computes and what follows it, in evaluation: activation(conv(x) + bias + residual)."""

    def __init__(self, weight: Tensor, bias: Tensor, activation: str, layer: nn.Conv2d) -> None:
        """`weight` and `bias` are in the place of those of `layer`, which says the rest."""
        super().__init__()
        taps = weight.detach().contiguous(memory_format=torch.channels_last)
        self.weight = nn.Parameter(taps, requires_grad=False)
        self.bias = nn.Parameter(bias.detach(), requires_grad=False)
        self.activation, self.keeps = activation, False
        stride, padding, dilation = (tuple(of) for of in (layer.stride, layer.padding, layer.dilation))
        self.moved: tuple[Any, ...] = (stride, padding, dilation, layer.groups)

    def forward(self, x: Any, residual: Any = None) -> Any:
        """[n, c, h, w] or [c, h, w], and what is added to the result before the activation."""
        given = (x, self.weight, self.bias, residual, self.activation, *self.moved)
        if isinstance(x, fx.Proxy):
            return operator(*given)
        if x.dim() == 3:
            return one_image(self, x, residual)
        if not _is_residual(residual) or autograd.differentiated(x):
            made = self._in_steps(x, residual)
        elif not torch.compiler.is_compiling():
            made = _convolved(*given)
        elif torch.is_autocast_enabled(x.device.type):
            made = self._in_steps(x, residual)
        elif self.activation == "relu":
            made = operator(*given)
        else:  # what torch.compile makes of it: what follows in one kernel, that is its own
            y = functional.conv2d(x, self.weight, None, *self.moved) + self.bias[:, None, None]
            made = _in_steps(y, residual, self.activation)
        return made.contiguous() if self.keeps and lies_first(x) else made

    def _in_steps(self, x: Tensor, residual: Any) -> Tensor:
        return _in_steps(functional.conv2d(x, self.weight, self.bias, *self.moved), residual, self.activation)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, {self.moved}, activation={self.activation or None}"


class FollowedLinear(nn.Module):
    """A linear layer and what follows it, in evaluation: activation(x w + bias + residual)."""

    def __init__(self, layer: nn.Linear, activation: str) -> None:
        super().__init__()
        assert layer.bias is not None
        self.weight = nn.Parameter(layer.weight.detach(), requires_grad=False)
        self.bias = nn.Parameter(layer.bias.detach(), requires_grad=False)
        self.activation = activation

    def forward(self, x: Any, residual: Any = None) -> Any:
        """[..., c] to [..., k], and what is added to that before the activation."""
        if isinstance(x, fx.Proxy) or torch.compiler.is_compiling():
            return _in_steps(functional.linear(x, self.weight) + self.bias, residual, self.activation)
        if x.dim() < 2 or not _is_kernels(x, self.weight) or not _is_residual(residual):
            return _in_steps(functional.linear(x, self.weight, self.bias), residual, self.activation)
        if self.activation == "relu" and residual is None and self.bias.dtype is x.dtype:
            made = _torch._addmm_activation(self.bias, x.flatten(0, -2), self.weight.t())
            return made.view(*x.shape[:-1], made.shape[-1])
        return _then(functional.linear(x, self.weight), self.bias, residual, self.activation, True)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, activation={self.activation or None}"


class FollowedNorm(nn.Module):
    """A batch norm in evaluation that stands behind no convolution, and what follows it: activation(x * scale + bias +
    residual), scale and bias in f32.
    """

    scale: Tensor
    bias: Tensor

    def __init__(self, scale: Tensor, bias: Tensor, activation: str) -> None:
        super().__init__()
        self.register_buffer("scale", scale.detach().float())
        self.register_buffer("bias", bias.detach().float())
        self.activation = activation

    def forward(self, x: Any, residual: Any = None) -> Any:
        """[n, c, ...], and what is added before the activation."""
        given = (x, self.scale, self.bias, residual, self.activation)
        if isinstance(x, fx.Proxy):
            return x.tracer.create_proxy("call_function", normed, given, {})
        if not torch.compiler.is_compiling() and _is_kernels(x) and _is_residual(residual):
            made = follow(x, Following(*given[1:]), False, torch.empty_like(x))
            if made is not None:
                return made
        return normed(*given)

    def _apply(self, fn: Any, recurse: bool = True) -> FollowedNorm:
        """Scale and bias stay in f32 whatever the model is converted to."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scale, self.bias = self.scale.float(), self.bias.float()
        return self

    def extra_repr(self) -> str:
        return f"{len(self.bias)}, activation={self.activation or None}"


def normed(x: Tensor, scale: Tensor, bias: Tensor, residual: Tensor | None, activation: str) -> Tensor:
    """The same by torch's functions, in f32 in between."""
    shape = (-1, *(1 for _ in range(x.dim() - 2)))
    wide, dtype = x.float() * scale.view(shape) + bias.view(shape), x.dtype
    if isinstance(residual, Tensor) and residual.dim():  # as torch has it: a sum of both types
        dtype = torch.promote_types(dtype, residual.dtype)
    return _in_steps(wide, residual, activation).to(dtype)


def followed_kinds(model: nn.Module, dtype: torch.dtype) -> list[FollowedKind]:
    """The kernels that a model that was fused for inference asks for, of activations of a type."""
    named = DTYPES.get(dtype)
    if dtype not in HALVES or named is None:
        return []
    found = []
    for part in model.modules():
        for node in part.graph.find_nodes(op="call_module") if isinstance(part, fx.GraphModule) else ():
            layer = part.get_submodule(str(node.target))
            if isinstance(layer, FollowedNorm):
                found.append(FollowedKind.of(len(layer.bias), named, layer.activation, len(node.args) > 1, "f32"))
            if isinstance(layer, (FollowedConv2d, FollowedLinear)):
                residual = len(node.args) > 1
                if layer.activation != "relu" or (residual and isinstance(layer, FollowedLinear)):
                    found.append(FollowedKind.of(len(layer.bias), named, layer.activation, residual, named))
    return list(dict.fromkeys(found))
