"""Leaving out what does not hold: a box within conditions as fewer points, where these hold everywhere or nearly.

A band of width w in a square of n by n is about n / w squares on its diagonals, so that it costs n * w and not n * n;
where the conditions hold everywhere they are gone, and a sum of products is one of matrices.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from .cutting import threshold
from .pieces import Piece

SMALL = 1 << 17  # points of a box that is not cut further: to make it ready costs as much as to compute them
EDGE = 64  # extent of a dimension that is not cut further, so that boxes stay worth a matrix product
MOST = 256  # boxes
WORTH = 3 / 4  # of the points of a box: where more are left, it stays whole


def held(box: Piece) -> list[Piece]:
    """The box, or boxes apart from one another that hold all of its points within ``where``, in order of their size.

    None at all where nothing holds.
    """
    if not box.where or box.size < 2 * SMALL:
        return [box]
    order = count()
    whole: list[Piece] = []  # and those that stay as they are
    undecided = [(-box.size, next(order), box)]
    heapify(undecided)
    while undecided and len(undecided) + len(whole) < MOST and -undecided[0][0] >= 2 * SMALL:
        *_, largest = heappop(undecided)
        halves = _halves(largest)
        if not halves:
            whole.append(largest)
        for part in halves:
            if part.where and not part.empty:
                heappush(undecided, (-part.size, next(order), part))
            elif not part.empty:
                whole.append(part)
    found = [*whole, *(part for *_, part in undecided)]
    return found if sum(part.size for part in found) <= WORTH * box.size else [box]


def _halves(box: Piece) -> tuple[Piece, ...]:
    """The box cut where a condition on one dimension changes, or else through the longest dimension of a condition.

    Nothing where that is short.
    """
    extents = {name: extent for name, extent in box.dims if extent > 1}
    for bound in box.where:
        place = threshold(bound, extents)
        if place is not None:
            return _cut(box, *place)
    name = max((name for bound in box.where for name in bound.expr.dims), key=lambda name: (extents[name], name))
    return _cut(box, name, _middle(box, name, extents[name])) if extents[name] >= 2 * EDGE else ()


def _middle(box: Piece, name: str, extent: int) -> int:
    """About half of a dimension, where a floor in a condition steps."""
    for bound in box.where:
        for floor in bound.expr.floors:
            if floor.inner.terms == ((name, 1),) and 2 * floor.divisor <= extent:
                first = -floor.inner.const % floor.divisor
                return first + max(1, (extent // 2 - first) // floor.divisor) * floor.divisor
    return extent // 2


def _cut(box: Piece, name: str, at: int) -> tuple[Piece, Piece]:
    return box.part(name, 0, at), box.part(name, at, box.ranges[name][1])
