"""Convolutions of torch tensors on CUDA with what follows them, as prepared calls (`tensors/convolution_calls.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..convolution import choices, prepare, tuned
from ..convolution.prepare import ACTIVATIONS, Fused, Steps
from ..convolution.problem import ConvolutionProblem
from ..runtime.array import DeviceArray
from . import library, native_calls
from .convolution_calls import Plan, copied, planned
from .geometry import Geometry, packed
from .operands import ALIGNED, is_wide, wide

# Activations, and none, as the extension takes them.
_NUMBERS = {name: number for number, name in enumerate(("", *ACTIVATIONS))}


class Following(NamedTuple):
    """What follows a convolution: activation(y * scale + bias + residual)."""

    scale: Tensor | None
    bias: Tensor | None
    residual: Tensor | None
    activation: str


def fused(x: Tensor, w: Tensor, then: Following, geometry: Geometry) -> Tensor | None:
    """activation(conv(x, w) * scale + bias + residual) in one launch; None where torch is to compute it in steps."""
    plan = planned(x, w, geometry)
    if plan.left and _left(plan.problem, plan.device):
        return None
    given = copied(plan, x, w)
    out = plan.result.allocated(x)
    operands, names = [*given, out], ["x", "w", "out"]
    for name, values in (("scale", then.scale), ("bias", then.bias)):
        if values is not None:
            operands.append(wide(values, x))
            names.append(name)
    if then.residual is not None:
        operands.append(then.residual.to(x.dtype).contiguous(memory_format=torch.channels_last))
        names.append("residual")
    kind = (*names[3:], then.activation, operands[-1].data_ptr() & ALIGNED)
    if not plan.run(kind, operands, names, lambda *a: _fused_steps(plan, names[3:], then.activation, *a)):
        return None
    added = None if then.residual is None else (then.residual.stride(), then.residual.data_ptr() & ALIGNED)
    if (
        (then.residual is None or then.residual.dtype is x.dtype)
        and all(one is None or is_wide(one) for one in then[:2])
        and plan.is_news((kind, w.data_ptr() & ALIGNED, added))
    ):
        native_calls.learn_fused((x, w, *then[:3], _NUMBERS[then.activation]), geometry, out, plan.launches[kind])
    return out


def _left(problem: ConvolutionProblem, device: int) -> bool:
    """Whether cuDNN is faster with all that torch has to do then behind it; asked where it is faster without."""
    from ..cost.gpu import described_gpu
    from ..runtime.device import properties

    gpu = described_gpu(properties(device))
    known = tuned.left(problem, "forward", gpu, library.setting())
    return choices.left_with_steps(problem, gpu) if known is None else known


def known(x: Tensor, w: Tensor, then: Following, geometry: Geometry) -> Tensor | None:
    """The same where the extension knows the call."""
    number, activation = packed(*geometry[:3]), _NUMBERS.get(then.activation)
    if native_calls.fused is None or number is None or activation is None:
        return None
    return native_calls.fused(x, w, *then[:3], activation, number, geometry.groups)


def _fused_steps(
    plan: Plan,
    names: Sequence[str],
    activation: str,
    x: DeviceArray,
    w: DeviceArray,
    out: DeviceArray,
    *extras: DeviceArray,
) -> Steps:
    added = dict(zip(names, extras, strict=True))
    follows = Fused(added.get("scale"), added.get("bias"), added.get("residual"), activation or None)
    return prepare.forward_steps(plan.problem, x, w, out, follows, None)
