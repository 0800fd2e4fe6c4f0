"""Selections: folds of which few points count, because an index has to equal a value that the program computes.

A data-dependent read ``table[ids[t], d]`` is the fold ``sum[v] table[v, d] if ids[t] == v else 0``, and a write to
data-dependent places is the fold ``out[v, d] = sum[t] x[t, d] if ids[t] == v else 0``. Both are affine in every index,
so that images (hulls: all rows), shards, partial results and proofs are those of any fold. What is special is the work:
wherever the equality does not hold the body is what folds to nothing, so that evaluators go to the one ``v`` that
counts, and prices count the points without ``v``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .expr import FUNCTIONS, MONOIDS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, depends_on, walk
from .expr.monoids import VALUE


@dataclass(frozen=True)
class Selection:
    """Of the values of a dimension only the one counts that equals ``value``, an integer that does not depend on it."""

    dim: str
    value: Expr


def selections(
    body: Expr, dims: Collection[str], neutral: float | None, where: Collection[Bound] = ()
) -> tuple[Selection, ...]:
    """The dimensions of a fold that its body selects from, each with the value that counts; none depends on another.

    The body is ``where(conditions, value, neutral)``, ``neutral`` folding to nothing (None: nothing does), and one of
    the conditions an equality of an index, in which the dimension stands once and alone, with any other value.
    """
    if neutral is None:
        return ()
    found: list[Selection] = []
    bounded = {name for bound in where for name in bound.expr.dims}
    for condition in conditions(body, neutral):
        for chosen in _equality(condition, dims):
            taken = {other.dim for other in found}
            used = depends_on(chosen.value)
            crossed = any(chosen.dim in depends_on(other.value) for other in found)
            if not (chosen.dim in taken | bounded or used & taken or crossed):
                found.append(chosen)
                break
    return tuple(found)


def counting(body: Expr, neutral: float) -> Expr:
    """The value of the points that count: of ``where(conditions, value, neutral)`` the value."""
    casts = []
    while True:
        if isinstance(body, Cast):
            casts.append(body.dtype)
            body = body.arg
        elif isinstance(body, Call) and body.function == "where" and _is_neutral(body.args[2], neutral):
            body = body.args[1]
        else:
            for dtype in reversed(casts):
                body = Cast(dtype, body)
            return body


def conditions(body: Expr, neutral: float) -> Iterator[Expr]:
    """What has to hold for a point to count."""
    body = uncast(body)
    while isinstance(body, Call) and body.function == "where" and _is_neutral(body.args[2], neutral):
        yield from _conjuncts(body.args[0])
        body = uncast(body.args[1])


def uncast(expr: Expr) -> Expr:
    """What is converted, for an expression that converts."""
    while isinstance(expr, Cast):
        expr = expr.arg
    return expr


def neutral_value(monoid: str | None) -> float | None:
    """The value that folds to nothing, where points fold their own values by one function."""
    entry = MONOIDS.named(monoid or "")
    plain = entry is not None and entry.function is not None and entry.components[0].lift == VALUE
    return entry.components[0].identity if entry is not None and plain else None


def _is_neutral(expr: Expr, neutral: float) -> bool:
    value = uncast(expr)
    return isinstance(value, Const) and value.value == neutral


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    left = [condition]
    while left:
        part = left.pop()
        if isinstance(part, Call) and part.function == "logical_and":
            left += part.args[::-1]
        else:
            yield part


def _equality(condition: Expr, dims: Collection[str]) -> Iterator[Selection]:
    """What an equality of an index and a value says of the dimensions in the index."""
    if not isinstance(condition, Call) or condition.function != "equal":
        return
    for side, value in (condition.args, condition.args[::-1]):
        index = uncast(side)
        if not isinstance(index, IndexValue):
            continue
        floored = {name for atom in index.index.compound for name in atom.inner.dims}
        for name, factor in index.index.terms:
            if isinstance(name, str) and name in dims and abs(factor) == 1 and name not in depends_on(value) | floored:
                yield Selection(name, _solved(index.index, name, factor, value))


def _solved(index: Affine, name: str, factor: int, value: Expr) -> Expr:
    """``name`` where index == value."""
    rest = index - Affine.dim(name) * factor
    if rest.terms or rest.const:
        value = Call("subtract", (value, IndexValue(rest) if rest.terms else Const(rest.const)))
    return value if factor == 1 else Call("negative", (value,))


def demands(expr: Expr) -> Iterator[tuple[Expr, int]]:
    """What has to be within an axis, an error if it is not, and the axis's extent."""
    for node in walk(expr):
        if isinstance(node, Call) and FUNCTIONS[node.function].strict:
            limit = uncast(node.args[1])
            assert isinstance(limit, Const), "the extent of an axis is a number"
            yield node.args[0], int(limit.value)
