"""Measured times over the shape of a task: rows, columns and what is folded of a product, channels of a convolution."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

SHAPED = ("matmul", "conv", "attention", "slopes")
"""Kernel classes whose tasks have such a shape."""


@dataclass(frozen=True, slots=True)
class ShapeTable:
    """A measured kernel class in a dtype: `seconds` beyond the start of a task of every shape of a grid, those of the
    last axis next to one another. Sizes increase along an axis, and along none seconds fall, but of convolutions:
    a library may have a quicker kernel for more channels, and zeros in their place are not for nothing.

    Of a product `rows` are the longer of its two sides, taken together over a batch, `columns` the shorter one, and
    `folded` the dimension that is summed. Of attention `rows` are the queries of all heads, `columns` the keys that a
    query sees, and `folded` the elements of a head's record. Of a convolution `rows` are the places of its result,
    `columns` the channels out and `folded` the elements of a window in all channels in; ``window``: the places of the
    windows that were measured, 0 of anything else.
    """

    kernel: str
    dtype: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    folded: tuple[int, ...]
    seconds: tuple[float, ...]
    window: int = 0

    def at(self, rows: float, columns: float, folded: float) -> float:
        """Linear along each axis between sizes that were measured, flat below the first, at the last one's rate beyond
        it; many rows of a product take no longer than the last number of them with as many more columns.

        A few thousand rows of few columns leave most of a processor idle, so that in proportion to them a million
        would be too much; as tiles of a result they are as good as columns.
        """
        found = self._read(rows, columns, folded)
        many = rows / self.rows[-1]
        if many <= 1 or self.kernel != "matmul":
            return found
        return min(found, self._read(self.rows[-1], max(columns, self.columns[0]) * many, folded))

    def covers(self, folded: float) -> bool:
        """Whether it says what a task takes that folds so much: convolutions of larger windows, or more channels, than
        were measured are as quick as their operations say."""
        return self.kernel != "conv" or folded <= self.folded[-1]

    def _read(self, *shape: float) -> float:
        known = [_between(sizes, size) for sizes, size in zip(self.axes, shape, strict=True)]
        _, wide, deep = map(len, self.axes)
        found = 0.0
        for (i, of_row), (j, of_column), (k, of_fold) in product(*known):
            found += of_row * of_column * of_fold * self.seconds[(i * wide + j) * deep + k]
        return found

    def fall(self) -> tuple[int, int, int] | None:
        """A shape of the grid that takes less than one that is smaller along one axis, where none may; None where there
        is no such."""
        if self.kernel == "conv":
            return None
        _, wide, deep = map(len, self.axes)
        strides = (wide * deep, deep, 1)
        for place, shape in enumerate(product(*(range(len(sizes)) for sizes in self.axes))):
            if any(at and self.seconds[place] < self.seconds[place - d] for at, d in zip(shape, strides, strict=True)):
                i, j, k = shape
                return self.rows[i], self.columns[j], self.folded[k]
        return None

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.rows, self.columns, self.folded


@dataclass(frozen=True, slots=True)
class Between:
    """Convolutions of windows between those of two tables: of as many channels seconds are linear in its ``places``."""

    lower: ShapeTable
    upper: ShapeTable
    places: int

    def at(self, rows: float, columns: float, folded: float) -> float:
        share = (self.places - self.lower.window) / (self.upper.window - self.lower.window)
        first, second = (table.at(rows, columns, self._folded(table, folded)) for table in (self.lower, self.upper))
        return (1 - share) * first + share * second

    def covers(self, folded: float) -> bool:
        return all(table.covers(self._folded(table, folded)) for table in (self.lower, self.upper))

    def _folded(self, table: ShapeTable, folded: float) -> float:
        """Of as many channels in the table's windows."""
        return folded / self.places * table.window


def about(tables: Sequence[ShapeTable], places: int) -> ShapeTable | Between | None:
    """Of the tables of a class and dtype the one for windows of so many places, or the two around it; None of none."""
    known = sorted(tables, key=lambda table: table.window)
    lower = [table for table in known if table.window <= places] or known[:1]
    upper = [table for table in known if table.window >= places] or known[-1:]
    if not known or lower[-1] is upper[0] or lower[-1].window >= upper[0].window:
        return lower[-1] if known else None
    return Between(lower[-1], upper[0], places)


def _between(sizes: tuple[int, ...], size: float) -> list[tuple[int, float]]:
    """The measured sizes around one, with their weights."""
    if size <= sizes[0]:
        return [(0, 1.0)]
    if size >= sizes[-1]:
        return [(len(sizes) - 1, size / sizes[-1])]
    right = bisect_left(sizes, size)
    share = (size - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
    return [(right - 1, 1.0 - share), (right, share)]
