"""Scans: ``out[t] = fold[s](f(s), where=s <= t)``, a fold over all that comes before an index, or after it.

Such a fold means what every fold means. What is known of it besides is that its results need not be computed one by
one: each is the one before and a point more. `Operation.scan` says so; devices and prices go by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .index import Affine, Bound
from .scalar import Expr, IndexValue, Inside, Read, walk


@dataclass(frozen=True)
class Scan:
    """The fold over ``folded`` <= ``along`` + ``shift``; ``backward``: over ``folded`` >= ``along`` + ``shift``."""

    along: str
    folded: str
    shift: int
    backward: bool

    def last(self, at: int, extent: int) -> int:
        """The last point that is folded, counted in the order of the scan, for an index along it; -1: none is."""
        reached = extent - 1 - max(0, at + self.shift) if self.backward else min(at + self.shift, extent - 1)
        return max(-1, reached)


def scan_of(folded: Collection[str], where: Sequence[Bound], values: Sequence[Expr]) -> Scan | None:
    """The scan that a fold is: one dimension folded, up to another one that the values do not depend on."""
    if len(folded) != 1 or len(where) != 1:
        return None
    [name], [bound] = folded, where
    expr = bound.expr
    factors = dict(expr.terms)
    other = next((atom for atom in factors if atom != name), None)
    if len(factors) != 2 or not isinstance(other, str) or factors.get(name, 0) * factors[other] != -1:
        return None
    if (bound.lo is None) == (bound.hi is None) or any(other in names for value in values for names in _dims(value)):
        return None
    rising = factors[name] == 1
    limit = bound.lo - expr.const if bound.lo is not None else (bound.hi or 0) - 1 - expr.const
    return Scan(other, name, limit if rising else -limit, backward=rising == (bound.lo is not None))


def _dims(value: Expr) -> list[frozenset[str]]:
    """The dimensions of every index expression in a value."""
    found: list[Affine] = []
    for node in walk(value):
        if isinstance(node, Read):
            found += [*node.index, *(bound.expr for bound in node.guard)]
        elif isinstance(node, IndexValue):
            found.append(node.index)
        elif isinstance(node, Inside):
            found += [bound.expr for bound in node.bounds]
    return [expr.dims for expr in found]
