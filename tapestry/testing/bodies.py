"""Scalar expressions of generated operations.

Float expressions map [-1, 1] into [-1, 1] and move no more than their operands do (the sum of their partial derivatives
is at most 1 in magnitude), so that rounding errors add up along a program and never blow up. Nothing discontinuous is
ever asked of a computed float: comparisons, floors and signs see integers only.
"""

from __future__ import annotations

from collections.abc import Callable

from ..expr import Affine, Bound, Call, Const, Expr, IndexValue, Inside
from .choices import Choices
from .operands import Operand


def call(name: str, *args: Expr | float | int) -> Expr:
    return Call(name, tuple(Const(arg) if isinstance(arg, int | float) else arg for arg in args))


Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]

FLOAT_UNARY: tuple[Unary, ...] = (
    lambda x: call("negative", x),
    lambda x: call("abs", x),
    lambda x: call("tanh", x),
    lambda x: call("sigmoid", x),
    lambda x: call("sin", x),
    lambda x: call("cos", x),
    lambda x: call("erf", call("multiply", x, 0.5)),
    lambda x: call("exp", call("subtract", x, 1.0)),
    lambda x: call("multiply", call("log", call("add", x, 2.0)), 0.5),
    lambda x: call("subtract", call("sqrt", call("add", call("multiply", x, x), 1.0)), 1.0),
    lambda x: call("rsqrt", call("add", call("multiply", x, x), 1.0)),
    lambda x: call("multiply", call("power", x, 2), 0.5),
    lambda x: call("maximum", x, 0.0),
)
FLOAT_BINARY: tuple[Binary, ...] = (
    lambda x, y: call("multiply", call("add", x, y), 0.5),
    lambda x, y: call("multiply", call("subtract", x, y), 0.5),
    lambda x, y: call("multiply", call("multiply", x, y), 0.5),
    lambda x, y: call("maximum", x, y),
    lambda x, y: call("minimum", x, y),
    lambda x, y: call("divide", x, call("add", call("abs", y), 2.0)),
)
INT_UNARY: tuple[Unary, ...] = (
    lambda x: call("negative", x),
    lambda x: call("abs", x),
    lambda x: call("sign", x),
    lambda x: call("multiply", x, x),
    lambda x: call("floor_divide", x, 3),
    lambda x: call("remainder", x, -5),
    lambda x: call("power", x, 2),
)
INT_BINARY: tuple[Binary, ...] = (
    lambda x, y: call("add", x, y),
    lambda x, y: call("subtract", x, y),
    lambda x, y: call("multiply", x, y),
    lambda x, y: call("minimum", x, y),
    lambda x, y: call("maximum", x, y),
    lambda x, y: call("floor_divide", x, call("add", call("remainder", y, 4), 1)),
    lambda x, y: call("remainder", x, call("subtract", call("negative", call("remainder", y, 3)), 1)),
)
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


def number(ch: Choices, x: Operand, index: tuple[Affine, ...], kind: str) -> Expr:
    """An operand's element as a float in [-1, 1], an integer or a truth value. Floats become nothing but floats."""
    element = x.at(index)
    if kind == "float":
        return _as_float(x, element)
    if kind == "bool":
        return element if x.kind == "bool" else call(ch.pick(COMPARISONS), element, ch.integer(-1, 1))
    return element if x.kind == "int" else call("where", element, 3, -2)


def _as_float(x: Operand, element: Expr) -> Expr:
    if x.kind == "int":
        return call("divide", call("remainder", element, 5), 4)
    if x.kind == "bool":
        return call("where", element, 0.75, -0.5)
    return call("multiply", element, 1 / x.bound) if x.bound > 1 else element


def joined(ch: Choices, x: Expr, y: Expr, kind: str) -> Expr:
    """Two expressions of a kind as one."""
    if kind == "float":
        return ch.pick(FLOAT_BINARY)(x, y)
    if kind == "int":
        return ch.pick(INT_BINARY)(x, y)
    return call(ch.pick(("logical_and", "logical_or", "equal", "not_equal")), x, y)


def changed(ch: Choices, x: Expr, kind: str) -> Expr:
    """An expression of a kind under some function."""
    if kind == "float":
        return ch.pick(FLOAT_UNARY)(x)
    return ch.pick(INT_UNARY)(x) if kind == "int" else call("logical_not", x)


def chosen(ch: Choices, index: tuple[Affine, ...], extents: tuple[int, ...], x: Expr, y: Expr, kind: str) -> Expr:
    """x or y by a condition on the index: a box, or the parity of an index sum."""
    if not index:
        return joined(ch, x, y, kind)
    axis = ch.integer(0, len(index) - 1)
    low, high = ch.integer(-1, extents[axis]), ch.integer(0, extents[axis] + 1)
    if ch.chance(50):
        return call("where", Inside((Bound(index[axis], low, high),)), x, y)
    even = call("equal", call("remainder", IndexValue(sum(index, Affine())), 2), 0)
    return call("where", even, x, y)
