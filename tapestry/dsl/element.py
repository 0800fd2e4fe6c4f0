"""Elements: what index notation computes at one point, with the facts needed to find the ranges of its indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

from ..errors import UsageError
from ..expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read, rewrite, walk
from ..literals import python_number
from ..notation import format_expr
from .caller import here
from .door import spoken
from .guard import implied
from .index import Given, Index, joined
from .tensor import Tensor


@dataclass(frozen=True)
class Access:
    """An element that an expression reads. Unguarded it must stay inside the tensor; ``place`` is "file.py:line"."""

    tensor: Tensor
    index: tuple[Affine, ...]
    place: str
    guarded: bool = False
    conditions: tuple[Bound, ...] = ()  # of the choices (tp.where) in whose branches it stands

    def __str__(self) -> str:
        """As the user wrote it: ``x[n, 2*p + r]``, ``x.get[p - 1]``."""
        name = self.tensor.trace.describe(self.tensor)
        return f"{name}{'.get' if self.guarded else ''}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Reduction:
    """A reduction met in index notation; a `Read` of tensor ``key`` stands for its result.

    ``dims`` are in scope in ``body`` and ``where`` alone; ``given`` are the extents told to `indices` for some of them.
    """

    key: str
    monoid: str
    dims: tuple[str, ...]
    body: Element
    where: tuple[Bound, ...]
    given: Given
    place: str

    @property
    def read(self) -> Read:
        """What stands for its result: an element for each point of the indices that it leaves free."""
        names = [*self.body.free, *(name for bound in self.where for name in sorted(bound.expr.dims))]
        free = dict.fromkeys(name for name in names if name not in self.dims)
        return Read(self.key, tuple(map(Affine.dim, free)))


class Element(Tensor):
    """A scalar expression with free indices. Arithmetic builds a larger expression instead of an operation.

    ``given`` are the extents told to `indices` for names that occur in it.
    """

    def __init__(
        self,
        expr: Expr,
        accesses: tuple[Access, ...] = (),
        reductions: tuple[Reduction, ...] = (),
        given: Given | None = None,
    ) -> None:
        self.expr, self.accesses, self.reductions, self.given = expr, accesses, reductions, given or {}
        self._shape, self._axes, self.key = (), (), ""

    @property
    def is_tensor(self) -> bool:
        return False

    def demand_whole(self) -> NoReturn:
        raise self._not_a_tensor()

    @property
    def trace(self) -> NoReturn:
        raise self._not_a_tensor()

    @property
    def dtype(self) -> NoReturn:
        raise self._not_a_tensor()

    def at(self, index: tuple[Affine, ...]) -> NoReturn:  # noqa: ARG002
        raise self._not_a_tensor()

    def _not_a_tensor(self) -> UsageError:
        hint = "index notation stands in the body of a tp.op, and is folded as in tp.sum[c](...)"
        return UsageError(f"{self!r} is one element, not a tensor", where=here(), hint=hint)

    def _apply(self, function: str, *args: Any) -> Tensor:
        return combine(function, *args)

    def astype(self, dtype: str) -> Tensor:
        return Element(Cast(self.check_dtype(dtype), self.expr), self.accesses, self.reductions, self.given)

    def __getitem__(self, key: object) -> Tensor:
        what = f"{self!r} is one element and cannot be indexed again"
        raise UsageError(what, where=here(), hint="index the tensor once")

    def __repr__(self) -> str:
        """The expression, tensors called what the user calls them."""
        traces = [access.tensor.trace for access in self.accesses[:1]]
        text = format_expr(rewrite(self.expr, traces[0].with_hints) if traces else self.expr)
        for fold in self.reductions:
            spelled = f"{fold.monoid}[{', '.join(fold.dims)}]({fold.body!r})"
            text = text.replace(format_expr(fold.read), spelled)
        return text

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Names of the indices it depends on, in order of appearance."""
        return free_dims(self.expr)


def free_dims(expr: Expr) -> tuple[str, ...]:
    """Names of the indices an expression depends on, in order of appearance."""
    return tuple(dict.fromkeys(name for part in indexed(expr) for name in sorted(part.dims)))


def indexed(expr: Expr, bounds: Sequence[Bound] = ()) -> Iterator[Affine]:
    """The index expressions in an expression and in further bounds, in order of appearance."""
    for node in walk(expr):
        if isinstance(node, Read):
            yield from (*node.index, *(bound.expr for bound in node.guard))
        elif isinstance(node, IndexValue):
            yield node.index
        elif isinstance(node, Inside):
            yield from (bound.expr for bound in node.bounds)
    yield from (bound.expr for bound in bounds)


def element(value: object) -> Element:
    """An element out of an element, an index, a number or a 0-d tensor; UsageError for tensors not indexed."""
    if isinstance(value, Element):
        return value
    if isinstance(value, Index):
        constant = Const(value.affine.const)
        return Element(IndexValue(value.affine) if value.affine.terms else constant, given=value.given)
    if isinstance(value, Tensor):
        if value.shape:
            name = value.trace.describe(value)
            hint = f"give it indices: {name}[{', '.join(value.axes)}]"
            what = f"a tensor of shape {value.shape} meets an element of index notation"
            raise UsageError(what, where=here(), sides={"tensor": repr(value)}, hint=hint)
        return Element(value.at(()), (Access(value, (), here()),))
    return Element(Const(number(value)))


def number(value: object) -> float | int | bool:
    """A Python number, from NumPy's scalars too. UsageError for anything else."""
    found = python_number(value)
    if found is None:
        hint = "write the values of an array into the program with tp.constant, or declare an input"
        raise UsageError(f"{spoken(value)} is neither a number nor a tensor", hint=hint)
    return found


def combine(function: str, *args: object) -> Element:
    """A scalar function of elements."""
    parts = [element(arg) for arg in args]
    if function == "logical_and" and all(isinstance(part.expr, Inside) for part in parts):
        bounds = tuple(b for part in parts if isinstance(part.expr, Inside) for b in part.expr.bounds)
        return assembled(Inside(bounds), parts)
    return assembled(Call(function, tuple(part.expr for part in parts)), parts)


def assembled(expr: Expr, parts: Sequence[Element]) -> Element:
    """An element whose expression is made of those of the parts: it reads, folds and knows what they do."""
    if isinstance(expr, Call) and FUNCTIONS[expr.function].result == "branch":
        sides = ((), implied(expr.args[0], True), implied(expr.args[0], False))
        accesses = tuple(
            replace(access, conditions=(*access.conditions, *bounds))
            for part, bounds in zip(parts, sides, strict=True)
            for access in part.accesses
        )
    else:
        accesses = tuple(access for part in parts for access in part.accesses)
    reductions = {fold.key: fold for part in parts for fold in part.reductions}
    return Element(expr, accesses, tuple(reductions.values()), joined({}, *(part.given for part in parts)))


def is_notation(*values: object) -> bool:
    """Whether any value belongs to index notation, so that the result is an element rather than an operation."""
    return any(isinstance(value, Element | Index) for value in values)
