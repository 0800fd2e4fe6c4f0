"""One meaning of arithmetic: an expression with every conversion written out.

Each function computes in one type (`tapestry.result_type.compute_type`), and its arguments are converted to it. Here
these conversions become casts, so that whatever rewrites, fuses or compiles the expression later cannot change them:
constants that meet a tensor take its type, a choice between numbers converts its branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .dtypes import DTYPES
from .expr import FUNCTIONS, Call, Cast, Const, Expr, IndexValue, Read, children_first
from .result_type import Typed, call_type, compute_type


class _Part(NamedTuple):
    """An expression, its dtype and whether it is weak, and the type in which its value is at hand."""

    expr: Expr
    typed: Typed
    compute: str


def explicit(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    """An equal expression in which the arguments of every function are of the type it computes in.

    >>> print(explicit(Call("add", (Read("x", ()), Call("exp", (Read("n", ()),)))), {"x": "f64", "n": "int8"}))
    add(x[], f64(exp(f32(n[]))))
    """
    return _Explicit(dtypes).part(expr).expr


class _Explicit:
    """One pass over an expression; shared nodes stay shared."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self.dtypes = dtypes
        self._seen: dict[int, tuple[Expr, _Part]] = {}

    def part(self, expr: Expr) -> _Part:
        for node in children_first(expr, self._seen):
            self._seen[id(node)] = (node, self._part(node))
        return self._seen[id(expr)][1]

    def _part(self, expr: Expr) -> _Part:
        if isinstance(expr, Const):
            return _constant(expr)
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, Cast):
            return _Part(Cast(expr.dtype, self.part(expr.arg).expr), (expr.dtype, False), DTYPES[expr.dtype].compute)
        dtype = self.dtypes[expr.tensor] if isinstance(expr, Read) else "bool"
        dtype = "int64" if isinstance(expr, IndexValue) else dtype
        return _Part(expr, (dtype, False), DTYPES[dtype].compute)

    def _call(self, expr: Call) -> _Part:
        parts = [self.part(arg) for arg in expr.args]
        types = [part.typed for part in parts]
        typed, wanted = call_type(expr.function, types), compute_type(expr.function, types)
        branch = FUNCTIONS[expr.function].result == "branch"
        args = [part.expr if branch and k == 0 else _converted(part, wanted, branch) for k, part in enumerate(parts)]
        call = Call(expr.function, tuple(args))
        return _Part(call, typed, FUNCTIONS[expr.function].fixed or wanted)


def _constant(expr: Const) -> _Part:
    if isinstance(expr.value, bool):
        return _Part(expr, ("bool", True), "bool")
    return _Part(expr, ("int32", True), "int64") if isinstance(expr.value, int) else _Part(expr, ("f32", True), "f64")


def _converted(part: _Part, wanted: str, branch: bool) -> Expr:
    """The value in another compute type. A number on its own takes the type of what it stands beside anyway."""
    if part.compute == wanted:
        return part.expr
    if isinstance(part.expr, Const):
        return Cast(wanted, part.expr) if branch else part.expr
    if part.typed[1] and isinstance(part.expr, Call) and FUNCTIONS[part.expr.function].result == "branch":
        condition, *branches = part.expr.args
        return Call(part.expr.function, (condition, *(Cast(wanted, arg) for arg in branches)))
    return Cast(wanted, part.expr)
