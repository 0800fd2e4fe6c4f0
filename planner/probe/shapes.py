"""From what tasks took to tables of times by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from ..machine import Points, ShapeTable
from .sizes import Grid

Shape = tuple[int, int, int]


FILLED = ("conv",)
"""Classes of which a task takes no longer than a larger one does, which it is with zeros around: of these one size may
be slow, and the next one not."""


def table_of(kernel: str, dtype: str, grid: Grid, measured: Mapping[Shape, float]) -> ShapeTable | None:
    """Of a class and dtype, where every shape of the grid was measured, or the one with rows and columns exchanged.

    Seconds of a shape are no less than those of any that is smaller along an axis, as more work is never quicker; of
    classes in `FILLED` they are no more than those of any that is larger.
    """
    shapes = list(product(*grid.axes))
    found = {shape: measured.get(shape) or measured.get((shape[1], shape[0], shape[2])) for shape in shapes}
    rising: dict[Shape, float] = {}
    towards, most = (1, min) if kernel in FILLED else (-1, max)
    for shape in shapes[::-towards]:
        seconds = found[shape]
        if seconds is None:
            return None
        rising[shape] = most([seconds, *(rising[other] for other in _beside(shape, grid, towards))])
    return ShapeTable(kernel, dtype, *grid.axes, tuple(rising[shape] for shape in shapes))


def _beside(shape: Shape, grid: Grid, towards: int) -> list[Shape]:
    """The next larger (1) or smaller (-1) shape along each axis."""
    found = []
    for axis, sizes in enumerate(grid.axes):
        place = sizes.index(shape[axis]) + towards
        if 0 <= place < len(sizes):
            other = [*shape]
            other[axis] = sizes[place]
            found.append((other[0], other[1], other[2]))
    return found


def lower_envelope(samples: Sequence[tuple[float, float]]) -> Points:
    """Seconds over sizes that no sample goes below, and that never fall: the least of all that are as large or larger.

    >>> lower_envelope([(4, 3.0), (1, 1.0), (2, 5.0), (2, 4.0)])
    ((1, 1.0), (2, 3.0), (4, 3.0))
    """
    found: dict[float, float] = {}
    least = float("inf")
    for size, seconds in sorted(samples, reverse=True):
        least = min(least, seconds)
        found[size] = least
    return tuple(sorted(found.items()))
