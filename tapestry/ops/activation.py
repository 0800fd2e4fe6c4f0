"""Activations: one elementwise expression each, with torch.nn.functional's names, defaults and values.

At a corner the slope is the one of the branch that the condition chooses (see `tapestry.expr.derivatives`).
"""

from __future__ import annotations

from math import prod

from ..dsl.door import door
from ..dsl.element import Element
from ..dsl.index import Index
from ..dsl.tensor import Tensor
from ..errors import UsageError
from .elementwise import abs as absolute
from .elementwise import exp, expm1, formula, log1p, maximum, minimum, sigmoid, tanh, where
from .reduction import axis_position
from .views import slice_view

Operand = Tensor | Element | Index


def _softplus(x: Tensor) -> Tensor:
    return maximum(x, 0) + log1p(exp(-absolute(x)))


@door
def softplus(x: Operand, *, beta: float = 1.0, name: str = "") -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflowing."""
    if not beta > 0:
        raise UsageError(f"softplus(beta={beta})", hint="beta is above 0")
    return formula("softplus", lambda x: _softplus(x * beta) / beta, x, name=name)


@door
def logsigmoid(x: Operand, *, name: str = "") -> Tensor:
    """log(sigmoid(x))."""
    return formula("logsigmoid", lambda x: minimum(x, 0) - log1p(exp(-absolute(x))), x, name=name)


@door
def elu(x: Operand, *, alpha: float = 1.0, name: str = "") -> Tensor:
    """x above 0, alpha (exp(x) - 1) below: Clevert et al., arXiv:1511.07289."""
    return formula("elu", lambda x: where(x > 0, x, alpha * expm1(x)), x, name=name)


@door
def selu(x: Operand, *, name: str = "") -> Tensor:
    """Scaled elu: Klambauer et al., arXiv:1706.02515, with its two constants."""
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return formula("selu", lambda x: scale * where(x > 0, x, alpha * expm1(x)), x, name=name)


@door
def celu(x: Operand, *, alpha: float = 1.0, name: str = "") -> Tensor:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0): Barron, arXiv:1704.07483."""
    return formula("celu", lambda x: where(x > 0, x, alpha * expm1(x / alpha)), x, name=name)


@door
def leaky_relu(x: Operand, *, slope: float = 0.01, name: str = "") -> Tensor:
    """x above 0, slope x below."""
    return formula("leaky_relu", lambda x: where(x > 0, x, slope * x), x, name=name)


@door
def prelu(x: Tensor, weight: Tensor, *, axis: int | str = 1, name: str = "") -> Tensor:
    """x above 0, weight x below: one weight for all, or one for each element of ``axis``.

    x [.., c, ..], weight [] or [1] or [c]. Raises UsageError for another length.
    """
    k = axis_position(x, axis) if prod(weight.shape) > 1 else 0
    if weight.ndim > 1 or prod(weight.shape) not in (1, x.shape[k] if x.ndim else 1):
        raise UsageError("prelu: the weight has not the extent of the axis", sides={"x": repr(x), "w": repr(weight)})
    spread = weight if prod(weight.shape) == 1 else slice_view(weight, (slice(None), *[None] * (x.ndim - 1 - k)))
    return formula("prelu", lambda x, w: where(x > 0, x, w * x), x, spread, name=name)


@door
def relu6(x: Operand, *, name: str = "") -> Tensor:
    """min(max(x, 0), 6)."""
    return formula("relu6", _relu6, x, name=name)


def _relu6(x: Tensor) -> Tensor:
    return minimum(maximum(x, 0), 6)


@door
def hardtanh(x: Operand, *, low: float = -1.0, high: float = 1.0, name: str = "") -> Tensor:
    """x between low and high, these beyond."""
    return formula("hardtanh", lambda x: minimum(maximum(x, low), high), x, name=name)


@door
def hardsigmoid(x: Operand, *, name: str = "") -> Tensor:
    """relu6(x + 3) / 6: Howard et al., arXiv:1905.02244."""
    return formula("hardsigmoid", lambda x: _relu6(x + 3) / 6, x, name=name)


@door
def hardswish(x: Operand, *, name: str = "") -> Tensor:
    """x relu6(x + 3) / 6: Howard et al., arXiv:1905.02244."""
    return formula("hardswish", lambda x: x * _relu6(x + 3) / 6, x, name=name)


@door
def mish(x: Operand, *, name: str = "") -> Tensor:
    """x tanh(softplus(x)): Misra, arXiv:1908.08681."""
    return formula("mish", lambda x: x * tanh(_softplus(x)), x, name=name)


@door
def softsign(x: Operand, *, name: str = "") -> Tensor:
    """x / (1 + |x|)."""
    return formula("softsign", lambda x: x / (1 + absolute(x)), x, name=name)


@door
def tanhshrink(x: Operand, *, name: str = "") -> Tensor:
    """x - tanh(x)."""
    return formula("tanhshrink", lambda x: x - tanh(x), x, name=name)


@door
def softshrink(x: Operand, *, width: float = 0.5, name: str = "") -> Tensor:
    """x nearer to 0 by ``width``, and 0 within it."""
    return formula("softshrink", lambda x: where(x > width, x - width, where(x < -width, x + width, 0.0)), x, name=name)


@door
def hardshrink(x: Operand, *, width: float = 0.5, name: str = "") -> Tensor:
    """x, but 0 within ``width`` of 0."""
    return formula("hardshrink", lambda x: where((x > width) | (x < -width), x, 0.0), x, name=name)


@door
def threshold(x: Operand, limit: float, value: float, *, name: str = "") -> Tensor:
    """x above the limit, else ``value``."""
    return formula("threshold", lambda x: where(x > limit, x, value), x, name=name)


@door
def glu(x: Tensor, axis: int | str = -1, *, name: str = "") -> Tensor:
    """a * sigmoid(b), a and b the halves of x along an axis: Dauphin et al., arXiv:1612.08083."""
    k = axis_position(x, axis)
    if x.shape[k] % 2:
        raise UsageError(f"glu: the axis {x.axes[k]} of extent {x.shape[k]} has no halves", sides={"x": repr(x)})
    before, half = [slice(None)] * k, x.shape[k] // 2
    first, second = slice_view(x, (*before, slice(0, half))), slice_view(x, (*before, slice(half, None)))
    return formula("glu", lambda a, b: a * sigmoid(b), first, second, name=name)
