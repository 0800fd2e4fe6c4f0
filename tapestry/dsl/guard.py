"""Guards: reading a tensor where it may not exist, in a way that composes through views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..bounds import Ranges, escape
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import FUNCTIONS, Affine, Bound, Call, Const, Expr, Inside, Read, fold, reads, rewrite, walk, with_children
from ..expr.conditions import any_of, none_of
from ..literals import python_number, stored
from .door import spoken
from .tensor import Tensor

Bounds = tuple[Bound, ...]
_JOINS = ("logical_and", "logical_or", "logical_not")


def guarded(tensor: Tensor, index: tuple[Affine, ...], fill: float | int | bool) -> Expr:
    """The element where the index is inside the tensor, ``fill`` elsewhere; nothing outside is ever touched."""
    bounds = tuple(Bound(i, 0, extent) for i, extent in zip(index, tensor.shape, strict=True))
    return guard(tensor.at(index), bounds, fill_for(tensor, fill))


def fill_for(tensor: Tensor, fill: object) -> float | int | bool:
    """The fill as an element of the tensor: exact, or a float rounded once. UsageError where it cannot be one."""
    found = python_number(fill)
    if found is None:
        raise UsageError(f"the fill {spoken(fill)} is not a number", sides={"tensor": repr(tensor)})
    exact = stored(found, tensor.dtype)
    return found if exact == found and DTYPES[tensor.dtype].kind == "float" else exact


def guard(expr: Expr, bounds: tuple[Bound, ...], fill: float | int | bool) -> Expr:
    """``expr`` where all bounds hold, ``fill`` elsewhere. Reads inside are made safe where the bounds fail."""
    if isinstance(expr, Read) and (not expr.guard or _same(expr.fill, fill)):
        return Read(expr.tensor, expr.index, (*expr.guard, *bounds), fill)
    return Call("where", (Inside(bounds), shielded(expr, bounds), Const(fill)))


def shielded(expr: Expr, bounds: tuple[Bound, ...]) -> Expr:
    """The expression with every read guarded by the bounds: to be used where its value elsewhere does not matter."""

    def leaf(node: Expr) -> Expr:
        return Read(node.tensor, node.index, (*node.guard, *bounds), node.fill) if isinstance(node, Read) else node

    return rewrite(expr, leaf)


def protected(expr: Expr, shape_of: Callable[[str], tuple[int, ...]], ranges: Ranges) -> Expr:
    """The expression with reads in the branches of a choice guarded by its condition, where they would leave a tensor.

    ``where([1 <= n], x[n - 1], 0)`` never uses x[-1], so it does not read it either.
    """

    def leaves(node: Expr) -> bool:
        return isinstance(node, Read) and escape(node.index, shape_of(node.tensor), ranges, node.guard) is not None

    def shielded_where(held: tuple[Bound, ...], node: Expr) -> Expr:
        return shielded(node, held) if leaves(node) else node

    def rule(node: Expr, args: tuple[tuple[Expr, bool], ...]) -> tuple[Expr, bool]:
        """The node, and whether a read in it leaves its tensor."""
        parts, wrong = [part for part, _ in args], leaves(node) or any(loose for _, loose in args)
        if isinstance(node, Call) and FUNCTIONS[node.function].result == "branch":
            for k, truth in ((1, True), (2, False)):
                held = implied(parts[0], truth) if args[k][1] else ()
                if held:
                    parts[k] = rewrite(parts[k], partial(shielded_where, held))
            wrong = any(leaves(read) for part in parts for read in reads(part)) if wrong else False
        return with_children(node, tuple(parts)), wrong

    return fold(expr, rule)[0]


def implied(condition: Expr, truth: bool) -> tuple[Bound, ...]:
    """Bounds on indices that hold wherever a condition is true, or wherever it is false."""

    def rule(node: Expr, parts: tuple[tuple[Bounds, Bounds], ...]) -> tuple[Bounds, Bounds]:
        """What is known to hold where the node is true, and where it is false."""
        if isinstance(node, Inside):
            return node.bounds, none_of(node.bounds)
        if not isinstance(node, Call) or node.function not in _JOINS:
            return (), ()
        if node.function == "logical_not":
            return parts[0][1], parts[0][0]
        true, false = (tuple(part[side] for part in parts) for side in (0, 1))
        if node.function == "logical_and":
            return tuple(bound for part in true for bound in part), any_of(false)
        return any_of(true), tuple(bound for part in false for bound in part)

    return fold(condition, rule)[0 if truth else 1]


def conditions(expr: Expr) -> tuple[Bound, ...] | None:
    """The bounds that hold exactly where a condition does; None where it is not one on indices alone."""

    def joins(node: Expr) -> bool:
        return isinstance(node, Inside) or (isinstance(node, Call) and node.function in _JOINS)

    return implied(expr, True) if all(map(joins, walk(expr))) else None


def _same(a: float | int | bool, b: float | int | bool) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)
