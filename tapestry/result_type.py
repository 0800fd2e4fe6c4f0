"""Dtype rules: what an expression yields, and which combinations mean nothing.

- Operands promote to the highest of bool < int8 < int32 < int64 < bf16 < f16 < f32 < f64; bf16 with f16 gives f32.
- Python numbers and constants are weak: they take the other operands' dtype, except that a float turns integers into
  f32 and an integer turns bool into int32. Alone, a float is f32 and an integer int32.
- Division and functions such as exp give floats: f32 from integers. Comparisons and logic give bool.
- sum and prod of bool and int8 accumulate in int32; all other reductions keep the dtype.
- A value is written as any float if it is a float, as any number if it is an integer or bool; narrowing a float to an
  integer, or anything to bool, takes a cast.
"""

from __future__ import annotations

from collections.abc import Mapping

from .dtypes import DTYPES, promote
from .errors import UsageError
from .expr import FUNCTIONS, Call, Cast, Const, Expr, IndexValue, Read

Typed = tuple[str, bool]  # dtype, weak

_LOGIC = {"logical_and", "logical_or", "logical_not"}
_BOOL_FREE = {
    "add": "|", "multiply": "&", "subtract": "!=", "negative": "~", "floor_divide": "astype", "remainder": "astype",
    "power": "astype", "abs": "astype", "sign": "astype",
}  # fmt: skip


def result_dtype(expr: Expr, dtypes: Mapping[str, str]) -> str:
    """The dtype of an expression over tensors of the given dtypes. UsageError where a combination means nothing."""
    return typed(expr, dtypes)[0]


def typed(expr: Expr, dtypes: Mapping[str, str]) -> Typed:
    """The dtype of an expression, and whether it is weak (made of constants only)."""
    if isinstance(expr, Const):
        return _constant(expr.value), True
    if isinstance(expr, Read):
        return dtypes[expr.tensor], False
    if isinstance(expr, IndexValue):
        return "int64", False
    if isinstance(expr, Cast):
        typed(expr.arg, dtypes)
        return expr.dtype, False
    if isinstance(expr, Call):
        return _call(expr.function, [typed(arg, dtypes) for arg in expr.args])
    return "bool", False


def _constant(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int32" if isinstance(value, int) else "f32"


def join(args: list[Typed]) -> Typed:
    """Promotion with weak constants."""
    strong = [name for name, weak in args if not weak]
    if not strong:
        return promote(*(name for name, _ in args)), True
    result = promote(*strong)
    for name in (name for name, weak in args if weak):
        if _kind_rank(name) > _kind_rank(result):
            result = name
    return result, False


def _kind_rank(name: str) -> int:
    return ("bool", "int", "float").index(DTYPES[name].kind)


def _call(function: str, args: list[Typed]) -> Typed:
    kinds = [DTYPES[name].kind for name, _ in args]
    if function in _LOGIC and set(kinds) != {"bool"}:
        raise _meaningless(function, args, "compare first, or cast: x.astype('bool')")
    if function == "where" and kinds[0] != "bool":
        raise _meaningless(function, args, "the condition must be bool")
    if function in _BOOL_FREE and set(kinds) == {"bool"}:
        other = _BOOL_FREE[function]
        raise _meaningless(
            function, args, "cast: x.astype('int32')" + ("" if other == "astype" else f", or use {other}")
        )
    rule = FUNCTIONS[function].result
    if rule == "bool":
        return "bool", False
    name, weak = join(args[1:] if rule == "branch" else args)
    if rule == "float" and DTYPES[name].kind != "float":
        return "f32", weak
    return name, weak


def _meaningless(function: str, args: list[Typed], hint: str) -> UsageError:
    listed = ", ".join(name for name, _ in args)
    return UsageError(f"{function} has no meaning for ({listed})", hint=hint)


def reduced_dtype(monoid: str, name: str) -> str:
    """The dtype in which a reduction's result is stored unless declared. UsageError for any/all of numbers."""
    if monoid in ("any", "all") and name != "bool":
        raise UsageError(f"{monoid} has no meaning for {name}", hint="compare first: tp.any(x != 0)")
    return "int32" if monoid in ("sum", "prod") and name in ("bool", "int8") else name


def may_store(value: str, target: str) -> bool:
    """Whether a value of dtype ``value`` may be written to a tensor of dtype ``target`` without a cast."""
    return _kind_rank(value) <= _kind_rank(target) and (target != "bool" or value == "bool")
