"""Measured times over the shape of a task: rows, columns and what is folded of a product, channels of a convolution."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import product

SHAPED = ("matmul", "conv", "attention")
"""Kernel classes whose tasks have such a shape."""


@dataclass(frozen=True, slots=True)
class ShapeTable:
    """A measured kernel class in a dtype: `seconds` beyond the start of a task of every shape of a grid, those of the
    last axis next to one another. Sizes increase along an axis, and along none seconds fall.

    Of a product `rows` are the longer of its two sides, taken together over a batch, `columns` the shorter one, and
    `folded` the dimension that is summed. Of attention `rows` are the queries of all heads, `columns` the keys that a
    query sees, and `folded` the elements of a head's record. Of a convolution `rows` are the places of its result,
    `columns` the channels out and `folded` the elements of a window in all channels in.
    """

    kernel: str
    dtype: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    folded: tuple[int, ...]
    seconds: tuple[float, ...]

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
        """A shape of the grid that takes less than one that is smaller along one axis; None where there is no such."""
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


def _between(sizes: tuple[int, ...], size: float) -> list[tuple[int, float]]:
    """The measured sizes around one, with their weights."""
    if size <= sizes[0]:
        return [(0, 1.0)]
    if size >= sizes[-1]:
        return [(len(sizes) - 1, size / sizes[-1])]
    right = bisect_left(sizes, size)
    share = (size - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
    return [(right - 1, 1.0 - share), (right, share)]
