"""From what tasks took to tables of times by their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from ..machine import Points, ShapeTable
from .sizes import Grid

Shape = tuple[int, int, int]


def table_of(kernel: str, dtype: str, grid: Grid, measured: Mapping[Shape, float]) -> ShapeTable | None:
    """Of a class and dtype, where every shape of the grid was measured, or the one with rows and columns exchanged.

    Seconds of a shape are no less than those of any that is smaller along an axis, as more work is never quicker; but
    of convolutions, of which a library may have a quicker kernel for more channels, they are what was measured.
    """
    shapes = list(product(*grid.axes))
    found = {shape: measured.get(shape) or measured.get((shape[1], shape[0], shape[2])) for shape in shapes}
    rising: dict[Shape, float] = {}
    for shape in shapes:
        seconds = found[shape]
        if seconds is None:
            return None
        below = () if kernel == "conv" else (rising[other] for other in _below(shape, grid))
        rising[shape] = max([seconds, *below])
    return ShapeTable(kernel, dtype, *grid.axes, tuple(rising[shape] for shape in shapes), grid.window)


def _below(shape: Shape, grid: Grid) -> list[Shape]:
    """The next smaller shape along each axis."""
    found = []
    for axis, sizes in enumerate(grid.axes):
        place = sizes.index(shape[axis])
        if place:
            other = [*shape]
            other[axis] = sizes[place - 1]
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


def below_all(samples: Sequence[tuple[float, float]]) -> Points:
    """The lower side of the convex hull of samples, as far as it does not fall.

    Between the shapes of a table operations and seconds are both linear along each axis, so that what the table says of
    a shape lies within the hull of what was measured: none is below this. Between two points of `lower_envelope` some
    are, where shapes of many operations take as long as others of fewer.

    >>> below_all([(1, 2.0), (2, 1.0), (3, 4.0), (5, 4.0)])
    ((1, 1.0), (2, 1.0), (5, 4.0))
    """
    found: list[tuple[float, float]] = []
    for size, seconds in lower_envelope(samples):
        while len(found) > 1 and _above(found[-2], found[-1], (size, seconds)):
            found.pop()
        found.append((size, seconds))
    return tuple(found)


def _above(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether a point is on the line between its neighbours or above it."""
    return (middle[1] - first[1]) * (last[0] - first[0]) >= (last[1] - first[1]) * (middle[0] - first[0])
