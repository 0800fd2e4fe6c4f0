"""The scalar functions: one entry holds all that is true of each.

A function computes in its own type: that of its promoted arguments (`tapestry.result_type`), 16-bit floats in f32 and
integers in int64 (wrapping). Arithmetic in f32 and f64 is IEEE's, rounded after every function; results of 16-bit
floats and of narrow integers are rounded or wrapped where they are stored or cast, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from . import derivatives as d
from .scalar import Expr


@dataclass(frozen=True)
class Function:
    """A scalar function.

    result       how the dtype follows from the arguments'. ``same``: their promotion; ``bool``: a truth value;
                 ``float``: the promotion, f32 if that is no float; ``branch``: that of all arguments but the first
    numpy        the body on arrays of the compute type, ``f(*args, out=array)``, as "module:name"
    cuda         the body in CUDA C++ on values of the compute type, a template of the arguments' texts
    cuda_quick   another, in f32, right to what a 16-bit result shows
    exact        whether the result is the correctly rounded one of the exact value in every compute type
    flops        the cost that is charged for one point
    symbol       Python's operator for it
    matrix       its part in what matrix units compute, a ``sum`` of ``product``s
    natural      the argument that may not be negative where the others are integers
    truths       ``yes``: works on truth values; ``only``: on nothing else; otherwise the operator to use instead, or
                 "cast" where there is none
    derivative   the partial derivatives as expressions of the arguments a, b, c (see `derivatives.partials`); None
                 where it is no function of real numbers
    """

    name: str
    arity: int
    numpy: str
    cuda: str
    result: Literal["same", "bool", "float", "branch"] = "same"
    flops: int = 1
    symbol: str = ""
    truths: Literal["yes", "only", "cast", "|", "&", "!=", "~"] = "yes"
    cuda_quick: str | None = None
    exact: bool = True
    derivative: tuple[Expr, ...] | None = None
    matrix: Literal["sum", "product", ""] = ""
    natural: int | None = None

    @property
    def compute(self) -> Callable[..., Any]:
        """The NumPy body, imported when it is first asked for."""
        module, _, name = self.numpy.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found


FUNCTIONS: dict[str, Function] = {}


def add_function(function: Function) -> Function:
    """Add an entry to the table. ValueError for a name or an operator that is taken."""
    taken = [other.name for other in FUNCTIONS.values() if _same(other, function)]
    if taken:
        raise ValueError(f"the scalar function {function.name} or its operator is there already: {taken[0]}")
    FUNCTIONS[function.name] = function
    return function


def _same(a: Function, b: Function) -> bool:
    return a.name == b.name or (bool(a.symbol) and (a.symbol, a.arity) == (b.symbol, b.arity))


_BODIES = "tapestry.expr.numpy_bodies"

for _function in (
    Function("add", 2, "numpy:add", "add({0}, {1})", symbol="+", truths="|", derivative=d.ADD, matrix="sum"),
    Function("subtract", 2, "numpy:subtract", "subtract({0}, {1})", symbol="-", truths="!=", derivative=d.SUBTRACT),
    Function(
        "multiply", 2, "numpy:multiply", "multiply({0}, {1})",
        symbol="*", truths="&", derivative=d.MULTIPLY, matrix="product",
    ),
    Function(
        "divide", 2, "numpy:divide", "divide({0}, {1})", "float", 4, "/",
        cuda_quick="quick_divide({0}, {1})", derivative=d.DIVIDE,
    ),
    Function(
        "floor_divide", 2, "numpy:floor_divide", "floor_divide({0}, {1})",
        flops=4, symbol="//", truths="cast", exact=False, derivative=d.FLAT2,
    ),
    Function(
        "remainder", 2, "numpy:remainder", "remainder({0}, {1})",
        flops=4, symbol="%", truths="cast", exact=False, derivative=d.REMAINDER,
    ),
    Function(
        "power", 2, "numpy:power", "power({0}, {1})",
        flops=16, symbol="**", truths="cast", exact=False, derivative=d.POWER, natural=1,
    ),
    Function("minimum", 2, "numpy:minimum", "minimum({0}, {1})", derivative=d.MINIMUM),
    Function("maximum", 2, "numpy:maximum", "maximum({0}, {1})", derivative=d.MAXIMUM),
    Function("less", 2, "numpy:less", "{0} < {1}", "bool", symbol="<"),
    Function("less_equal", 2, "numpy:less_equal", "{0} <= {1}", "bool", symbol="<="),
    Function("greater", 2, "numpy:greater", "{0} > {1}", "bool", symbol=">"),
    Function("greater_equal", 2, "numpy:greater_equal", "{0} >= {1}", "bool", symbol=">="),
    Function("equal", 2, "numpy:equal", "{0} == {1}", "bool", symbol="=="),
    Function("not_equal", 2, "numpy:not_equal", "{0} != {1}", "bool", symbol="!="),
    Function("logical_and", 2, "numpy:logical_and", "{0} && {1}", "bool", symbol="&", truths="only"),
    Function("logical_or", 2, "numpy:logical_or", "{0} || {1}", "bool", symbol="|", truths="only"),
    Function("logical_not", 1, "numpy:logical_not", "!{0}", "bool", symbol="~", truths="only"),
    Function("where", 3, f"{_BODIES}:where", "{0} ? {1} : {2}", "branch", derivative=d.WHERE),
    Function("negative", 1, "numpy:negative", "negative({0})", symbol="-", truths="~", derivative=d.NEGATIVE),
    Function("abs", 1, "numpy:absolute", "absolute({0})", truths="cast", derivative=d.ABS),
    Function("sign", 1, "numpy:sign", "sign({0})", truths="cast", derivative=d.FLAT),
    Function("floor", 1, "numpy:floor", "floored({0})", "float", derivative=d.FLAT),
    Function("ceil", 1, "numpy:ceil", "ceiled({0})", "float", derivative=d.FLAT),
    Function(
        "exp", 1, "numpy:exp", "exponential({0})", "float", 8,
        cuda_quick="quick_exponential({0})", exact=False, derivative=d.EXP,
    ),
    Function("log", 1, "numpy:log", "logarithm({0})", "float", 8, exact=False, derivative=d.LOG),
    Function("sqrt", 1, "numpy:sqrt", "square_root({0})", "float", 4, derivative=d.SQRT),
    Function(
        "rsqrt", 1, f"{_BODIES}:rsqrt", "reciprocal_root({0})", "float", 4, exact=False, derivative=d.RSQRT
    ),
    Function("sin", 1, "numpy:sin", "sine({0})", "float", 8, exact=False, derivative=d.SIN),
    Function("cos", 1, "numpy:cos", "cosine({0})", "float", 8, exact=False, derivative=d.COS),
    Function(
        "tanh", 1, "numpy:tanh", "hyperbolic_tangent({0})", "float", 12,
        cuda_quick="quick_hyperbolic_tangent({0})", exact=False, derivative=d.TANH,
    ),
    Function("erf", 1, "scipy.special:erf", "error_function({0})", "float", 12, exact=False, derivative=d.ERF),
    Function(
        "sigmoid", 1, "scipy.special:expit", "sigmoid({0})", "float", 10,
        cuda_quick="quick_sigmoid({0})", exact=False, derivative=d.SIGMOID,
    ),
):  # fmt: skip
    add_function(_function)
