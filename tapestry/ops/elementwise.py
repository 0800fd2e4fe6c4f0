"""Elementwise operations: one scalar expression over broadcast operands.

Shapes broadcast as NumPy's do: aligned on the right, extents 1 and missing axes repeated. In index notation the same
functions build expressions instead of operations. Dtypes follow `tapestry.result_type`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..dsl.caller import place, user_frame
from ..dsl.declare import axis_names
from ..dsl.door import door, spoken
from ..dsl.element import Element, assembled, combine, element, is_notation, number
from ..dsl.index import Index
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import current
from ..errors import UsageError
from ..expr import FUNCTIONS, Affine, Call, Cast, Const, Expr
from ..literals import python_number, stored
from ..program import Dim

Body = Callable[..., Expr]


class Elementwise:
    """A scalar function lifted to tensors. ``name=`` names the operation."""

    def __init__(self, name: str, body: Body, doc: str) -> None:
        self.__name__ = name
        self.__doc__ = doc
        self.body = body
        self.arity = FUNCTIONS[name].arity if name in FUNCTIONS else 1

    def __call__(self, *args: Any, name: str = "") -> Tensor:
        """The function of tensors that broadcast, and of numbers. UsageError for too few or too many of them."""
        if len(args) != self.arity:
            what = f"{self.__name__} takes {self.arity} argument{'s' * (self.arity > 1)}, {len(args)} are given"
            raise UsageError(what, where=place(user_frame()) or None, hint=f"tp.{self.__name__}: {self.__doc__}")
        if is_notation(*args):
            return _notation(self.body, args)
        return elementwise(self.__name__, self.body, *args, name=name)


def elementwise(function: str, body: Body, *args: Any, name: str = "") -> Tensor:
    """The operation ``out[i] = body(args[i]...)`` on broadcast tensors and numbers."""
    trace = current(function)
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if not tensors:
        raise UsageError(f"{function} needs a tensor", sides={"given": ", ".join(map(spoken, args))})
    shape = broadcast_shape(function, tensors)
    dims = tuple(Dim(axis, extent) for axis, extent in zip(_axes(tensors, len(shape)), shape, strict=True))
    index = tuple(Affine.dim(dim.name) for dim in dims)
    parts = [_at(arg, index) if isinstance(arg, Tensor) else Const(number(arg)) for arg in args]
    return trace.compute(function, dims, body(*parts), explicit=name)


def formula(function: str, build: Callable[..., Any], *args: Any, name: str = "") -> Tensor:
    """One elementwise operation of an expression that ``build`` writes with the operators of index notation.

    ``build`` gets the arguments as elements, and numbers as they are.
    """
    if is_notation(*args):
        return element(build(*args))

    def body(*parts: Expr) -> Expr:
        values = [Element(part) if isinstance(arg, Tensor) else arg for part, arg in zip(parts, args, strict=True)]
        return element(build(*values)).expr

    return elementwise(function, body, *args, name=name)


def broadcast_shape(function: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The common shape of tensors, aligned on the right. UsageError with both shapes where extents contradict."""
    rank = max(tensor.ndim for tensor in tensors)
    padded = [(1,) * (rank - tensor.ndim) + tensor.shape for tensor in tensors]
    shape = tuple(next((e for e in extents if e != 1), 1) for extents in zip(*padded, strict=True)) if rank else ()
    for tensor, extents in zip(tensors, padded, strict=True):
        if any(mine not in (1, common) for mine, common in zip(extents, shape, strict=True)):
            sides = {f"operand {k}": repr(t) for k, t in enumerate(tensors)}
            hint = "shapes are aligned on the right; use reshape, x[:, None] or tp.transpose"
            raise UsageError(f"{function}: {tensor!r} does not broadcast to {list(shape)}", sides=sides, hint=hint)
    return shape


def _axes(tensors: Sequence[Tensor], rank: int) -> tuple[str, ...]:
    """Axis names of the result: those of the operands, the first that is not of extent 1 deciding."""
    names = []
    for k in range(rank):
        mine = [(t.axes[k - rank + t.ndim], t.shape[k - rank + t.ndim]) for t in tensors if k - rank + t.ndim >= 0]
        names.append(next((axis for axis, extent in mine if extent != 1), mine[0][0]))
    return unique_names(tuple(names))


def _at(tensor: Tensor, index: tuple[Affine, ...]) -> Expr:
    own = index[len(index) - tensor.ndim :]
    return tensor.at(tuple(Affine.of(0) if extent == 1 else i for i, extent in zip(own, tensor.shape, strict=True)))


def _notation(body: Body, args: tuple[Any, ...]) -> Element:
    parts = [element(arg) for arg in args]
    return assembled(body(*(part.expr for part in parts)), parts)


def apply(function: str, *args: Any) -> Tensor:
    """A function of `tapestry.expr.FUNCTIONS`, elementwise or in index notation; Python's operators come here."""
    if is_notation(*args):
        return combine(function, *args)
    return elementwise(function, lambda *parts: Call(function, parts), *args)


def cast(x: Tensor | Index, dtype: str, *, name: str = "") -> Tensor:
    """Elementwise conversion: floats round to nearest, floats to integers truncate, numbers to bool compare with 0."""
    Tensor.check_dtype(dtype)
    if is_notation(x):
        return element(x).astype(dtype)
    return elementwise("cast", lambda a: Cast(dtype, a), x, name=name)


def _call(function: str, doc: str) -> Elementwise:
    return Elementwise(function, lambda *parts: Call(function, parts), doc)


def _add(a: Expr, b: Expr) -> Expr:
    return Call("add", (a, b))


def _mul(a: Expr, b: Expr) -> Expr:
    return Call("multiply", (a, b))


