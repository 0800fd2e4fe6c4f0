"""Folds over nothing: they are the monoid's identity, written as an ordinary operation that reads nothing.

So an index space is empty only where its output is, and no room but this one knows of folds without points.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import MONOIDS, Affine, Bound, Call, Const, Expr, Inside, Read, rewrite
from ..expr.monoids import Monoid
from ..program import Dim


def fold_of_nothing(name: str, value: str, stored: str, parallel: Sequence[Dim]) -> Expr:
    """The result of a fold of no points, at every point of the parallel dimensions.

    ``value`` is the dtype of what would be folded, ``stored`` that of the result. A record that is stored itself lies
    along the last dimension, component after component.
    """
    monoid = MONOIDS[name]
    dtypes = monoid.dtypes_for(value, stored)
    parts = {c.name: Const(c.identity_in(dtype)) for c, dtype in zip(monoid.components, dtypes, strict=True)}
    if monoid.finish is None:
        return _record(monoid, list(parts.values()), parallel[-1])

    def leaf(node: Expr) -> Expr:
        return parts[node.tensor.removeprefix("r.")] if isinstance(node, Read) else node

    return rewrite(monoid.finish, leaf)


def _record(monoid: Monoid, parts: Sequence[Const], last: Dim) -> Expr:
    """The component in which each element along the last dimension lies."""
    width = last.extent - sum(not component.vector for component in monoid.components)
    found: Expr = parts[-1]
    end = last.extent
    for component, part in reversed(list(zip(monoid.components, parts, strict=True))):
        start = end - (width if component.vector else 1)
        inside = Inside((Bound(Affine.dim(last.name), start, end),))
        found = part if end == last.extent else Call("where", (inside, part, found))
        end = start
    return found
