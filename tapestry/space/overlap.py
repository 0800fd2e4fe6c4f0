"""Which of many regions a given one may meet, found by intervals: a filter before sets are met one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from .intset import IntSet
from .region import Region

_MOST_BOXES = 16  # that a grid is written as; one of more runs is taken for its hull
_FAR = 1 << 62  # coordinates beyond are taken for this one, which keeps their order


class Overlaps:
    """Regions of one dimension, by position, asked for those that meet another.

    >>> from tapestry.space import Grid
    >>> strips = [Region.of(Grid((IntSet.interval(k, k + 2),))) for k in range(0, 10, 2)]
    >>> Overlaps(strips).candidates(Region.of(Grid((IntSet.interval(3, 5),))))
    [1, 2]
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        boxes = [(k, box) for k, region in enumerate(regions) for box in _boxes(region)]
        self._owner = np.array([k for k, _ in boxes], dtype=np.int64)
        self._first = np.array([[first for first, _ in box] for _, box in boxes], dtype=np.int64)
        self._last = np.array([[last for _, last in box] for _, box in boxes], dtype=np.int64)

    def candidates(self, region: Region) -> list[int]:
        """The positions of all regions that meet this one, in order, and of some that do not."""
        found: set[int] = set()
        for box in _boxes(region) if len(self._owner) else ():
            ends = np.array(box, dtype=np.int64).reshape(-1, 2)
            meets = (self._first <= ends[:, 1]) & (ends[:, 0] <= self._last)
            found.update(self._owner[meets.all(axis=1)].tolist())
        return sorted(found)


def _boxes(region: Region) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes that together hold a region: per axis the first and last coordinate."""
    for grid in region.grids:
        few = prod(len(axis.runs) for axis in grid.axes) <= _MOST_BOXES
        yield from product(*(_spans(axis, few) for axis in grid.axes))


def _spans(axis: IntSet, few: bool) -> list[tuple[int, int]]:
    ends = [(run.start, run[-1]) for run in axis.runs] if few else [(axis.lo, axis.hi - 1)]
    return [(max(-_FAR, min(first, _FAR)), max(-_FAR, min(last, _FAR))) for first, last in ends]
