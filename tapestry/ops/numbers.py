"""Elementwise operations that others make up: ranges of values, squares, tests for numbers."""

from __future__ import annotations

import math

from ..dsl.door import door
from ..dsl.element import Element
from ..dsl.index import Index
from ..dsl.tensor import Tensor
from ..errors import UsageError
from .elementwise import abs as absolute
from .elementwise import exp, formula, log1p, log2, maximum, minimum, sqrt, trunc, where

Operand = Tensor | Element | Index
Value = Tensor | Element | Index | float | int


@door
def clip(x: Operand, low: Value | None = None, high: Value | None = None, *, name: str = "") -> Tensor:
    """x, but not below ``low`` nor above ``high``: minimum(maximum(x, low), high). UsageError where both are None."""
    if low is None and high is None:
        raise UsageError("clip has neither a lower nor an upper end", hint="tp.clip(x, 0, 1)")
    if low is None:
        return formula("clip", minimum, x, high, name=name)
    if high is None:
        return formula("clip", maximum, x, low, name=name)
    return formula("clip", lambda x, low, high: minimum(maximum(x, low), high), x, low, high, name=name)


@door
def square(x: Operand, *, name: str = "") -> Tensor:
    """x * x."""
    return formula("square", lambda x: x * x, x, name=name)


@door
def reciprocal(x: Operand, *, name: str = "") -> Tensor:
    """1 / x."""
    return formula("reciprocal", lambda x: 1 / x, x, name=name)


@door
def frac(x: Operand, *, name: str = "") -> Tensor:
    """x - trunc(x)."""
    return formula("frac", lambda x: x - trunc(x), x, name=name)


@door
def hypot(a: Operand, b: Value, *, name: str = "") -> Tensor:
    """sqrt(a² + b²); unlike NumPy's it overflows where a square does."""
    return formula("hypot", lambda a, b: sqrt(a * a + b * b), a, b, name=name)


@door
def deg2rad(x: Operand, *, name: str = "") -> Tensor:
    """x * pi / 180."""
    return formula("deg2rad", lambda x: x * (math.pi / 180), x, name=name)


@door
def rad2deg(x: Operand, *, name: str = "") -> Tensor:
    """x * 180 / pi."""
    return formula("rad2deg", lambda x: x * (180 / math.pi), x, name=name)


@door
def logaddexp(a: Operand, b: Value, *, name: str = "") -> Tensor:
    """log(exp(a) + exp(b)), without overflowing for finite a and b."""
    return formula("logaddexp", lambda a, b: maximum(a, b) + log1p(exp(-absolute(a - b))), a, b, name=name)


@door
def logaddexp2(a: Operand, b: Value, *, name: str = "") -> Tensor:
    """log2(2**a + 2**b)."""
    return formula("logaddexp2", lambda a, b: maximum(a, b) + log2(1 + 2.0 ** (-absolute(a - b))), a, b, name=name)


@door
def heaviside(x: Operand, at_zero: Value, *, name: str = "") -> Tensor:
    """0 below 0, 1 above, ``at_zero`` at 0; NaN stays NaN."""
    return formula(
        "heaviside", lambda x, h: where(x > 0, 1.0, where(x < 0, 0.0, where(x == 0, h, x))), x, at_zero, name=name
    )


@door
def isnan(x: Operand, *, name: str = "") -> Tensor:
    """Whether x is no number."""
    return formula("isnan", lambda x: x != x, x, name=name)


@door
def isinf(x: Operand, *, name: str = "") -> Tensor:
    """Whether x is infinite."""
    return formula("isinf", lambda x: absolute(x) == math.inf, x, name=name)


@door
def isfinite(x: Operand, *, name: str = "") -> Tensor:
    """Whether x is a number and finite."""
    return formula("isfinite", lambda x: absolute(x) < math.inf, x, name=name)


@door
def isclose(a: Operand, b: Value, *, rtol: float = 1e-5, atol: float = 1e-8, name: str = "") -> Tensor:
    """|a - b| <= atol + rtol |b|, or a == b."""
    return formula("isclose", lambda a, b: (absolute(a - b) <= atol + rtol * absolute(b)) | (a == b), a, b, name=name)


@door
def lerp(a: Operand, b: Value, weight: Value, *, name: str = "") -> Tensor:
    """a + weight (b - a)."""
    return formula("lerp", lambda a, b, w: a + w * (b - a), a, b, weight, name=name)


@door
def nan_to_num(x: Operand, nan: float = 0.0, *, name: str = "") -> Tensor:
    """x, or ``nan`` where it is no number; infinities stay."""
    return formula("nan_to_num", lambda x: where(x != x, nan, x), x, name=name)
