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
from .scalar import Const, Expr


@dataclass(frozen=True)
class Function:
    """A scalar function.

    result       how the dtype follows from the arguments'. ``same``: their promotion; ``bool``: a truth value;
                 ``float``: the promotion, f32 if that is no float; ``branch``: that of all arguments but the first;
                 ``int64``: an integer
    numpy        the body on arrays of the compute type, ``f(*args, out=array)``, as "module:name"
    cuda         the body in CUDA C++ on values of the compute type, a template of the arguments' texts
    cuda_quick   another, in f32, right to what a 16-bit result shows
    exact        whether the result has the same bits wherever it is computed: rounded correctly, or by its definition
    flops        the cost that is charged for one point
    symbol       Python's operator for it
    matrix       its part in what matrix units compute, a ``sum`` of ``product``s
    natural      the argument that may not be negative where the others are integers
    integers     whether it works on integers alone
    strict       whether some arguments are an error, so that it is computed where it stands and nowhere else
    truths       ``yes``: works on truth values; ``only``: on nothing else; otherwise the operator to use instead, or
                 "cast" where there is none
    cuda_into    what makes an integer in memory, by its address, the function of itself and another, at once among all
                 threads; None where it hangs on their order, or nothing does
    derivative   the partial derivatives as expressions of the arguments a, b, c (see `derivatives.partials`); None
                 where it is no function of real numbers
    """

    name: str
    arity: int
    numpy: str
    cuda: str
    result: Literal["same", "bool", "float", "branch", "int64"] = "same"
    flops: int = 1
    symbol: str = ""
    truths: Literal["yes", "only", "cast", "|", "&", "!=", "~"] = "yes"
    cuda_quick: str | None = None
    cuda_into: str | None = None
    exact: bool = True
    derivative: tuple[Expr, ...] | None = None
    matrix: Literal["sum", "product", ""] = ""
    natural: int | None = None
    strict: bool = False
    integers: bool = False

    @property
    def fixed(self) -> str | None:
        """The dtype of its result where that is the same for all arguments."""
        return self.result if self.result in ("bool", "int64") else None

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


_BODIES, _RANDOM = "tapestry.expr.numpy_bodies", "tapestry.expr.random_bodies"
PAIR = "pair"

