"""Batch norms in training, each with the residual and the activation behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..normalization.batch_norm import NormKind
from ..tensors import autograd, native_calls, norm_calls, norm_operators
from ..tensors.norm_library import Norm, Running, are_taken, parameter_type
from .activations import activation_name
from .inherited import inherit

_torch: Any = torch  # what is not typed by torch


class NormAct2d(nn.BatchNorm2d):
    """nn.BatchNorm2d and what follows it: `act(norm(x))`, and of `(x, residual)` `act(norm(x) + residual)`.

    In training, of dense channels-last CUDA tensors of f16, bf16 or f32 with parameters and buffers of f32 or of that
    type, the kernels compute both in one pass over x after the one for the statistics, and keep x alone for the
    gradients, in two passes as well.
    All else is torch's: evaluation, other tensors, tracing.
    """

    summed = False  # whether its activation is that of a sum with a residual: without one it has none
    written: Literal["", "norm", "residual"] = ""  # which summand the sum was written into, and has the type of

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm, act: nn.Module) -> None:
        """With the parameters and buffers of `norm`, which are shared."""
        settings: dict[str, Any] = {"eps": norm.eps, "momentum": norm.momentum, "affine": norm.affine}
        track = norm.track_running_stats
        super().__init__(norm.num_features, track_running_stats=track, device="meta", **settings)
        self._parameters, self._buffers = dict(norm._parameters), dict(norm._buffers)
        self._non_persistent_buffers_set = set(norm._non_persistent_buffers_set)
        self.act, self.activation = act, activation_name(act)
        inherit(self.train(norm.training), norm)

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w]."""
        alone = self.summed and residual is None
        if self.training or self.running_mean is None:
            # Not by a set, whose order, which is another one in every process, a graph that is kept would have.
            fits = "weight" in self._parameters and "bias" in self._parameters
            fits = fits and (residual is None or isinstance(residual, Tensor))
            made = self._fused(input, residual, "" if alone else self.activation) if fits else None
            if made is not None:
                return made
            y = super().forward(input)
        else:  # as `fuse_for_inference` traces it
            _torch._assert(input.ndim == 4, "images [n, c, h, w]")
            known = (self.running_mean, self.running_var, self.weight, self.bias)
            y = nn.functional.batch_norm(input, *known, False, 0.0, self.eps)
        if alone:
            return y
        if residual is not None:
            if self.written == "norm":
                y += residual
            elif self.written == "residual":
                residual += y
                y = residual
            else:
                y = y + residual
        result: Tensor = self.act(y)
        return result

    def _fused(self, x: Tensor, residual: Tensor | None, activation: str | None) -> Tensor | None:
        """The same by the kernels; None where that is torch's."""
        parameters, buffers = self._parameters, self._buffers
        weight, bias = parameters["weight"], parameters["bias"]
        # Asked first: a graph that is being traced would depend on whether the extension is there, which it soon is.
        compiling = torch.compiler.is_compiling()
        if not compiling and native_calls.norm is not None and activation is not None:
            setting = norm_calls.setting_of(self.eps, activation)
            made = self._native(native_calls.norm, x, residual, weight, bias, setting)
            if made is not None:
                return made
        plain = compiling or (autograd.plain(x) if residual is None else autograd.plain(x, residual))
        if activation is None or not plain:
            return None
        norm, running = Norm(weight, bias, self.eps, activation), None
        known: list[Tensor | None] = [weight, bias]
        if self.training and self.track_running_stats:
            mean, variance, batches = buffers["running_mean"], buffers["running_var"], buffers["num_batches_tracked"]
            if mean is None or variance is None or batches is None:
                return None
            running = Running(mean, variance, batches, self.momentum)
            known += [mean, variance]
        if not _fits(x, residual, *known):
            return None
        if compiling:
            return _traced(x, residual, norm, running)
        if any(one is not None and one.get_device() != x.get_device() for one in known):
            return None
        return norm_operators.direct(x, residual, norm, running)

    def _native(
        self,
        norm: Callable[..., Tensor | None],
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        setting: int,
    ) -> Tensor | None:
        """By the extension, where it knows the call."""
        buffers = self._buffers
        if not (self.training and self.track_running_stats):
            return norm(x, residual, weight, bias, None, None, None, setting, 0.0)
        known = (buffers["running_mean"], buffers["running_var"], buffers["num_batches_tracked"])
        return norm(x, residual, weight, bias, *known, setting, norm_calls.momentum_of(self.momentum))

    def extra_repr(self) -> str:
        settings: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{settings}, activation={self.activation or None}"


def _traced(x: Tensor, residual: Tensor | None, norm: Norm, running: Running | None) -> Tensor:
    """By an operator."""
    y: Tensor
    if running is None:
        y, _ = norm_operators.operator(x, residual, *norm)
    else:
        weight, bias, *settings = norm
        *known, momentum = running
        share = norm_calls.momentum_of(momentum)
        y, _ = norm_operators.remembered(x, residual, weight, bias, *known, share, *settings)
    return y


def _fits(x: Tensor, residual: Tensor | None, *parameters: Tensor | None) -> bool:
    """Whether the kernels compute a call, and are predicted to take less time than torch."""
    if not norm_calls.computed(x) or x.numel() <= x.shape[1]:
        return False
    if residual is not None and not (residual.shape == x.shape and residual.dtype is x.dtype):
        return False
    if residual is not None and not norm_calls.computed(residual):
        return False
    return are_taken(parameters, parameter_type(*parameters), x, x.shape[1])


def lowered(example: Any) -> torch.dtype:
    """The type that autocast, where it is on, makes of what a model is called with."""
    first = example[0] if isinstance(example, tuple) else example
    where = first.device.type
    made: torch.dtype = torch.get_autocast_dtype(where) if torch.is_autocast_enabled(where) else first.dtype
    return made


def kinds(model: nn.Module, dtype: torch.dtype) -> list[NormKind]:
    """The kernels that the norms of a model in training ask for, of activations of a type."""
    named, found = norm_calls.DTYPES.get(dtype), []
    for part in model.modules():
        if named and isinstance(part, NormAct2d) and part.activation is not None:
            learned, made = (part.weight, part.bias), (part.num_features, named, part.activation, part.summed)
            for given in ((*learned, part.running_mean), learned):  # that of the gradient knows of no statistics
                own = norm_calls.DTYPES.get(parameter_type(*given))
                found += [NormKind.of(*made, own)] if own in ("f32", named) else []
    return list(dict.fromkeys(found))
