"""Points of an index space as index arrays: one per dimension, shaped to broadcast against one another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ..expr import Affine, Bound
from ..space import Grid, IntSet
from .values import Array

SLAB_ELEMENTS = 2**22
"""Elements of an intermediate array: 32 MiB of float64."""


@dataclass(frozen=True)
class Points:
    """A product of index values, one vector per dimension."""

    names: tuple[str, ...]
    axes: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes)

    @cached_property
    def index(self) -> dict[str, Array]:
        """Dimension -> its values, along its own axis."""
        return {
            name: axis.reshape([-1 if j == k else 1 for j in range(len(self.axes))])
            for k, (name, axis) in enumerate(zip(self.names, self.axes, strict=True))
        }

    def value(self, expr: Affine) -> Array:
        """An index expression at every point, broadcastable to the shape of the points."""
        found = np.asarray(expr.evaluate(self.index), dtype=np.int64)
        return found.reshape((1,) * (len(self.axes) - found.ndim) + found.shape)

    def inside(self, bounds: Sequence[Bound]) -> Array:
        """Where all bounds hold, broadcastable to the shape of the points."""
        mask = np.ones((1,) * len(self.axes), dtype=np.bool_)
        for bound in bounds:
            value = self.value(bound.expr)
            if bound.lo is not None:
                mask = mask & (value >= bound.lo)
            if bound.hi is not None:
                mask = mask & (value < bound.hi)
        return mask


def slabs(names: Sequence[str], grid: Grid, arrays: Sequence[Collection[str]], limit: int) -> Iterator[Points]:
    """The points of a grid in pieces, cut along the outermost dimensions first.

    ``arrays`` are the dimensions of each array that evaluating a piece builds; none of them exceeds ``limit`` elements.
    """
    built = [[k for k, name in enumerate(names) if name in dims] for dims in arrays]
    for axes in _cut([elements(axis) for axis in grid.axes], built, limit):
        yield Points(tuple(names), tuple(axes))


def elements(axis: IntSet) -> Array:
    """The elements of an integer set in increasing order."""
    parts = [np.arange(run.start, run.stop, run.step, dtype=np.int64) for run in axis.runs]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


def _cut(axes: list[Array], built: list[list[int]], limit: int) -> Iterator[list[Array]]:
    """Halve the outermost axis that an array too large depends on, until none is."""
    large = next((own for own in built if prod(len(axes[k]) for k in own) > max(1, limit)), None)
    if large is None:
        yield axes
        return
    k = next(k for k in large if len(axes[k]) > 1)
    middle = len(axes[k]) // 2
    yield from _cut([*axes[:k], axes[k][:middle], *axes[k + 1 :]], built, limit)
    yield from _cut([*axes[:k], axes[k][middle:], *axes[k + 1 :]], built, limit)
