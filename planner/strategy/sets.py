"""What ranks have of a layout inside of something, or without something, all ranks at once: axis by axis.

Where that is no product of one set per axis on some rank, or a layout is none, the answer is None, and each rank has to
be asked for itself.
"""

from __future__ import annotations

import numpy as np

from ...space import Grid
from .columns import Column, Columns, Ints, column, joined, met, of_those_there


def inside(some: Columns, to: Grid) -> Columns:
    """What each rank has within a grid."""
    cut = tuple(
        column([values & axis for values in mine.sets], mine.codes) for mine, axis in zip(some, to.axes, strict=True)
    )
    return of_those_there(cut, np.all([axis.sizes > 0 for axis in cut], axis=0))


def in_both(some: Columns, others: Columns) -> Columns:
    """What each rank has in both."""
    axes = (met(mine, theirs) for mine, theirs in zip(some, others, strict=True))
    cut = tuple(column([a & b for a, b in axis.pairs], axis.codes) for axis in axes)
    return of_those_there(cut, np.all([axis.sizes > 0 for axis in cut], axis=0))


def without(some: Columns, others: Columns) -> Columns | None:
    """What each rank has of some and not of others: all where they do not meet, else what one axis leaves."""
    both = [met(mine, theirs) for mine, theirs in zip(some, others, strict=True)]
    left = np.array([common.sizes < mine.sizes for common, mine in zip(both, some, strict=True)])
    meeting = np.all([common.sizes > 0 for common in both], axis=0)
    if (left.sum(axis=0)[meeting] > 1).any():
        return None
    cut = tuple(_without(mine, theirs, less & meeting) for mine, theirs, less in zip(some, others, left, strict=True))
    return of_those_there(cut, ~meeting | left.any(axis=0))


def _without(some: Column, others: Column, ranks: Ints) -> Column:
    """Of these ranks what they have and the others have not, of others all that they have."""
    keys, codes = np.unique((some.codes * len(others.sets) + others.codes) * 2 + ranks, return_inverse=True)
    pairs, taken = np.divmod(keys, 2)
    mine, theirs = np.divmod(pairs, len(others.sets))
    found = [
        some.sets[a] - (some.sets[a] & others.sets[b]) if less else some.sets[a]
        for a, b, less in zip(mine.tolist(), theirs.tolist(), taken.tolist(), strict=True)
    ]
    return column(found, codes)


def everything(cut: Columns) -> Grid | None:
    """All that some rank has, where that is a grid: there is a rank for any sets that ranks have of the axes."""
    there = [[values for values in axis.sets if values] for axis in cut]
    different = len(joined(cut)[1]) - (not all(axis.everywhere for axis in cut))
    if not different or np.prod([float(len(sets)) for sets in there]) != different:
        return None
    return Grid(tuple(sets[0].union(*sets[1:]) for sets in there))
