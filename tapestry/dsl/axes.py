"""Axes in signatures: ``"n 3 y p=2*x"``. Names are extents, bound by unification with the shapes given."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class Axis:
    """One axis of a signature: a name whose extent is to be found, an expression of extents, or both (``p=2*y``)."""

    name: str
    expr: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Extents that it speaks of."""
        tree = ast.walk(ast.parse(self.expr or self.name, mode="eval"))
        return tuple(dict.fromkeys(node.id for node in tree if isinstance(node, ast.Name)))

    def extent(self, extents: Mapping[str, int]) -> int | None:
        """Its extent, or None while a name is unbound."""
        if not self.expr:
            return extents.get(self.name)
        if any(name not in extents for name in self.names):
            return None
        return _evaluate(ast.parse(self.expr, mode="eval").body, extents)

    def __str__(self) -> str:
        return f"{self.name}={self.expr}" if self.name and self.expr else self.name or self.expr


def parse_axes(text: str) -> tuple[Axis, ...]:
    """Axes separated by blanks: names, integers, expressions or ``name=expression``; UsageError for all else.

    >>> [str(axis) for axis in parse_axes("n 3 p=2*y")]
    ['n', '3', 'p=2*y']
    """
    return tuple(_axis(token, text) for token in text.split())


def _axis(token: str, text: str) -> Axis:
    name, equals, expr = token.partition("=")
    if not equals:
        name, expr = (token, "") if token.isidentifier() else ("", token)
    if (equals and not name.isidentifier()) or not (name or expr) or not _is_expression(expr or name):
        hint = 'write names, integers or expressions of names without blanks: "n 3 y p=2*x"'
        raise UsageError(f"{token!r} in {text!r} is not an axis", hint=hint)
    return Axis(name, expr)


def _is_expression(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Load, *_OPERATORS)
    return all(
        isinstance(n, allowed) and (not isinstance(n, ast.Constant) or type(n.value) is int) for n in ast.walk(tree)
    )


def _evaluate(node: ast.expr, extents: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return extents[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, extents), _evaluate(node.right, extents)
        if not right and isinstance(node.op, ast.FloorDiv | ast.Mod):
            raise UsageError(f"the extent {ast.unparse(node)} divides {left} by 0")
        return _OPERATORS[type(node.op)](left, right)
    raise UsageError(f"{ast.unparse(node)!r} is not an expression of extents")


def unify(axes: Sequence[Axis], shape: Sequence[int], extents: MutableMapping[str, int], what: str) -> None:
    """Bind the names of the axes to a shape. UsageError, with both sides, where they contradict.

    Expressions are checked when all their names are bound; `check_expressions` finds those that were too early.
    """
    if len(axes) != len(shape):
        raise mismatch(axes, shape, extents, what, f"{what} has {len(shape)} axes, declared are {len(axes)}")
    for axis, extent in zip(axes, shape, strict=True):
        if axis.name and not axis.expr:
            extents.setdefault(axis.name, extent)
        declared = axis.extent(extents)
        if declared is not None and declared != extent:
            raise mismatch(axes, shape, extents, what, f"{what} has extent {extent} along {axis}, which is {declared}")
        if axis.name:
            extents.setdefault(axis.name, extent)


def mismatch(
    axes: Sequence[Axis], shape: Sequence[int], extents: Mapping[str, int], what: str, text: str
) -> UsageError:
    """The error of a shape that does not fit its declared axes."""
    names = dict.fromkeys(name for axis in axes for name in axis.names)
    known = ", ".join(f"{name}={extents[name]}" for name in names if name in extents)
    declared = f'"{" ".join(map(str, axes))}"' + (f"  with {known}" if known else "")
    return UsageError(
        text, sides={"declared": declared, "given": list(shape)}, hint=f"change {what} or the extents bound before it"
    )
