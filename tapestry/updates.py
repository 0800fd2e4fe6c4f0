"""Updates: maps that give a tensor's own elements back, but for those at which a condition holds.

    y[s, g] = new[s - at, g] if 0 <= s - at < 1 else x[s, g]

Where the result lies in the place of ``x``, nothing has to be stored at the other points. A condition that says of an
index that it lies within so many of a value which the program computes (a window) names the few points that count:
evaluators go to these and to no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import inf

from .expr import Affine, Call, Const, Expr, IndexValue, Read, depends_on

# What a comparison of a difference with 0 says of it: the least and the greatest that it may be.
_ENDS = {
    "greater_equal": (0, inf), "greater": (1, inf), "less_equal": (-inf, 0), "less": (-inf, -1), "equal": (0, 0),
}  # fmt: skip

Whole = Callable[[Expr], bool]  # whether an expression is an integer


@dataclass(frozen=True)
class Window:
    """Of the values of a dimension only ``size`` count, ``first`` and those that follow; they may lie outside of it.

    ``first`` is an integer that depends neither on the dimension nor on any that has a window too.
    """

    dim: str
    first: Expr
    size: int


@dataclass(frozen=True)
class Update:
    """``value`` where all conditions hold, which is in the windows if anywhere; what was there elsewhere."""

    conditions: tuple[Expr, ...]
    value: Expr
    windows: tuple[Window, ...]


def update_of(body: Expr, old: Read, dims: Collection[str], whole: Whole) -> Update | None:
    """A body as an update of an element that it reads; None where it is none.

    ``dims`` are those that may have windows, ``whole`` says which expressions are integers.
    """
    conditions: list[Expr] = []
    while isinstance(body, Call) and body.function == "where" and body.args[2] == old:
        conditions += _conjuncts(body.args[0])
        body = body.args[1]
    if not conditions:
        return None
    return Update(tuple(conditions), body, tuple(_windows(conditions, dims, whole)))


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Call) and condition.function == "logical_and":
        for arg in condition.args:
            yield from _conjuncts(arg)
    else:
        yield condition


@dataclass(frozen=True)
class Sum:
    """An affine index, and so many times each of some integers that the program computes."""

    index: Affine
    values: tuple[tuple[Expr, int], ...]

    def plus(self, other: Sum, factor: int) -> Sum:
        values = dict(self.values)
        for value, count in other.values:
            values[value] = values.get(value, 0) + factor * count
        return Sum(self.index + other.index * factor, tuple((v, n) for v, n in values.items() if n))

    def times(self, factor: int) -> Sum:
        return Sum(Affine(), ()).plus(self, factor)


def _sum(expr: Expr, whole: Whole) -> Sum | None:
    """An integer expression taken apart; None for what is no integer."""
    if isinstance(expr, Const):
        return Sum(Affine.of(expr.value), ()) if type(expr.value) is int else None
    if isinstance(expr, IndexValue):
        return Sum(expr.index, ())
    if isinstance(expr, Call) and expr.function in ("add", "subtract"):
        a, b = (_sum(arg, whole) for arg in expr.args)
        return None if a is None or b is None else a.plus(b, 1 if expr.function == "add" else -1)
    return Sum(Affine(), ((expr, 1),)) if whole(expr) else None


def _windows(conditions: Collection[Expr], dims: Collection[str], whole: Whole) -> Iterator[Window]:
    """For each dimension at most one, of two conditions or an equality."""
    ends: dict[tuple[str, Sum], tuple[float, float]] = {}
    for dim, rest, least, most in (found for part in conditions for found in bounds_of(part, dims, whole)):
        constant = rest.index.const
        key = dim, replace(rest, index=rest.index - constant)
        before = ends.get(key, (-inf, inf))
        ends[key] = max(before[0], least - constant), min(before[1], most - constant)
    taken = set[str]()
    used = set[str]()
    for (dim, rest), (least, most) in ends.items():
        if dim in taken | used or least == -inf or most == inf:
            continue
        first = _written(rest.times(-1), int(least))
        needed = depends_on(first)
        if not needed & (taken | {dim}):
            taken.add(dim)
            used |= needed
            yield Window(dim, first, max(0, int(most - least) + 1))


def bounds_of(condition: Expr, dims: Collection[str], whole: Whole) -> Iterator[tuple[str, Sum, float, float]]:
    """What a comparison says of dimensions: of dim + rest, the least and the greatest that it may be."""
    if not isinstance(condition, Call) or condition.function not in _ENDS:
        return
    a, b = (_sum(arg, whole) for arg in condition.args)
    if a is None or b is None:
        return
    least, most = _ENDS[condition.function]
    difference = a.plus(b, -1)
    for dim in sorted({*dims} & difference.index.dims):
        factor = difference.index.coefficient(dim)
        if abs(factor) == 1:
            rest = difference.times(factor)
            ends = factor * least, factor * most
            yield dim, replace(rest, index=rest.index - Affine.dim(dim)), min(ends), max(ends)


def _written(total: Sum, constant: int) -> Expr:
    """A sum as an expression."""
    index = total.index + constant
    found: Expr = IndexValue(index) if index.terms else Const(index.const)
    for value, count in total.values:
        for _ in range(abs(count)):
            found = Call("add" if count > 0 else "subtract", (found, value))
    return found
