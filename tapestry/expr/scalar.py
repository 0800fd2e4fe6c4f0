"""Scalar expressions: what one point of an operation computes from the elements it reads.

An expression is evaluated in the *compute type* of its result: int64 for integers and bool (wrapping on the final
cast), and for floats a type at least as wide as float32. It is rounded once, when the element is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .index import Affine, Bound


@dataclass(frozen=True)
class Const:
    """A number, or True/False."""

    value: float | int | bool

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Read:
    """One element of a tensor. Where a guard fails the tensor is not touched and the value is ``fill``."""

    tensor: str
    index: tuple[Affine, ...]
    guard: tuple[Bound, ...] = ()
    fill: float | int | bool = 0

    def __str__(self) -> str:
        text = f"{self.tensor}[{', '.join(map(str, self.index))}]"
        return f"({text} if {' and '.join(map(str, self.guard))} else {self.fill!r})" if self.guard else text


@dataclass(frozen=True)
class IndexValue:
    """The value of an index expression as a number (int64)."""

    index: Affine

    def __str__(self) -> str:
        return f"index({self.index})"


@dataclass(frozen=True)
class Inside:
    """True where all bounds hold."""

    bounds: tuple[Bound, ...]

    def __str__(self) -> str:
        return f"({' and '.join(map(str, self.bounds))})"


@dataclass(frozen=True)
class Call:
    """A function of `tapestry.expr.functions.FUNCTIONS` applied to expressions."""

    function: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Cast:
    """Round or convert to a dtype, then go on computing."""

    dtype: str
    arg: Expr

    def __str__(self) -> str:
        return f"{self.dtype}({self.arg})"


Expr = Const | Read | IndexValue | Inside | Call | Cast


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions."""
    if isinstance(expr, Call):
        return expr.args
    return (expr.arg,) if isinstance(expr, Cast) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its sub-expressions, outermost first."""
    left = [expr]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, Call):
            left += node.args[::-1]
        elif isinstance(node, Cast):
            left.append(node.arg)


def reads(expr: Expr) -> tuple[Read, ...]:
    """The distinct reads of an expression, in order of appearance."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Read)))


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """Rebuild with ``leaf`` applied to every Const, Read, IndexValue and Inside."""
    if isinstance(expr, Call):
        return Call(expr.function, tuple(rewrite(arg, leaf) for arg in expr.args))
    if isinstance(expr, Cast):
        return Cast(expr.dtype, rewrite(expr.arg, leaf))
    return leaf(expr)


def substitute(expr: Expr, values: Mapping[str, Affine]) -> Expr:
    """Replace dimensions by index expressions everywhere."""

    def leaf(node: Expr) -> Expr:
        if isinstance(node, Read):
            guard = tuple(bound.substitute(values) for bound in node.guard)
            return Read(node.tensor, tuple(index.substitute(values) for index in node.index), guard, node.fill)
        if isinstance(node, IndexValue):
            return IndexValue(node.index.substitute(values))
        if isinstance(node, Inside):
            return Inside(tuple(bound.substitute(values) for bound in node.bounds))
        return node

    return rewrite(expr, leaf)
