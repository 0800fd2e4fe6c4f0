"""Two axes of a tensor as a picture: regions to rectangles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...program import Tensor
from ...space import IntSet, Region

MOST_RUNS = 24
STRIP = 34.0
FLATTEST = 3.2  # ratio of the sides at most: a picture of an extreme shape shows nothing


@dataclass(frozen=True)
class Rect:
    """In pixels."""

    x: float
    y: float
    width: float
    height: float

    def at_least(self, size: float, middle: tuple[float, float]) -> Rect:
        """Widened to ``size`` on each side, away from ``middle``."""
        x, width = _grown(self.x, self.width, size, middle[0])
        y, height = _grown(self.y, self.height, size, middle[1])
        return Rect(x, y, width, height)


def _grown(start: float, length: float, size: float, middle: float) -> tuple[float, float]:
    if length >= size:
        return start, length
    return (start, size) if start + length / 2 >= middle else (start + length - size, size)


@dataclass(frozen=True)
class Plane:
    """Extents of the vertical and horizontal axis in elements, the size in pixels, and how elements become pixels.

    One axis: a strip; no axis: a square. ``origin``: the element at the corner.
    """

    axes: tuple[int, ...]
    names: tuple[str, ...]
    extents: tuple[int, int]
    width: float
    height: float
    origin: tuple[float, float] = (0.0, 0.0)

    @staticmethod
    def of(tensor: Tensor, axes: tuple[int, ...], width: float, height: float) -> Plane:
        """The largest picture of these axes within width and height that has their proportions, up to `FLATTEST`."""
        sizes = [tensor.shape[k] for k in axes]
        names = tuple(f"{tensor.axes[k]} {tensor.shape[k]}" for k in axes)
        rows, columns = (sizes[0], sizes[1]) if len(sizes) > 1 else (1, sizes[0] if sizes else 1)
        return Plane(axes, names or ("one element",), (rows, columns), width, height).fitted(width, height)

    def fitted(self, width: float, height: float) -> Plane:
        rows, columns = self.extents
        if len(self.axes) < 2:
            return replace(self, width=width if self.axes else STRIP, height=min(STRIP, height))
        ratio = min(max(columns / max(rows, 1), 1 / FLATTEST), FLATTEST)
        wide = min(width, height * ratio)
        return replace(self, width=wide, height=wide / ratio)

    def rects(self, region: Region) -> Iterator[Rect]:
        """The region's shadow on these axes. Strided runs are drawn as the interval they span."""
        seen = set()
        for grid in region.grids:
            sets = [_few(grid.axes[k]) for k in self.axes]
            rows, columns = ([IntSet.interval(0, 1)] * (2 - len(sets)) + sets)[-2:]
            for row in rows.runs:
                for column in columns.runs:
                    found = self.rect(row, column)
                    if found not in seen:
                        seen.add(found)
                        yield found

    def rect(self, row: range, column: range) -> Rect:
        """Elements to pixels."""
        per_row, per_column = self.height / max(self.extents[0], 1), self.width / max(self.extents[1], 1)
        x, y = (column.start - self.origin[1]) * per_column, (row.start - self.origin[0]) * per_row
        return Rect(x, y, (column.stop - column.start) * per_column, (row.stop - row.start) * per_row)

    def middle(self, region: Region) -> tuple[float, float]:
        """Centre of a region's hull, in pixels."""
        rects = list(self.rects(region))
        if not rects:
            return 0.0, 0.0
        left, right = min(r.x for r in rects), max(r.x + r.width for r in rects)
        top, bottom = min(r.y for r in rects), max(r.y + r.height for r in rects)
        return (left + right) / 2, (top + bottom) / 2


def _few(values: IntSet) -> IntSet:
    """At most `MOST_RUNS` intervals."""
    cover = values.cover()
    if len(cover.runs) <= MOST_RUNS:
        return cover
    return IntSet.interval(cover.lo, cover.hi)
