"""Scalar expressions: what one point of an operation computes from the elements it reads.

An expression is evaluated in the *compute type* of its result: int64 for integers and bool (wrapping on the final
cast), and for floats a type at least as wide as float32. It is rounded once, when the element is written.

Expressions may be nested as deeply as a program likes (a stack of ten thousand tensors is ten thousand choices), so
nothing here or elsewhere calls itself on a sub-expression: `fold` and `children_first` go through them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .index import Affine, Bound

T = TypeVar("T")


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


class Nested:
    """What Python asks of an expression that has others in it, answered at any depth."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call | Cast):
            return NotImplemented
        return _equal(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = fold(self, _hash_of)  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", known)
        return known

    def __str__(self) -> str:
        return spelled(self, _text_of)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return spelled(self, _code_of)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class Call(Nested):
    """A function of `tapestry.expr.functions.FUNCTIONS` applied to expressions."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Nested):
    """Round or convert to a dtype, then go on computing."""

    dtype: str
    arg: Expr


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


def children_first(
    expr: Expr, done: Container[int], parts: Callable[[Expr], tuple[Expr, ...]] = children
) -> Iterator[Expr]:
    """The distinct nodes of an expression, each after its ``parts``, but for those whose `id` is in ``done``.

    The caller puts each node there before it asks for the next.
    """
    left = [expr]
    while left:
        node = left[-1]
        waiting = [] if id(node) in done else [part for part in parts(node) if id(part) not in done]
        if waiting:
            left += reversed(waiting)
            continue
        left.pop()
        if id(node) not in done:
            yield node


def fold(expr: Expr, rule: Callable[[Expr, tuple[T, ...]], T]) -> T:
    """The value of an expression by a rule for one node and the values of its direct sub-expressions.

    A node that stands in several places is asked for once.
    """
    return fold_all([expr], rule)[0]


def fold_all(exprs: Sequence[Expr], rule: Callable[[Expr, tuple[T, ...]], T]) -> list[T]:
    """The values of some expressions; a node that stands in several of them is asked for once, too."""
    found: dict[int, T] = {}
    for expr in exprs:
        for node in children_first(expr, found):
            found[id(node)] = rule(node, tuple(found[id(child)] for child in children(node)))
    return [found[id(expr)] for expr in exprs]


def _equal(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same, node by node; pairs that are one object need no look."""
    left, seen = [(a, b)], set[tuple[int, int]]()
    while left:
        one, other = left.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        if isinstance(one, Call) and isinstance(other, Call):
            if one.function != other.function or len(one.args) != len(other.args):
                return False
            left += zip(one.args, other.args, strict=True)
        elif isinstance(one, Cast) and isinstance(other, Cast):
            if one.dtype != other.dtype:
                return False
            left.append((one.arg, other.arg))
        elif isinstance(one, Nested) or isinstance(other, Nested) or one != other:
            return False
        seen.add((id(one), id(other)))
    return True


def _hash_of(node: Expr, args: tuple[int, ...]) -> int:
    if isinstance(node, Call):
        return hash((node.function, args))
    return hash((node.dtype, args)) if isinstance(node, Cast) else hash(node)


def spelled(expr: Expr, pieces: Callable[[Expr], Sequence[str | Expr]]) -> str:
    """An expression as text, ``pieces`` being the text of one node with its sub-expressions in their places."""
    found: list[str] = []
    left: list[str | Expr] = [expr]
    while left:
        piece = left.pop()
        if isinstance(piece, str):
            found.append(piece)
        else:
            left += reversed(pieces(piece))
    return "".join(found)


def listed(items: Sequence[Expr]) -> list[str | Expr]:
    """Sub-expressions with commas between them, for `spelled`."""
    return [piece for k, item in enumerate(items) for piece in ((", ", item) if k else (item,))]


def _text_of(node: Expr) -> Sequence[str | Expr]:
    if isinstance(node, Call | Cast):
        return [f"{node.function if isinstance(node, Call) else node.dtype}(", *listed(children(node)), ")"]
    return [str(node)]


def _code_of(node: Expr) -> Sequence[str | Expr]:
    if isinstance(node, Call):
        end = ",))" if len(node.args) == 1 else "))"
        return [f"Call(function={node.function!r}, args=(", *listed(node.args), end]
    return [f"Cast(dtype={node.dtype!r}, arg=", node.arg, ")"] if isinstance(node, Cast) else [repr(node)]


def with_children(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same node over other sub-expressions."""
    if isinstance(node, Call):
        return Call(node.function, args)
    return Cast(node.dtype, args[0]) if isinstance(node, Cast) else node


def depends_on(expr: Expr) -> frozenset[str]:
    """The dimensions that an expression's value may vary along."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Read):
            names.update(*(index.dims for index in node.index), *(bound.expr.dims for bound in node.guard))
        elif isinstance(node, IndexValue):
            names |= node.index.dims
        elif isinstance(node, Inside):
            names.update(*(bound.expr.dims for bound in node.bounds))
    return frozenset(names)


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """Rebuild with ``leaf`` applied to every Const, Read, IndexValue and Inside."""

    def rule(node: Expr, args: tuple[Expr, ...]) -> Expr:
        return with_children(node, args) if isinstance(node, Call | Cast) else leaf(node)

    return fold(expr, rule)


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
