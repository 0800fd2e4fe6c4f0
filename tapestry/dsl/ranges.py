"""The ranges of indices: given by the signature, or the largest that keep every unguarded access inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..bounds import escape, out_of_bounds
from ..errors import UsageError
from ..expr import Affine, Bound
from .element import Access, Element

Ranges = dict[str, tuple[int, int]]


def all_accesses(body: Element) -> list[tuple[Access, tuple[Bound, ...]]]:
    """Every access of an expression and of the reductions in it, with the conditions under which it happens."""
    found = [(access, ()) for access in body.accesses]
    inner: list[tuple[Access, tuple[Bound, ...]]] = list(found)
    for reduction in body.reductions:
        inner += [(access, (*bounds, *reduction.where)) for access, bounds in all_accesses(reduction.body)]
    return inner


def solve(needed: Sequence[str], known: Mapping[str, int], accesses: Sequence[Access], place: str) -> dict[str, int]:
    """Extents of all ``needed`` indices. UsageError for an index that no access bounds."""
    extents = dict(known)
    rows = [
        (expr, extent) for access in accesses for expr, extent in zip(access.index, access.tensor.shape, strict=True)
    ]
    missing = [name for name in needed if name not in extents]
    while missing:
        found = {name: _largest(name, rows, extents) for name in missing}
        solved = next((name for name in missing if found[name] is not None), None)
        if solved is None:
            hint = "give the index the name of an extent of the signature, or read a tensor with it alone"
            raise UsageError(f"nothing bounds the index {' '.join(missing)}", where=place, hint=hint)
        extents[solved] = found[solved] or 1
        missing.remove(solved)
    return extents


def _largest(name: str, rows: Sequence[tuple[Affine, int]], extents: Mapping[str, int]) -> int | None:
    """The largest extent of one index, the others being known; None when some row does not bound it."""
    ranges: Ranges = {other: (0, extent) for other, extent in extents.items()}
    limits = [
        _limit(name, expr, extent, ranges)
        for expr, extent in rows
        if name in expr.dims and expr.dims - {name} <= ranges.keys()
    ]
    bounded = [limit for limit in limits if limit is not None]
    return max(1, min(bounded)) if bounded else None


def _limit(name: str, expr: Affine, extent: int, ranges: Ranges) -> int | None:
    """The largest e such that expr stays in 0:extent for name in 0:e, by bisection: intervals only grow with e."""

    def fits(e: int) -> bool:
        lo, hi = expr.bounds({**ranges, name: (0, e)})
        return lo >= 0 and hi <= extent

    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
        if high > 2**63:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def check_accesses(body: Element, extents: Mapping[str, int], place: str) -> None:
    """ReadOutOfBounds for the first access that leaves its tensor."""
    ranges = {name: (0, extent) for name, extent in extents.items()}
    for access, bounds in all_accesses(body):
        tensor = access.tensor
        found = escape(access.index, tensor.shape, ranges, bounds)
        if found:
            name = tensor.trace.describe(tensor)
            raise out_of_bounds(place, name, tensor.axes, tensor.shape, access.index, found, ranges)
