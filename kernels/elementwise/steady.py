"""What of a body stays the same along a dimension: computed once for all of its values, where that is worth it.

given     out[t, h, e] = x[t, h, e] * cos(t * w ** e)
steady    along h:  s = cos(t * w ** e)          out[t, h, e] = x[t, h, e] * s
"""

from __future__ import annotations

from dataclasses import dataclass

from ...expr import FUNCTIONS, Call, Expr, IndexValue, Inside, Read, children, children_first, with_children

# Flops, as functions are charged for, from which on a part is computed once: less is hidden behind memory.
WORTH = 8


@dataclass(frozen=True)
class Steady:
    """A body that reads ``parts`` as `name_of` calls them, and the parts. ``flops``: of one point of the parts."""

    body: Expr
    parts: tuple[Expr, ...]
    flops: int


def name_of(part: int) -> str:
    """What a body calls its part of that number."""
    return f"steady.{part}"


def taken_apart(body: Expr, dim: str) -> Steady:
    """The largest parts that neither read nor vary along ``dim``, and cost much."""
    cost: dict[int, int | None] = {}  # None: not the same along the dimension
    made: dict[int, Expr] = {}
    parts: dict[str, tuple[int, Expr]] = {}

    def taken(node: Expr) -> Expr:
        if (cost[id(node)] or 0) < WORTH:
            return made[id(node)]
        number, _ = parts.setdefault(repr(node), (len(parts), node))
        return Read(name_of(number), ())

    for node in children_first(body, cost):
        inner = [cost[id(child)] for child in children(node)]
        steady = not _varies(node, dim) and None not in inner
        made[id(node)] = node if steady else with_children(node, tuple(taken(child) for child in children(node)))
        cost[id(node)] = sum(n or 0 for n in inner) + _flops(node) if steady else None
    left = taken(body)
    found = tuple(part for _, part in parts.values())
    return Steady(left, found, sum(cost[id(part)] or 0 for part in found))


def _varies(node: Expr, dim: str) -> bool:
    """Whether a node by itself is another along the dimension; reads are taken to be."""
    if isinstance(node, IndexValue):
        return dim in node.index.dims
    if isinstance(node, Inside):
        return any(dim in bound.expr.dims for bound in node.bounds)
    return isinstance(node, Read)


def _flops(node: Expr) -> int:
    return FUNCTIONS[node.function].flops if isinstance(node, Call) else 0