def _relu(x: Expr) -> Expr:
    return Call("maximum", (x, Const(0)))


def _silu(x: Expr) -> Expr:
    return _mul(x, Call("sigmoid", (x,)))


def _gelu(x: Expr) -> Expr:
    return _mul(_mul(Const(0.5), x), _add(Const(1.0), Call("erf", (_mul(x, Const(math.sqrt(0.5))),))))


def _gelu_tanh(x: Expr) -> Expr:
    cubic = _add(x, _mul(Const(0.044715), _mul(x, _mul(x, x))))
    return _mul(_mul(Const(0.5), x), _add(Const(1.0), Call("tanh", (_mul(Const(math.sqrt(2 / math.pi)), cubic),))))


add = _call("add", "a + b.")
subtract = _call("subtract", "a - b.")
multiply = _call("multiply", "a * b.")
divide = _call("divide", "a / b; f32 from integers.")
floor_divide = _call("floor_divide", "floor(a / b).")
remainder = _call("remainder", "a - b * floor(a / b), of b's sign.")
power = _call("power", "a ** b.")
minimum = _call("minimum", "The smaller of a and b.")
maximum = _call("maximum", "The larger of a and b.")
less = _call("less", "a < b.")
less_equal = _call("less_equal", "a <= b.")
greater = _call("greater", "a > b.")
greater_equal = _call("greater_equal", "a >= b.")
equal = _call("equal", "a == b.")
not_equal = _call("not_equal", "a != b.")
logical_and = _call("logical_and", "a and b, of bool.")
logical_or = _call("logical_or", "a or b, of bool.")
logical_not = _call("logical_not", "not a, of bool.")
where = _call("where", "a where the condition (bool) holds, b elsewhere.")
negative = _call("negative", "-x.")
abs = _call("abs", "|x|.")
sign = _call("sign", "-1, 0 or 1.")
floor = _call("floor", "The largest integer not above x.")
ceil = _call("ceil", "The smallest integer not below x.")
exp = _call("exp", "e ** x.")
log = _call("log", "Natural logarithm.")
sqrt = _call("sqrt", "Square root.")
rsqrt = _call("rsqrt", "1 / sqrt(x).")
round = _call("round", "The nearest integer, of two the even one.")
trunc = _call("trunc", "The nearest integer towards 0.")
fmod = _call("fmod", "a - b * trunc(a / b), of a's sign.")
exp2 = _call("exp2", "2 ** x.")
expm1 = _call("expm1", "exp(x) - 1, exactly rounded near 0.")
log2 = _call("log2", "Logarithm to base 2.")
log10 = _call("log10", "Logarithm to base 10.")
log1p = _call("log1p", "log(1 + x), exactly rounded near 0.")
cbrt = _call("cbrt", "Cube root.")
sin = _call("sin", "Sine.")
cos = _call("cos", "Cosine.")
tan = _call("tan", "Tangent.")
asin = _call("asin", "Inverse sine.")
acos = _call("acos", "Inverse cosine.")
atan = _call("atan", "Inverse tangent.")
atan2 = _call("atan2", "The angle of the point (b, a).")
sinh = _call("sinh", "Hyperbolic sine.")
cosh = _call("cosh", "Hyperbolic cosine.")
tanh = _call("tanh", "Hyperbolic tangent.")
asinh = _call("asinh", "Inverse hyperbolic sine.")
acosh = _call("acosh", "Inverse hyperbolic cosine.")
atanh = _call("atanh", "Inverse hyperbolic tangent.")
erf = _call("erf", "Error function.")
erfc = _call("erfc", "1 - erf(x).")
bitwise_and = _call("bitwise_and", "The bits that both have, of integers.")
bitwise_or = _call("bitwise_or", "The bits that either has, of integers.")
bitwise_xor = _call("bitwise_xor", "The bits that one has, of integers.")
bitwise_not = _call("bitwise_not", "The bits that x has not, of integers: -x - 1.")
left_shift = _call("left_shift", "a * 2**b, of integers; 0 for b below 0 or above 63.")
right_shift = _call("right_shift", "floor(a / 2**b), of integers; -1 or 0 for b below 0 or above 63.")
sigmoid = _call("sigmoid", "1 / (1 + exp(-x)).")
relu = Elementwise("relu", _relu, "max(x, 0).")
silu = Elementwise("silu", _silu, "x * sigmoid(x).")
_GELU = Elementwise("gelu", _gelu, "x * Phi(x).")
_GELU_TANH = Elementwise("gelu", _gelu_tanh, "tanh approximation of gelu.")


@door
def gelu(x: Tensor | Element | Index, *, approximate: str = "none", name: str = "") -> Tensor:
    """x * Phi(x), exactly ("none") or by tanh ("tanh"): Hendrycks and Gimpel, arXiv:1606.08415, section 2."""
    if approximate not in ("none", "tanh"):
        raise UsageError(f"gelu(approximate={approximate!r})", hint='"none" or "tanh"')
    return (_GELU if approximate == "none" else _GELU_TANH)(x, name=name)


@door
def full(shape: Sequence[int], value: Any, dtype: str, *, axes: Sequence[str] | None = None, name: str = "") -> Tensor:
    """A tensor filled with one number: exactly it, a float rounded once; UsageError where the dtype has no such one."""
    trace, number = current("full"), python_number(value)
    if number is None:
        raise UsageError(f"full: the value {spoken(value)} is not a number")
    dims = tuple(Dim(*axis) for axis in zip(axis_names("full", shape, axes), shape, strict=True))
    fill = Const(stored(number, Tensor.check_dtype(dtype)))
    return trace.compute("full", dims, fill, dtype=dtype, explicit=name)
