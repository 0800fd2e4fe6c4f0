"""Global response norms in training (timm's, of ConvNeXt V2).

    y = x + bias + weight * x * (g / (mean of g over channels + epsilon)),  g the norm of x over each image's pixels

That is x * gate + bias with a gate of each image and channel. Torch makes two dozen passes over x and tensors of its
size, in f32 under autocast most of them; the kernels (`normalization/images.cu`) make eight, forward and backward. What
is computed of images and channels alone is torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..normalization.images import ImageKind
from ..tensors import autograd
from ..tensors.image_calls import launched, worth_it
from ..tensors.norm_calls import DTYPES, fetchable
from ..tensors.norm_library import are_taken
from ..tensors.operands import ALIGNED
from ..tensors.recorded import applied, no_second_derivative
from .inherited import inherit

TINY = 1e-30  # below any norm but 0


class FusedResponseNorm(nn.Module):
    """As timm's GlobalResponseNorm, of [n, c, h, w] where channels come `first`, else of [n, h, w, c].

    The kernels compute what is dense in memory, channels innermost, of f16 and bf16 with parameters of f32 or of that
    type where autocast is off or casts the result anyway. All else is torch's: tracing, torch.compile, few images too.
    """

    def __init__(self, norm: Any, read_lowered: bool = False) -> None:
        """With the parameters of `norm`, which are shared."""
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.eps, self.first, self.read_lowered = norm.eps, norm.channel_dim == 1, read_lowered
        inherit(self.train(norm.training), norm)

    def forward(self, x: Tensor) -> Tensor:
        """[n, c, h, w] or [n, h, w, c]."""
        if not torch.compiler.is_compiling() and autograd.plain(x, self.weight, self.bias):
            images = x if self.first or x.dim() != 4 else x.permute(0, 3, 1, 2)
            if self._fits(images):
                made: Tensor = _recorded(images, self.weight, self.bias, self.eps)
                return made if self.first else made.permute(0, 2, 3, 1)
        pixels, channels, shape = ((2, 3), 1, (1, -1, 1, 1)) if self.first else ((1, 2), -1, (1, 1, 1, -1))
        g = x.norm(p=2, dim=pixels, keepdim=True)
        normal = x * (g / (g.mean(dim=channels, keepdim=True) + self.eps))
        return x + torch.addcmul(self.bias.view(shape), self.weight.view(shape), normal)

    def _fits(self, x: Tensor) -> bool:
        """Whether the kernels compute a call, and give what torch would."""
        if x.dim() != 4 or not worth_it(x) or not x.is_contiguous(memory_format=torch.channels_last):
            return False
        if x.dtype not in (torch.float16, torch.bfloat16) or x.data_ptr() & ALIGNED or not x.numel():
            return False
        if torch.is_autocast_enabled("cuda") and not (
            self.read_lowered and x.dtype is torch.get_autocast_dtype("cuda")
        ):
            return False
        parameters = (self.weight, self.bias)
        if any(one.get_device() != x.get_device() for one in parameters):
            return False
        return are_taken(parameters, self.weight.dtype, x, x.shape[1])

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, first={self.first}, read_lowered={self.read_lowered}"


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        squares = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)
        launched("squares", x, squares, numbers=torch.float32)
        g, scale, added = squares.sqrt_(), weight.float(), bias.float()
        inverse = (g.mean(1, keepdim=True) + epsilon).reciprocal_()
        normal = g * inverse
        gate, y = torch.addcmul(torch.ones_like(scale), normal, scale), torch.empty_like(x)
        launched("shifted", x, gate, added.expand_as(gate).contiguous(), y, numbers=torch.float32)
        ctx.save_for_backward(x, weight, g, inverse, gate)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise no_second_derivative("response norm", "fuse_norms")
        x, weight, g, inverse, gate = ctx.saved_tensors
        x, dy = fetchable(x), fetchable(dy)  # what keeps tensors elsewhere may give them back as it likes
        dx = torch.empty_like(x)
        products, sums = torch.empty_like(g), torch.empty_like(g)
        launched("both sums", x, dy, products, sums, numbers=torch.float32)
        to_weight, to_bias = (products * (g * inverse)).sum(0), sums.sum(0)
        to_normal = products * weight  # normal = g * inverse, and inverse is of the mean of g
        mean = (to_normal * g).mean(1, keepdim=True) * inverse
        tilt = (to_normal - mean) * inverse / g.clamp_min(TINY)  # the derivative of g by x is x / g
        launched("blended", dy, gate, x, tilt, dx, numbers=torch.float32)
        return dx, to_weight.to(weight.dtype), to_bias.to(weight.dtype), None


_recorded = applied(_Recorded)


def response_kinds(model: nn.Module, dtype: torch.dtype) -> list[ImageKind]:
    """The kernels that the response norms of a model in training ask for, of activations of a type."""
    named = DTYPES.get(dtype)
    norms = [part for part in model.modules() if isinstance(part, FusedResponseNorm)]
    return list(dict.fromkeys(ImageKind.of(part.weight.shape[0], named, "f32") for part in norms if named))


def is_timms(norm: nn.Module) -> bool:
    """Whether a layer is a global response norm."""
    return type(norm).__module__ == "timm.layers.grn" and type(norm).__name__ == "GlobalResponseNorm"
