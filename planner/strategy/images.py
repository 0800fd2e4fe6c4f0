"""What the shards of all ranks read or write, at once: axis by axis, each different set of a dimension looked at once.

Shards are products of sets, and the image of a product is the product of the images of rows that have no dimension in
common. So ranks that differ in one dimension alone share all other axes of what they read, and so do strategies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np

from ...program import Operation
from ...space import Grid, IntSet
from ...space.counting import count_grid
from ...space.projection import Part, Projection, read_projections, write_projection
from ...space.runs import clip_linear
from .columns import Column, Columns, Ints, column, joined, of_those_there, product_of_sizes


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
    if all(axis.everywhere for axis in (*axes, *cut)):
        return cut
    return of_those_there(cut, np.all([axis.sizes > 0 for axis in (*axes, *cut)], axis=0))


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


def read_columns(op: Operation, name: str, domain: Columns) -> Columns | None:
    """What all ranks read of an operand for some points; None where that is not exact, or not one grid each."""
    images = [
        image_columns(projection, domain) for read, projection in read_projections(op).items() if read.tensor == name
    ]
    known = [image for image in dict.fromkeys(images) if image is not None]
    return united_columns(tuple(known)) if None not in images else None


@lru_cache(maxsize=8192)
def united_columns(some: tuple[Columns, ...]) -> Columns | None:
    """What ranks have in any of some columns, where on each rank those with anything differ on one axis at most."""
    if len(some) == 1:
        return some[0]
    there = np.array([cut[0].sizes > 0 for cut in some])
    found, differing = [], np.zeros(there.shape[1], dtype=np.int64)
    for axes in zip(*some, strict=True):
        numbers = {values: k for k, values in enumerate(dict.fromkeys(values for axis in axes for values in axis.sets))}
        codes = np.array([np.array([numbers[values] for values in axis.sets])[axis.codes] for axis in axes])
        codes = np.where(there, codes, -1)
        rows, which = np.unique(codes, axis=1, return_inverse=True)
        sets = [[number for number in dict.fromkeys(row) if number >= 0] for row in rows.T.tolist()]
        known, which = list(numbers), which.reshape(-1)
        found.append(column([IntSet().union(*(known[number] for number in row)) for row in sets], which))
        differing += np.array([len(row) > 1 for row in sets])[which]
    return tuple(found) if differing.max() <= 1 else None


def read_sizes(op: Operation, name: str, domain: Columns) -> Ints | None:
    """How many elements each rank reads of an operand; None where that is not known for all ranks at once."""
    found = read_columns(op, name, domain)
    return None if found is None else product_of_sizes(found)


def sizes_written(op: Operation, domain: Columns) -> Ints | None:
    """How many elements each rank writes; None where that is not known for all ranks at once."""
    found = image_columns(write_projection(op), domain)
    return None if found is None else product_of_sizes(found)


def boxes_of(domain: Columns) -> Iterator[Columns]:
    """What all ranks have of one run of every axis: of the first of each, then of the others, in their order."""
    for numbers in product(*(range(max(len(values.runs) for values in axis.sets)) for axis in domain)):
        cut = tuple(
            column([IntSet(values.runs[k : k + 1]) for values in axis.sets], axis.codes)
            for k, axis in zip(numbers, domain, strict=True)
        )
        yield of_those_there(cut, np.all([axis.sizes > 0 for axis in cut], axis=0))


def sizes_of_points(op: Operation, domain: Columns) -> Ints | None:
    """How many points each rank computes, within the operation's conditions; None where that is not exact."""
    bound = {name for limit in op.where for name in limit.expr.dims}
    inside = [k for k, dim in enumerate(op.dims) if dim.name in bound]
    rest = [axis for k, axis in enumerate(domain) if k not in inside]
    found = product_of_sizes(rest) if rest else np.ones(len(domain[0].codes), dtype=np.int64)
    if not inside:
        return found
    mine = [domain[k] for k in inside]
    codes, ranks = joined(mine)
    names, counts = tuple(op.dims[k].name for k in inside), []
    for rank in ranks:
        counted = count_grid(names, op.where, Grid(tuple(axis.sets[axis.codes[rank]] for axis in mine)))
        if not counted.exact:
            return None
        counts.append(counted.value)
    return found * np.array(counts, dtype=np.int64)[codes]
