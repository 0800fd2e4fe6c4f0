"""Losses: one expression for each element, then its mean, its sum, or all of them (``reduction``).

Names, defaults and values are those of torch.nn.functional.
"""

from __future__ import annotations

from math import log as logarithm
from math import pi
from typing import Literal

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.tensor import Tensor
from ..dsl.trace import composite
from ..dtypes import DTYPES
from ..errors import UsageError
from .elementwise import abs as absolute
from .elementwise import exp, formula, log, log1p, maximum, minimum, sqrt, where
from .reduction import axis_position, mean
from .reduction import sum as fold

Reduction = Literal["mean", "sum", "none"]


def _reduced(each: Tensor, reduction: Reduction) -> Tensor:
    return each if reduction == "none" else mean(each) if reduction == "mean" else fold(each)


@door
@composite
def mse_loss(x: Tensor, y: Tensor, *, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """(x - y)²."""
    return _reduced(formula("square", lambda a, b: (a - b) * (a - b), x, y), reduction)


@door
@composite
def l1_loss(x: Tensor, y: Tensor, *, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """|x - y|."""
    return _reduced(formula("distance", lambda a, b: absolute(a - b), x, y), reduction)


def _huber(error: Tensor, delta: float) -> Tensor:
    size = absolute(error)
    return where(size < delta, 0.5 * error * error, delta * (size - 0.5 * delta))


@door
@composite
def huber_loss(x: Tensor, y: Tensor, *, delta: float = 1.0, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """Half of the square of e = x - y where |e| < delta, else delta (|e| - delta / 2)."""
    return _reduced(formula("huber", lambda a, b: _huber(a - b, delta), x, y), reduction)


@door
@composite
def smooth_l1_loss(x: Tensor, y: Tensor, *, beta: float = 1.0, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """The Huber loss divided by its delta, beta; beta 0 is `l1_loss`."""
    if beta == 0:
        return _reduced(formula("distance", lambda a, b: absolute(a - b), x, y), reduction)
    return _reduced(formula("huber", lambda a, b: _huber(a - b, beta) / beta, x, y), reduction)


@door
@composite
def binary_cross_entropy(p: Tensor, y: Tensor, *, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """-(y log p + (1 - y) log(1 - p)), logarithms not below -100, as in torch."""
    each = formula("entropy", lambda p, y: -(y * maximum(log(p), -100) + (1 - y) * maximum(log1p(-p), -100)), p, y)
    return _reduced(each, reduction)


@door
@composite
def binary_cross_entropy_with_logits(x: Tensor, y: Tensor, *, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """`binary_cross_entropy` of p = sigmoid(x), stable: (1 - y) x - log sigmoid(x)."""
    each = formula("entropy", lambda x, y: (1 - y) * x - minimum(x, 0) + log1p(exp(-absolute(x))), x, y)
    return _reduced(each, reduction)


@door
@composite
def kl_div(
    x: Tensor, y: Tensor, *, log_target: bool = False, reduction: Literal["mean", "sum", "none", "batchmean"] = "mean",
    name: str = "",
) -> Tensor:  # fmt: skip
    """y (log y - x), x the logarithm of a probability; with ``log_target`` y is one too.

    "batchmean" divides the sum by the extent of axis 0.
    """
    if log_target:
        each = formula("divergence", lambda x, y: exp(y) * (y - x), x, y)
    else:
        each = formula("divergence", lambda x, y: where(y > 0, y * log(y), 0.0) - y * x, x, y)
    return fold(each) / x.shape[0] if reduction == "batchmean" else _reduced(each, reduction)


@door
@composite
def soft_margin_loss(x: Tensor, y: Tensor, *, reduction: Reduction = "mean", name: str = "") -> Tensor:
    """log(1 + exp(-y x)), y being 1 or -1."""
    return _reduced(formula("margin", lambda x, y: maximum(-y * x, 0) + log1p(exp(-absolute(y * x))), x, y), reduction)


@door
@composite
def hinge_embedding_loss(
    x: Tensor, y: Tensor, *, margin: float = 1.0, reduction: Reduction = "mean", name: str = ""
) -> Tensor:
    """x where y is 1, max(margin - x, 0) where it is -1."""
    each = formula("hinge", lambda x, y: where(y == 1, x, maximum(margin - x, 0)), x, y)
    return _reduced(each, reduction)


@door
@composite
def margin_ranking_loss(
    a: Tensor, b: Tensor, y: Tensor, *, margin: float = 0.0, reduction: Reduction = "mean", name: str = ""
) -> Tensor:
    """max(-y (a - b) + margin, 0), y being 1 or -1."""
    return _reduced(formula("margin", lambda a, b, y: maximum(margin - y * (a - b), 0), a, b, y), reduction)


@door
@composite
def poisson_nll_loss(
    x: Tensor, y: Tensor, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: Reduction = "mean", name: str = "",
) -> Tensor:  # fmt: skip
    """exp(x) - y x, or x - y log(x + eps); with ``full`` Stirling's approximation of log(y!) where y > 1."""

    def each(x: Tensor, y: Tensor) -> Tensor:
        value = exp(x) - y * x if log_input else x - y * log(x + eps)
        stirling = y * log(y) - y + 0.5 * log(2 * pi * y)
        return value + where(y > 1, stirling, 0.0) if full else value

    return _reduced(formula("poisson", each, x, y), reduction)


@door
@composite
def gaussian_nll_loss(
    x: Tensor, y: Tensor, variance: Tensor, *, full: bool = False, eps: float = 1e-6,
    reduction: Reduction = "mean", name: str = "",
) -> Tensor:  # fmt: skip
    """(log v + (x - y)² / v) / 2, v = max(variance, eps); with ``full`` half of log 2 pi more."""

    def each(x: Tensor, y: Tensor, variance: Tensor) -> Tensor:
        v = maximum(variance, eps)
        value = 0.5 * (log(v) + (x - y) * (x - y) / v)
        return value + 0.5 * logarithm(2 * pi) if full else value

    return _reduced(formula("gaussian", each, x, y, variance), reduction)


@door
@composite
def nll_loss(
    logp: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore: int = -100,
    reduction: Reduction = "mean", name: str = "",
) -> Tensor:  # fmt: skip
    """-weight[t] logp[n, t, ...] for the class t = target[n, ...]; the mean is divided by the sum of the weights.

    logp [n, c, ...], target [n, ...] of integers, weight [c]. Positions of class ``ignore`` count nothing. A class is
    found by comparison, so that its axis may be cut; one that is not there counts nothing either.
    """
    if logp.ndim < 2 or target.shape != (logp.shape[0], *logp.shape[2:]) or DTYPES[target.dtype].kind != "int":
        sides = {"logp": repr(logp), "target": repr(target)}
        raise UsageError("nll_loss takes logp [n, c, ...] and integers target [n, ...]", sides=sides)
    if weight is not None and weight.shape != logp.shape[1:2]:
        raise UsageError("nll_loss: one weight for each class", sides={"logp": repr(logp), "weight": repr(weight)})
    every = axes_of(logp)
    label, outer = every[1], (every[0], *every[2:])
    here = target[outer]
    share = (weight[label] if weight is not None else 1.0) * where((here == label) & (here != ignore), 1.0, 0.0)
    each = define("chosen", outer, fold[label](-logp[every] * share), dtype=logp.dtype)
    if reduction != "mean":
        return _reduced(each, reduction)
    total = define("weights", outer, fold[label](share), dtype=logp.dtype)
    return fold(each) / fold(total)


@door
@composite
def cosine_similarity(x: Tensor, y: Tensor, axis: int | str = 1, *, eps: float = 1e-8, name: str = "") -> Tensor:
    """x·y / (max(|x|, eps) max(|y|, eps)) along an axis, x and y of one shape."""
    k = axis_position(x, axis)
    products = [fold(formula("product", lambda a, b: a * b, a, b), k) for a, b in ((x, y), (x, x), (y, y))]
    return formula("cosine", lambda xy, xx, yy: xy / (maximum(sqrt(xx), eps) * maximum(sqrt(yy), eps)), *products)


@door
@composite
def pairwise_distance(x: Tensor, y: Tensor, *, eps: float = 1e-6, name: str = "") -> Tensor:
    """The length of x - y + eps along the last axis."""
    square = formula("square", lambda a, b: (a - b + eps) * (a - b + eps), x, y)
    return formula("root", sqrt, fold(square, -1))


@door
@composite
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float = 1.0, reduction: Reduction = "mean",
    name: str = "",
) -> Tensor:  # fmt: skip
    """max(|a - p| - |a - n| + margin, 0), distances by `pairwise_distance`."""
    near, far = pairwise_distance(anchor, positive), pairwise_distance(anchor, negative)
    return _reduced(formula("triplet", lambda p, n: maximum(p - n + margin, 0), near, far), reduction)


@door
@composite
def cosine_embedding_loss(
    x: Tensor, y: Tensor, label: Tensor, *, margin: float = 0.0, reduction: Reduction = "mean", name: str = ""
) -> Tensor:
    """1 - cos(x, y) where the label is 1, max(cos(x, y) - margin, 0) where it is -1. x, y [n, d], label [n]."""
    cosine = cosine_similarity(x, y, 1)
    each = formula("loss", lambda c, t: where(t == 1, 1 - c, maximum(c - margin, 0)), cosine, label)
    return _reduced(each, reduction)
