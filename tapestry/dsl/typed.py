"""Bodies of operations, simplified over their ranges without a change of what any part of them computes in.

A choice that the ranges decide has the type of both branches, and a read that is never inside that of its tensor. What
takes their place keeps that type: else it would depend on an extent in which type the expression around it computes.
"""

from __future__ import annotations

from ..dtypes import extreme
from ..expr import FUNCTIONS, Call, Cast, Const, Expr, Read
from ..expr.simplify import Ranges, Simplifier
from ..result_type import Typing


def simplified(body: Expr, ranges: Ranges, typing: Typing) -> Expr:
    """The body with every index, guard and condition simplified, each of its parts of the type that it had."""
    return _Typed(ranges, typing).expr(body)


class _Typed(Simplifier):
    def __init__(self, ranges: Ranges, typing: Typing) -> None:
        super().__init__(ranges, names=True)
        self.typing = typing

    def missed(self, read: Read) -> Expr:
        return Cast(self.typing.dtypes[read.tensor], Const(read.fill))

    def called(self, call: Call) -> Expr:
        condition = call.args[0]
        if FUNCTIONS[call.function].result != "branch" or not isinstance(condition, Const):
            return call
        taken = call.args[1 if condition.value else 2]
        dtype, weak = wanted = self.typing.of(call)
        if self.typing.of(taken) == wanted:
            return taken
        nothing = Const(extreme(dtype, 0))
        other = nothing if weak else Cast(dtype, nothing)
        return Call(call.function, (Const(True), taken, other))
