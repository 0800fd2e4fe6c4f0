"""Sums of products over windows that a library of convolutions computes: recognised by their structure, as the arrays
lie.

    y[n, k, p] = sum[c, r]  x[n, c, stride * p + dilation * r - before] * w[k, c, r]       forward
    x[n, c, i] = sum[k, r]  y[n, k, (i + before - dilation * r) / stride] * w[k, c, r]     input gradient
    w[k, c, r] = sum[n, p]  x[n, c, stride * p + dilation * r - before] * y[n, k, p]       weight gradient

In each an axis of one factor, the image, is read at an index of two dimensions: one that is kept, and one that the
other factor has and that is folded. A guard leaves out what lies outside of the image. The forward pass and the weight
gradient are the same sum: the one whose filter spans less of the image is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...expr import Affine, Bound, Floor, Read
from ..device import Stored
from .grouping import with_groups
from .jobs import Dims, Job
from .machine import Convolution, Strided, Window
from .products import KNOWN, Factor, factors, joined, located

# Products that are worth a library's call; points of one direction that are looked at, and directions it has.
WORTH, MOST_POINTS, MOST_DIRECTIONS = 1 << 14, 1 << 22, 3

Values = NDArray[np.int64]
_Axis = tuple[int, int]


@dataclass(frozen=True)
class _Direction:
    """An axis of the image that windows go along: its elements that are read, and the step between them."""

    kept: str
    folded: str
    window: Window
    transposed: bool
    first: int
    count: int
    step: int


@dataclass(frozen=True)
class _Sides:
    """The three arrays, and the directions of the image."""

    image: Factor
    other: Factor
    out: Factor
    directions: tuple[_Direction, ...]


def convolution_of(job: Job) -> Convolution | None:
    """The convolution that a job is, or None."""
    if job.record is None or job.record.monoid.function != "add" or len(job.folds) != 1 or len(job.stores) != 1:
        return None
    job = with_groups(job)
    [fold], [store] = job.folds, job.stores
    reads = factors(fold.values[0]) if not fold.where else None
    if reads is None or store.into.offset or store.into.stored.array.dtype.names:
        return None
    out = located(job, store.index, store.into.stored, store.into.dtype)
    for image, other in (reads, reads[::-1]):
        sides = None if out is None else _sides(job, image, other, out)
        found = None if sides is None else _sorted(job, fold.dims, sides)
        if found is not None:
            return found
    return None


def _sides(job: Job, image: Read, other: Read, out: Factor) -> _Sides | None:
    fields = [job.fields[read.tensor] for read in (image, other)]
    if other.guard or image.fill or any(isinstance(field.stored.array, np.ndarray) for field in fields):
        return None
    if fields[0].dtype != fields[1].dtype or (fields[0].dtype, out.dtype) not in KNOWN:
        return None
    if job.record is None or (out.dtype == "f64") != (job.record.dtypes[0] == "f64"):
        return None
    plain = located(job, other.index, fields[1].stored, fields[1].dtype)
    kept = {name for name, _ in job.kept} - {name for row in other.index for name in row.dims}
    folded = {name for name, _ in job.folds[0].dims}
    windows = [k for k, row in enumerate(image.index) if len(row.dims & kept) == len(row.dims & folded) == 1]
    directions = [_direction(job, image, fields[0].stored, axis) for axis in windows]
    rest = _without(image, fields[0].stored, windows)
    first = located(job, rest, fields[0].stored, fields[0].dtype)
    if plain is None or first is None or None in directions or len(windows) > MOST_DIRECTIONS:
        return None
    found = tuple(one for one in directions if one is not None)
    if not all(any(_within(bound, one) for one in found) for bound in image.guard):
        return None
    return _Sides(first, plain, out, found)


def _without(image: Read, stored: Stored, windows: Sequence[int]) -> tuple[Affine, ...]:
    """The index, with the first element that is stored along the axes of windows."""
    starts = [Affine.of(axis.runs[0].start if axis.runs else 0) for axis in stored.grid.axes]
    return tuple(starts[axis] if axis in windows else row for axis, row in enumerate(image.index))


def _within(bound: Bound, one: _Direction) -> bool:
    return bound.expr.dims <= {one.kept, one.folded}


# -- directions --------------------------------------------------------------------------------------------------------


def _direction(job: Job, image: Read, stored: Stored, axis: int) -> _Direction | None:
    """The windows along one axis, found by looking at all values of its two dimensions."""
    row, runs, extents = image.index[axis], stored.grid.axes[axis].runs, {n: hi for n, (_, hi) in job.ranges.items()}
    kept = [name for name, _ in job.kept if name in row.dims]
    if len(kept) != 1 or len(runs) != 1 or runs[0].step != 1:
        return None
    [name], [folded] = kept, row.dims - set(kept)
    if extents[name] * extents[folded] > MOST_POINTS:
        return None
    i, j = np.ogrid[: extents[name], : extents[folded]]
    points: dict[str, object] = {name: i, folded: j}
    index = np.broadcast_to(row.evaluate(points), (i.size, j.size))
    holds = np.ones(index.shape, bool)
    for bound in image.guard:
        if bound.expr.dims <= points.keys():
            value = bound.expr.evaluate(points)
            holds &= np.logical_and(bound.lo is None or bound.lo <= value, bound.hi is None or value < bound.hi)
    if not holds.any():
        return None
    lo, hi = int(index[holds].min()), int(index[holds].max()) + 1
    window, transposed = _straight(index, holds, lo, hi), False
    if window is None:
        window, transposed = _transposed(row, index, holds, lo, hi), True
    if window is None:
        return None
    step = prod(axis.size for axis in stored.grid.axes[axis + 1 :])
    return _Direction(name, folded, window, transposed, lo - runs[0].start, hi - lo, step)


def _straight(index: Values, holds: NDArray[np.bool_], lo: int, hi: int) -> Window | None:
    """index = stride * i + dilation * j - before + lo."""
    i, j = np.ogrid[: index.shape[0], : index.shape[1]]
    start, stride, dilation = int(index[0, 0]), int(index[1, 0] - index[0, 0]), int(index[0, 1] - index[0, 0])
    regular = stride > 0 and dilation > 0 and np.array_equal(index, start + stride * i + dilation * j)
    if not regular or not np.array_equal(holds, (lo <= index) & (index < hi)):
        return None
    return Window(stride, dilation, lo - start, int(index[-1, -1]) + 1 - hi)


def _transposed(row: Affine, index: Values, holds: NDArray[np.bool_], lo: int, hi: int) -> Window | None:
    """i = stride * (index - lo) + dilation * j - before, where there is such an index; others are left out."""
    stride = max([1, *(atom.divisor for atom, _ in row.terms if isinstance(atom, Floor))])
    i, j = np.ogrid[: index.shape[0], : index.shape[1]]
    if not holds.any(axis=0).all():
        return None
    first = holds.argmax(axis=0)
    shifts = first - stride * index[first, j[0]]
    dilation = int(shifts[1] - shifts[0])
    place = (i - shifts) // stride
    there = ((i - shifts) % stride == 0) & (lo <= place) & (place < hi)
    regular = dilation > 0 and np.array_equal(shifts, shifts[0] + dilation * j[0]) and np.array_equal(holds, there)
    before = -int(shifts[0]) - stride * lo
    if not regular or not np.array_equal(index[holds], place[holds]) or before < 0:
        return None
    reached = stride * (hi - lo - 1) + dilation * (index.shape[1] - 1) + 1
    return Window(stride, dilation, before, reached - index.shape[0] - before)


# -- the convolution ---------------------------------------------------------------------------------------------------


def _sorted(job: Job, folded: Dims, sides: _Sides) -> Convolution | None:
    """The other dimensions sorted by the arrays that have them, and each sort made one axis."""
    used = {name for one in sides.directions for name in (one.kept, one.folded)}
    image, other, out = sides.image, sides.other, sides.out
    if used & image.steps.keys() or any(one.kept in other.steps for one in sides.directions):
        return None
    if any(one.kept not in out.steps or one.folded not in other.steps for one in sides.directions):
        return None
    if len(used) < 2 * len(sides.directions):
        return None
    left = [dim for dim in (*job.kept, *folded) if dim[0] not in used]
    sorts = [_having(left, having, (image, other, out)) for having in ((0, 2), (1, 2), (0, 1), (0, 1, 2))]
    if sum(map(len, sorts)) < len(left) or any(step < 0 for f in (image, other, out) for step in f.steps.values()):
        return None
    return _built(job, sides, *sorts)


def _having(dims: Sequence[tuple[str, int]], having: tuple[int, ...], sides: Sequence[Factor]) -> Dims:
    """The dimensions that these of the arrays have, and no other has."""
    return tuple(dim for dim in dims if {k for k, side in enumerate(sides) if dim[0] in side.steps} == set(having))


def _built(job: Job, sides: _Sides, batch: Dims, channels: Dims, inner: Dims, groups: Dims) -> Convolution | None:
    """``batch`` are dimensions of image and result, ``channels`` of the other factor and the result, ``inner`` of both
    factors, ``groups`` of all three.
    """
    image, other, out, extents = sides.image, sides.other, sides.out, {n: hi for n, (_, hi) in job.ranges.items()}
    n, n_left = joined(batch, (image, out))
    k, k_left = joined(channels, (other, out))
    c, c_left = joined(inner, (image, other))
    g, g_left = joined(groups, (image, other, out))
    directions = sides.directions
    transposed = {one.transposed for one in directions}
    kept, folded = (prod(extents[getattr(one, name)] for one in directions) for name in ("kept", "folded"))
    weights = transposed == {False} and _of_weights(directions, extents) if directions else bool(c_left)
    if len(transposed) > 1 or k_left or g_left or (n_left if weights else c_left):
        return None
    whole = [prod(extent for _, extent in dims) for dims in (n, k, c, g, *((dim,) for dim in (*n_left, *c_left)))]
    if prod(whole) * kept * folded < WORTH:
        return None
    first = replace(image, offset=image.offset + sum(one.first * one.step for one in directions))
    arrays = _Arrays(n, k, c, g, (*n_left, *c_left), directions, extents)
    seen, taps, result = arrays.image(first, weights), arrays.other(other, weights), arrays.out(out, weights)
    count = prod(extent for _, extent in g)
    windows = (*(_turned(one.window, weights) for one in directions), *(Window(1, 1, 0, 0) for _ in arrays.alone))
    if not 0 < len(windows) <= MOST_DIRECTIONS or seen is None or taps is None or result is None:
        return None
    if weights:
        made = Convolution(seen, result, taps, windows, count, "w")
    elif True in transposed:
        made = Convolution(result, taps, seen, windows, count, "x")
    else:
        made = Convolution(seen, taps, result, windows, count, "y")
    return None if _thin(made) or _unreached(made) else made


def _of_weights(directions: Sequence[_Direction], extents: dict[str, int]) -> bool:
    """Whether what is kept is the taps: then it spans fewer elements of the image than what is folded."""
    spans = [(one.window.stride * extents[one.kept], one.window.dilation * extents[one.folded]) for one in directions]
    return prod(kept for kept, _ in spans) < prod(folded for _, folded in spans)


def _thin(convolution: Convolution) -> bool:
    """Whether there is but one channel on a side: then next to nothing is added up that a library could share."""
    return min(convolution.x.extents[1], convolution.y.extents[1]) < 2


def _turned(window: Window, weights: bool) -> Window:
    """Of a weight gradient, taps are kept and outputs folded."""
    return replace(window, stride=window.dilation, dilation=window.stride) if weights else window


def _unreached(convolution: Convolution) -> bool:
    """Whether no window reaches the last elements of x, and zeros cannot be as many on either side."""
    return any(window.after < 0 and not convolution.even(k) for k, window in enumerate(convolution.windows))


@dataclass(frozen=True)
class _Arrays:
    """The axes of the three arrays. ``alone``: dimensions that are directions of their own, with one tap."""

    batch: Dims
    channels: Dims
    inner: Dims
    groups: Dims
    alone: Dims
    directions: tuple[_Direction, ...]
    extents: dict[str, int]

    def image(self, factor: Factor, weights: bool) -> Strided | None:
        """[n, c, ..]; of a weight gradient n is folded, and c kept."""
        n, c = (self.inner, self.batch) if weights else (self.batch, self.inner)
        counts = [(one.count, one.step) for one in self.directions]
        return _strided(factor, [_axis(factor, n), self._grouped(factor, c), *counts, *self._alone(factor)])

    def other(self, factor: Factor, weights: bool) -> Strided | None:
        """Of a weight gradient y [n, k, ..], else the filters: [k, c, ..], of an input gradient [c, k, ..]."""
        lines = [_axis(factor, ((one.folded, self.extents[one.folded]),)) for one in self.directions]
        if weights:
            first = [_axis(factor, self.inner), self._grouped(factor, self.channels)]
            return _strided(factor, [*first, *lines, *self._alone(factor)])
        turned = any(one.transposed for one in self.directions)
        k, c = (self.inner, self.channels) if turned else (self.channels, self.inner)
        return _strided(factor, [self._grouped(factor, k), _axis(factor, c), *lines, *self._taps()])

    def out(self, factor: Factor, weights: bool) -> Strided | None:
        """Of a weight gradient the filters [k, c, ..], else [n, k, ..]."""
        lines = [_axis(factor, ((one.kept, self.extents[one.kept]),)) for one in self.directions]
        if weights:
            first = [self._grouped(factor, self.channels), _axis(factor, self.batch)]
            return _strided(factor, [*first, *lines, *self._taps()])
        first = [_axis(factor, self.batch), self._grouped(factor, self.channels)]
        return _strided(factor, [*first, *lines, *self._alone(factor)])

    def _grouped(self, factor: Factor, dims: Dims) -> _Axis | None:
        """The channels of all groups, one group after another; None where they do not lie so."""
        (count, step), (groups, apart) = _axis(factor, dims), _axis(factor, self.groups)
        if groups == 1 or count == 1:
            return (count, step) if groups == 1 else (groups, apart)
        return (groups * count, step) if apart == count * step else None

    def _alone(self, factor: Factor) -> list[_Axis]:
        return [_axis(factor, (dim,)) for dim in self.alone]

    def _taps(self) -> list[_Axis]:
        return [(1, 0) for _ in self.alone]


def _axis(factor: Factor, dims: Dims) -> _Axis:
    """Extent and step of dimensions that are one axis."""
    return (prod(extent for _, extent in dims), factor.steps[dims[-1][0]]) if dims else (1, 0)


def _strided(factor: Factor, axes: Sequence[_Axis | None]) -> Strided | None:
    found = [axis for axis in axes if axis is not None]
    if len(found) < len(axes):
        return None
    return Strided(factor.array, factor.offset, tuple(n for n, _ in found), tuple(step for _, step in found))
