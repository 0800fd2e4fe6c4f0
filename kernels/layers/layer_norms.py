"""Layer norms that kernels compute.

Under autocast torch computes a layer norm in f32 and what reads it, mostly a product, casts the result down again: five
passes over the tensor forward, in f32 most of them, where the kernels (`normalization/layer_norm.cu`) make two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..normalization.layer_norm import RowKind
from ..tensors import autograd, native_calls
from ..tensors.layer_norm_calls import normalized
from ..tensors.norm_calls import DTYPES
from ..tensors.norm_library import parameter_type
from .inherited import inherit


class FusedLayerNorm(nn.LayerNorm):
    """nn.LayerNorm over the last dimension or, `first`, over the channels of [n, c, h, w].

    The kernels compute what is dense in memory, channels innermost, of f16, bf16 or f32 with parameters of f32 or of
    that type. All else is torch's: other tensors, tracing, torch.compile (which fuses by itself).
    """

    def __init__(self, norm: nn.LayerNorm, first: bool = False, read_lowered: bool = False) -> None:
        """With the parameters of `norm`, which are shared. `read_lowered`: autocast casts the result anyway."""
        super().__init__(norm.normalized_shape, norm.eps, norm.elementwise_affine, device="meta")
        self._parameters = dict(norm._parameters)
        self.first, self.read_lowered = first, read_lowered
        inherit(self.train(norm.training), norm)

    def forward(self, input: Tensor) -> Tensor:
        """[..., c], or [n, c, h, w]."""
        parameters = self._parameters  # they lie elsewhere in replicas, and where they are computed
        if not torch.compiler.is_compiling() and parameters.keys() >= {"weight", "bias"}:
            weight, bias, native = parameters["weight"], parameters["bias"], native_calls.layer_norm
            made = native(input, weight, bias, self.eps, self.first, self.read_lowered) if native else None
            if made is not None or (made := self._by_kernels(input, weight, bias)) is not None:
                return made
        if not self.first:
            return super().forward(input)
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def _by_kernels(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """None where that is torch's."""
        if not autograd.plain(*[one for one in (x, weight, bias) if one is not None]):
            return None
        return normalized(x, weight, bias, self.eps, self.first, self._result(x))

    def _result(self, x: Tensor) -> torch.dtype:
        """As torch gives it; lower already, where it would be cast to that anyway."""
        if not torch.is_autocast_enabled("cuda"):
            return x.dtype
        return torch.get_autocast_dtype("cuda") if self.read_lowered else torch.float32

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, first={self.first}, read_lowered={self.read_lowered}"


def row_kinds(model: nn.Module, dtype: torch.dtype) -> list[RowKind]:
    """The kernels that the layer norms of a model ask for, of activations of a type."""
    named, found = DTYPES.get(dtype), []
    for part in model.modules():
        if named and isinstance(part, FusedLayerNorm):
            results = (named,) if part.read_lowered else (named, "f32")
            own, channels = DTYPES.get(parameter_type(part.weight)), part.normalized_shape[0]
            types = [(given, made) for given in (named, "f32") for made in results if own in ("f32", given)]
            found += [RowKind.of(channels, *given, own) for given in types if own]
    return [kind for kind in dict.fromkeys(found) if kind is not None]
