"""Derivatives of the scalar functions, as expressions of their arguments a, b and c.

Where a function has a corner the derivative is that of one side (maximum and minimum: of the argument that is chosen,
the second of equal ones, so that relu has 0 at 0; abs at 0: 0); where it jumps, 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .scalar import Call, Const, Expr, Read, rewrite

if TYPE_CHECKING:
    from .functions import Function

Partials = tuple[Expr, ...]

A, B = Read("a", ()), Read("b", ())
ZERO, ONE = Const(0), Const(1)


def partials(function: Function, *args: Expr) -> Partials | None:
    """The derivative along each argument at these arguments; None where the function is not one of real numbers."""
    named = dict(zip("abc", args, strict=False))

    def leaf(node: Expr) -> Expr:
        return named[node.tensor] if isinstance(node, Read) else node

    return None if function.derivative is None else tuple(rewrite(part, leaf) for part in function.derivative)


def call(function: str, *args: Expr) -> Call:
    """A function of the table, applied."""
    return Call(function, args)


def _times(a: Expr, b: Expr) -> Expr:
    return call("multiply", a, b)


def _over(a: Expr, b: Expr) -> Expr:
    return call("divide", a, b)


def _minus(a: Expr) -> Expr:
    return call("negative", a)


def _chosen(first: Expr) -> Partials:
    return call("where", first, ONE, ZERO), call("where", first, ZERO, ONE)


def _power() -> Partials:
    """b a**(b - 1) and a**b log a; the second only where a > 0."""
    logarithm = call("where", call("greater", A, ZERO), call("log", A), Const(0.0))
    lower = call("power", A, call("subtract", B, ONE))
    return _times(B, lower), _times(call("power", A, B), logarithm)


def _square(a: Expr) -> Expr:
    return _times(a, a)


def _one_over_root(a: Expr) -> Expr:
    return call("rsqrt", a)


def _plus(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def _less(a: Expr, b: Expr) -> Expr:
    return call("subtract", a, b)


FLAT: Partials = (ZERO,)
FLAT2: Partials = (ZERO, ZERO)
ADD: Partials = (ONE, ONE)
SUBTRACT: Partials = (ONE, Const(-1))
MULTIPLY: Partials = (B, A)
DIVIDE: Partials = (_over(ONE, B), _minus(_over(A, _times(B, B))))
REMAINDER: Partials = (ONE, _minus(call("floor_divide", A, B)))
POWER: Partials = _power()
MINIMUM: Partials = _chosen(call("less", A, B))
MAXIMUM: Partials = _chosen(call("greater", A, B))
WHERE: Partials = (ZERO, *_chosen(A))
NEGATIVE: Partials = (Const(-1),)
ABS: Partials = (call("sign", A),)
EXP: Partials = (call("exp", A),)
LOG: Partials = (_over(ONE, A),)
SQRT: Partials = (_over(Const(0.5), call("sqrt", A)),)
RSQRT: Partials = (_over(_times(Const(-0.5), call("rsqrt", A)), A),)
SIN: Partials = (call("cos", A),)
COS: Partials = (_minus(call("sin", A)),)
TANH: Partials = (call("subtract", ONE, _times(call("tanh", A), call("tanh", A))),)
EXP2: Partials = (_times(Const(math.log(2)), call("exp2", A)),)
LOG2: Partials = (_over(Const(1 / math.log(2)), A),)
LOG10: Partials = (_over(Const(1 / math.log(10)), A),)
LOG1P: Partials = (_over(ONE, _plus(ONE, A)),)
CBRT: Partials = (_over(Const(1 / 3), _square(call("cbrt", A))),)
FMOD: Partials = (ONE, _minus(call("trunc", _over(A, B))))
TAN: Partials = (_plus(ONE, _square(call("tan", A))),)
ASIN: Partials = (_one_over_root(_less(ONE, _square(A))),)
ACOS: Partials = (_minus(_one_over_root(_less(ONE, _square(A)))),)
ATAN: Partials = (_over(ONE, _plus(ONE, _square(A))),)
ATAN2: Partials = (
    _over(B, _plus(_square(A), _square(B))),
    _minus(_over(A, _plus(_square(A), _square(B)))),
)
SINH: Partials = (call("cosh", A),)
COSH: Partials = (call("sinh", A),)
ASINH: Partials = (_one_over_root(_plus(_square(A), ONE)),)
ACOSH: Partials = (_times(_one_over_root(_less(A, ONE)), _one_over_root(_plus(A, ONE))),)
ATANH: Partials = (_over(ONE, _less(ONE, _square(A))),)
ERFC: Partials = (_times(Const(-2 / math.sqrt(math.pi)), call("exp", _minus(_square(A)))),)
ERF: Partials = (_times(Const(2 / math.sqrt(math.pi)), call("exp", _minus(_times(A, A)))),)
NORMAL_QUANTILE: Partials = (
    _times(Const(math.sqrt(2 * math.pi)), call("exp", _times(Const(0.5), _square(call("normal_quantile", A))))),
)
SIGMOID: Partials = (_times(call("sigmoid", A), call("subtract", ONE, call("sigmoid", A))),)


@dataclass(frozen=True)
class FoldDerivative:
    """The derivative of a fold's result y along one folded value x, as an expression of x, y and the helpers' results.

    ``helpers`` are further folds over the same points: a name, a monoid, and the value that is folded, of x and y.
    """

    partial: Expr
    helpers: tuple[tuple[str, str, Expr], ...] = ()


X, Y = Read("x", ()), Read("y", ())
_COUNT = ("n", "sum", Const(1.0))


def _helper(name: str) -> Read:
    return Read(name, ())


def _is(a: Expr, b: Expr, yes: Expr, no: Expr) -> Call:
    return call("where", call("equal", a, b), yes, no)


def _of_product() -> FoldDerivative:
    """The product of all others: y / x, but where x is 0 the product of the rest, if that has no other 0."""
    alone = _is(_helper("zeros"), ONE, _helper("rest"), Const(0.0))
    others = _is(_helper("zeros"), ZERO, _over(_helper("rest"), X), Const(0.0))
    helpers = (
        ("zeros", "sum", _is(X, ZERO, Const(1.0), Const(0.0))),
        ("rest", "prod", _is(X, ZERO, Const(1.0), X)),
    )
    return FoldDerivative(_is(X, ZERO, alone, others), helpers)


def _of_variance() -> FoldDerivative:
    """2 (x - mean) / n."""
    mean = _over(_helper("total"), _helper("n"))
    centred = _over(call("subtract", X, mean), _helper("n"))
    return FoldDerivative(_times(Const(2.0), centred), (_COUNT, ("total", "sum", X)))


SUMMED = FoldDerivative(ONE)
AVERAGED = FoldDerivative(_over(Const(1.0), _helper("n")), (_COUNT,))
VARIANCE = _of_variance()
PRODUCT = _of_product()
LOGSUMEXP = FoldDerivative(call("exp", call("subtract", X, Y)))
# Of the count, the mean and the sum of squared deviations.
MOMENTS = (
    FoldDerivative(Const(0.0)),
    FoldDerivative(_over(Const(1.0), Read("r.n", ()))),
    FoldDerivative(_times(Const(2.0), call("subtract", X, Read("r.mean", ())))),
)
# Equal ones share alike, as in torch's amax.
EXTREME = FoldDerivative(
    _is(X, Y, _over(Const(1.0), _helper("n")), Const(0.0)), (("n", "sum", _is(X, Y, Const(1.0), Const(0.0))),)
)
