"""Dtype rules: what an expression yields, and which combinations mean nothing.

- Operands promote to a float if one is, else to an integer, and to the narrowest that holds all of that kind: bool,
  uint8, int8, uint16, int16, uint32, int32, int64; f8e4m3, f8e5m2, bf16, f16, f32, f64. So uint8 with int8 gives int16,
  bf16 with f16 f32, and the two floats of 8 bits bf16.
- Python numbers and constants are weak: they take the other operands' dtype, except that a float turns integers into
  f32 and an integer turns bool into int32. Alone, a float is f32 and an integer int32.
- Division and functions such as exp give floats: f32 from integers. Comparisons and logic give bool.
- sum and prod of bool and of integers below 32 bits give int32, means and logarithms of sums at least f32, positions
  int64; all other reductions keep the dtype.
- A value is written as any float if it is a float, as any number if it is an integer or bool; narrowing a float to an
  integer, or anything to bool, takes a cast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from .dtypes import DTYPES, promote
from .errors import UsageError
from .expr import FUNCTIONS, MONOIDS, Call, Cast, Const, Expr, IndexValue, Read, children_first

Typed = tuple[str, bool]  # dtype, weak


def result_dtype(expr: Expr, dtypes: Mapping[str, str]) -> str:
    """The dtype of an expression over tensors of the given dtypes. UsageError where a combination means nothing."""
    return Typing(dtypes).of(expr)[0]


class Typing:
    """The dtypes of expressions over tensors of the given dtypes, and of their parts; each call is typed once."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self.dtypes = dtypes
        self._calls: dict[int, tuple[Expr, Typed]] = {}  # by identity: to compare calls takes longer than to type them

    def of(self, expr: Expr) -> Typed:
        """The dtype of an expression, and whether it is weak (made of constants only)."""
        if isinstance(expr, Read):
            return self.dtypes[expr.tensor], False
        if isinstance(expr, Call):
            known = self._calls.get(id(expr))
            return self._typed(expr) if known is None else known[1]
        if isinstance(expr, Const):
            return _constant(expr.value), True
        if isinstance(expr, IndexValue):
            return "int64", False
        if isinstance(expr, Cast):
            self._typed(expr)
            return expr.dtype, False
        return "bool", False

    def _typed(self, expr: Expr) -> Typed:
        """The dtype of a call or a cast, what it is made of first: everything in it must have a meaning."""
        for node in children_first(expr, self._calls):
            if isinstance(node, Call):
                found = call_type(node.function, [self.of(arg) for arg in node.args])
            else:
                found = (node.dtype, False) if isinstance(node, Cast) else self.of(node)
            self._calls[id(node)] = node, found
        return self._calls[id(expr)][1]


def _constant(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int32" if isinstance(value, int) else "f32"


def join(args: Iterable[Typed]) -> Typed:
    """Promotion with weak constants."""
    return _joined(tuple(args))


@cache
def _joined(args: tuple[Typed, ...]) -> Typed:
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


def call_type(name: str, args: list[Typed]) -> Typed:
    """The dtype of a function's result, from its arguments'. UsageError where it has no meaning for them."""
    function = FUNCTIONS[name]
    kinds = [DTYPES[dtype].kind for dtype, _ in args]
    if function.truths == "only" and set(kinds) != {"bool"}:
        raise _meaningless(name, args, _logic_hint(name, kinds))
    if function.result == "branch" and kinds[0] != "bool":
        raise _meaningless(name, args, "the condition must be bool")
    if function.integers and "float" in kinds:
        raise _meaningless(name, args, "it works on the bits of integers; cast: x.astype('int32')")
    if function.truths not in ("yes", "only") and set(kinds) == {"bool"}:
        other = "" if function.truths == "cast" else f", or use {function.truths}"
        raise _meaningless(name, args, "cast: x.astype('int32')" + other)
    if function.fixed is not None:
        return function.fixed, False
    dtype, weak = join(args[1:] if function.result == "branch" else args)
    if function.result == "float" and DTYPES[dtype].kind != "float":
        return "f32", weak
    return dtype, weak


def _logic_hint(name: str, kinds: Sequence[str]) -> str:
    """What to write instead of logic of numbers: of integers it may be their bits that are meant."""
    bits = {"logical_and": "tp.bitwise_and", "logical_or": "tp.bitwise_or", "logical_not": "tp.bitwise_not"}.get(name)
    hint = "compare first, or cast: x.astype('bool')"
    return f"{hint}; for the bits of integers: {bits}" if bits and "float" not in kinds else hint


def compute_type(name: str, args: list[Typed]) -> str:
    """The type in which a function computes: that of its promoted arguments, 16-bit floats in f32, integers in int64.

    Constants alone compute as Python's numbers do, in f64 or int64; beside anything else they take the others' type.
    """
    function = FUNCTIONS[name]
    if function.truths == "only":
        return "bool"
    dtype, weak = join(args[1:] if function.result == "branch" else args)
    compute = DTYPES[dtype].compute
    if compute == "f32" and weak:
        return "f64"
    if function.result == "float" and compute not in ("f32", "f64"):
        return "f64" if weak else "f32"
    return "int64" if function.result in ("same", "bool") and compute == "bool" else compute


def _meaningless(function: str, args: list[Typed], hint: str) -> UsageError:
    listed = ", ".join(name for name, _ in args)
    return UsageError(f"{function} has no meaning for ({listed})", hint=hint)


def reduced_dtype(monoid: str, name: str) -> str:
    """The dtype in which a reduction's result is stored unless declared. UsageError for a fold of truth of numbers."""
    rule = MONOIDS[monoid].result
    if rule == "truth" and name != "bool":
        raise UsageError(f"{monoid} has no meaning for {name}", hint=f"compare first: tp.{monoid}(x != 0)")
    if rule == "position":
        return "int64"
    if rule == "float":
        return name if DTYPES[name].kind == "float" else "f32"
    short = DTYPES[name].kind != "float" and DTYPES[name].bytes < 4
    return "int32" if rule == "counted" and short else name


def may_store(value: str, target: str) -> bool:
    """Whether a value of dtype ``value`` may be written to a tensor of dtype ``target`` without a cast."""
    return _kind_rank(value) <= _kind_rank(target) and (target != "bool" or value == "bool")
