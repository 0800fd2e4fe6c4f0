"""What the shards of all ranks read or write, at once: axis by axis, each different set of a dimension looked at once.

Shards are products of sets, and the image of a product is the product of the images of rows that have no dimension in
common. So ranks that differ in one dimension alone share all other axes of what they read, and so do strategies.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...space import IntSet
from ...space.projection import Part, Projection
from ...space.runs import clip_linear
from .columns import Column, Columns, column, joined


@lru_cache(maxsize=8192)
def image_columns(projection: Projection, domain: Columns) -> Columns | None:
    """The images of all ranks, where each is exact and one grid, or empty; None for others, and for scalars."""
    if not projection.ndim:
        return None
    axes = list(domain)
    for axis, factor, bound in projection.clips:
        kept = [clip_linear(values, factor, bound.expr.const, bound.lo, bound.hi) for values in axes[axis].sets]
        axes[axis] = column(kept, axes[axis].codes)
    rows: dict[int, Column] = {}
    for part in projection.parts:
        found = _rows(part, tuple(axes[k] for k in part.axes) or (axes[0],))
        if found is None:
            return None
        rows |= zip(part.rows, found, strict=True)
    cut = tuple(rows[row] for row in range(projection.ndim))
    return cut if all(axis.everywhere for axis in (*axes, *cut)) else _of_those_there(cut, axes)


@lru_cache(maxsize=8192)
def _rows(part: Part, domain: Columns) -> Columns | None:
    """Some rows of all ranks; None where they are not exact, or several pieces."""
    codes, first = joined(domain)
    found: list[list[IntSet]] = [[] for _ in part.rows]
    for rank in first:
        sets = tuple(axis.sets[axis.codes[rank]] for axis in domain)[: len(part.axes)]
        pieces, exact = part.over(sets) if all(sets) else ((), True)
        if not exact or len(pieces) > 1:
            return None
        for mine, values in zip(found, pieces[0] if pieces else (IntSet(),) * len(found), strict=True):
            mine.append(values)
    return tuple(column(mine, codes) for mine in found)


def _of_those_there(cut: Columns, domain: list[Column]) -> Columns:
    """Nothing on any axis for ranks that have no points, or nothing on some axis."""
    there = np.all([axis.sizes > 0 for axis in (*domain, *cut)], axis=0)
    return tuple(column([*axis.sets, IntSet()], np.where(there, axis.codes, len(axis.sets))) for axis in cut)