for _function in (
    Function(
        "add", 2, "numpy:add", "add({0}, {1})",
        symbol="+", truths="|", derivative=d.ADD, matrix="sum", cuda_into="add_into({0}, {1})",
    ),
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
    # Two values side by side, for monoids that fold pairs; by itself it is the first.
    Function(PAIR, 2, f"{_BODIES}:first", "((void)({1}), {0})", flops=0, derivative=(Const(1), Const(0))),
    Function("minimum", 2, "numpy:minimum", "minimum({0}, {1})", derivative=d.MINIMUM),
    Function("maximum", 2, "numpy:maximum", "maximum({0}, {1})", derivative=d.MAXIMUM),
    Function("within", 2, f"{_BODIES}:within", "within({0}, {1})", truths="cast", strict=True),
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
    Function("round", 1, "numpy:rint", "rounded_to_even({0})", "float", derivative=d.FLAT),
    Function("trunc", 1, "numpy:trunc", "truncated_to_zero({0})", "float", derivative=d.FLAT),
    Function("fmod", 2, "numpy:fmod", "rest({0}, {1})", flops=4, truths="cast", derivative=d.FMOD),
    Function(
        "exp", 1, "numpy:exp", "exponential({0})", "float", 8,
        cuda_quick="quick_exponential({0})", exact=False, derivative=d.EXP,
    ),
    Function("log", 1, "numpy:log", "logarithm({0})", "float", 8, exact=False, derivative=d.LOG),
    Function("exp2", 1, "numpy:exp2", "exponential_2({0})", "float", 8, exact=False, derivative=d.EXP2),
    Function("expm1", 1, "numpy:expm1", "exponential_minus_1({0})", "float", 12, exact=False, derivative=d.EXP),
    Function("log2", 1, "numpy:log2", "logarithm_2({0})", "float", 8, exact=False, derivative=d.LOG2),
    Function("log10", 1, "numpy:log10", "logarithm_10({0})", "float", 8, exact=False, derivative=d.LOG10),
    Function("log1p", 1, "numpy:log1p", "logarithm_of_1_plus({0})", "float", 12, exact=False, derivative=d.LOG1P),
    Function("cbrt", 1, "numpy:cbrt", "cube_root({0})", "float", 12, exact=False, derivative=d.CBRT),
    Function("sqrt", 1, "numpy:sqrt", "square_root({0})", "float", 4, derivative=d.SQRT),
    Function(
        "rsqrt", 1, f"{_BODIES}:rsqrt", "reciprocal_root({0})", "float", 4, exact=False, derivative=d.RSQRT
    ),
    Function("sin", 1, "numpy:sin", "sine({0})", "float", 8, exact=False, derivative=d.SIN),
    Function("cos", 1, "numpy:cos", "cosine({0})", "float", 8, exact=False, derivative=d.COS),
    Function("tan", 1, "numpy:tan", "tangent({0})", "float", 12, exact=False, derivative=d.TAN),
    Function("asin", 1, "numpy:arcsin", "arc_sine({0})", "float", 12, exact=False, derivative=d.ASIN),
    Function("acos", 1, "numpy:arccos", "arc_cosine({0})", "float", 12, exact=False, derivative=d.ACOS),
    Function("atan", 1, "numpy:arctan", "arc_tangent({0})", "float", 12, exact=False, derivative=d.ATAN),
    Function("atan2", 2, "numpy:arctan2", "arc_tangent({0}, {1})", "float", 16, exact=False, derivative=d.ATAN2),
    Function("sinh", 1, "numpy:sinh", "hyperbolic_sine({0})", "float", 12, exact=False, derivative=d.SINH),
    Function("cosh", 1, "numpy:cosh", "hyperbolic_cosine({0})", "float", 12, exact=False, derivative=d.COSH),
    Function("asinh", 1, "numpy:arcsinh", "area_sine({0})", "float", 16, exact=False, derivative=d.ASINH),
    Function("acosh", 1, "numpy:arccosh", "area_cosine({0})", "float", 16, exact=False, derivative=d.ACOSH),
    Function("atanh", 1, "numpy:arctanh", "area_tangent({0})", "float", 16, exact=False, derivative=d.ATANH),
    Function(
        "tanh", 1, "numpy:tanh", "hyperbolic_tangent({0})", "float", 12,
        cuda_quick="quick_hyperbolic_tangent({0})", exact=False, derivative=d.TANH,
    ),
    Function("erf", 1, "scipy.special:erf", "error_function({0})", "float", 12, exact=False, derivative=d.ERF),
    Function(
        "erfc", 1, "scipy.special:erfc", "complementary_error_function({0})", "float", 12,
        exact=False, derivative=d.ERFC,
    ),
    Function("bitwise_and", 2, "numpy:bitwise_and", "{0} & {1}", truths="&", integers=True),
    Function("bitwise_or", 2, "numpy:bitwise_or", "{0} | {1}", truths="|", integers=True),
    Function("bitwise_xor", 2, "numpy:bitwise_xor", "{0} ^ {1}", symbol="^", truths="!=", integers=True),
    Function("bitwise_not", 1, "numpy:invert", "~{0}", truths="~", integers=True),
    Function("left_shift", 2, "numpy:left_shift", "left_shift({0}, {1})", symbol="<<", truths="cast", integers=True),
    Function("right_shift", 2, "numpy:right_shift", "right_shift({0}, {1})", symbol=">>", truths="cast", integers=True),
    Function("philox", 3, f"{_RANDOM}:philox", "philox({0}, {1}, {2})", flops=120, truths="cast", integers=True),
    Function("ordered", 1, f"{_BODIES}:ordered", "ordered({0})", "int64", 6, truths="cast"),
    Function(
        "normal_quantile", 1, f"{_RANDOM}:normal_quantile", "normal_quantile({0})", "float", 60,
        derivative=d.NORMAL_QUANTILE,
    ),
    Function(
        "sigmoid", 1, "scipy.special:expit", "sigmoid({0})", "float", 10,
        cuda_quick="quick_sigmoid({0})", exact=False, derivative=d.SIGMOID,
    ),
):  # fmt: skip
    add_function(_function)
