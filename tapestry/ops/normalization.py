"""Normalisations: small programs of primitives, each statistic one fold, the result one elementwise operation.

Statistics of 16-bit floats are kept in f32; the result has the operand's dtype.
"""

from __future__ import annotations

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.index import Index
from ..dsl.reducer import Axes
from ..dsl.tensor import Tensor
from ..dsl.trace import composite
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, exp, maximum, rsqrt, sqrt
from .reduction import axis_positions
from .reduction import logsumexp as logarithm
from .reduction import max as largest
from .reduction import sum as fold

Split = tuple[tuple[Index, ...], tuple[Index, ...], tuple[Index, ...], int]


@door
@composite
def softmax(x: Tensor, axis: Axes = -1, *, name: str = "") -> Tensor:
    """exp(x - max) / sum of exp(x - max), max and sum over the axes: three operations, stable for all finite x."""
    every, outer, inner, _ = _split("softmax", x, axis)
    peak = define("max", outer, largest[inner](x[every]))
    peak.trace.held.add(peak.key)  # the result does not depend on it, as long as it is the same above and below
    total = define("sum", outer, fold[inner](exp(x[every] - peak[outer])), dtype=promote(x.dtype, "f32"))
    return define("divide", every, exp(x[every] - peak[outer]) / total[outer], dtype=x.dtype)


@door
@composite
def log_softmax(x: Tensor, axis: Axes = -1, *, name: str = "") -> Tensor:
    """x - logsumexp(x) over the axes: two operations, stable for all finite x."""
    every, outer, inner, _ = _split("log_softmax", x, axis)
    total = define("logsumexp", outer, logarithm[inner](x[every]), dtype=promote(x.dtype, "f32"))
    return define("subtract", every, x[every] - total[outer], dtype=x.dtype)


@door
def softmin(x: Tensor, axis: Axes = -1, *, name: str = "") -> Tensor:
    """The softmax of -x."""
    return softmax(-x, axis, name=name)


@door
@composite
def normalize(x: Tensor, axis: Axes = 1, *, eps: float = 1e-12, name: str = "") -> Tensor:
    """x / max(|x|, eps), |x| the Euclidean length over the axes."""
    every, outer, inner, _ = _split("normalize", x, axis)
    wide = _wide(x, every)
    length = define("length", outer, sqrt(fold[inner](wide * wide)), dtype=promote(x.dtype, "f32"))
    return define("divide", every, x[every] / maximum(length[outer], eps), dtype=x.dtype)


@door
@composite
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: Axes = -1,
    eps: float = 1e-5,
    name: str = "",
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the axes; weight and bias have the extents of these axes.

    The variance is the mean of (x - mean)²: Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    every, outer, inner, count = _split("layer_norm", x, axis)
    statistics = promote(x.dtype, "f32")
    mean = define("mean", outer, fold[inner](_wide(x, every) / count), dtype=statistics)
    centred = x[every] - mean[outer]
    variance = define("variance", outer, fold[inner](centred * centred / count), dtype=statistics)
    scaled = centred * rsqrt(variance[outer] + eps)
    return define("scale", every, _affine(x, scaled, weight, bias, inner), dtype=x.dtype)


@door
@composite
def rms_norm(x: Tensor, weight: Tensor | None = None, *, axis: Axes = -1, eps: float = 1e-6, name: str = "") -> Tensor:
    """x / sqrt(mean of x² + eps) * weight over the axes: Zhang and Sennrich, arXiv:1910.07467, equation 4."""
    every, outer, inner, count = _split("rms_norm", x, axis)
    wide = _wide(x, every)
    square = define("mean_square", outer, fold[inner](wide * wide / count), dtype=promote(x.dtype, "f32"))
    return define("scale", every, _affine(x, x[every] * rsqrt(square[outer] + eps), weight, None, inner), dtype=x.dtype)


def _split(function: str, x: Tensor, axis: Axes) -> Split:
    """All indices, those kept, those folded, and how many elements are folded into one."""
    if DTYPES[x.dtype].kind != "float":
        raise UsageError(f"{function} takes floats", sides={"x": repr(x)}, hint='cast it: astype("f32")')
    positions = axis_positions(x, axis)
    if not positions:
        raise UsageError(f"{function} needs an axis", sides={"x": repr(x)})
    every = axes_of(x)
    count = 1
    for k in positions:
        count *= x.shape[k]
    kept = tuple(index for k, index in enumerate(every) if k not in positions)
    return every, kept, tuple(every[k] for k in positions), count


def _wide(x: Tensor, at: tuple[Index, ...]) -> Tensor:
    """An element in the type in which it computes: f16 has no number for the length of a long row."""
    compute = DTYPES[x.dtype].compute
    return x[at] if compute == x.dtype else cast(x[at], compute)


def _affine(x: Tensor, value: Tensor, weight: Tensor | None, bias: Tensor | None, inner: tuple[Index, ...]) -> Tensor:
    """value * weight + bias, the two indexed by the folded axes."""
    extents = tuple(x.shape[x.axes.index(str(index))] for index in inner)
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != extents:
            sides = {"x": repr(x), what: repr(tensor)}
            raise UsageError(f"the {what} has not the extents of the normalised axes", sides=sides)
    value = value if weight is None else value * weight[inner]
    return value if bias is None else value + bias[inner]
