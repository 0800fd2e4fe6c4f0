"""Which operations are convolutions over two directions: read off their index expressions, whatever the names.

    y[n, k, p, q] = sum over j, r, s of
        x[n, width * (k // per) + j, step * p + gap * r - before, step * q + gap * s - before] * w[k, j, r, s]

in any order of the axes of x, w and y, read as zero outside of x. `width` channels in and `per` channels out make a
group; dense convolutions have one group, depthwise ones a width of 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

import numpy as np

from .expr import Affine, Bound, Read
from .program import Operation, Program


@dataclass(frozen=True)
class Line:
    """One direction of a window: index = step * output + gap * tap - before, of an axis of `extent` elements.

    `step` is the stride and `gap` the dilation. Those of a dimension of one element that is missing are 1.
    """

    output: str
    tap: str
    step: int
    gap: int
    before: int
    extent: int

    def within(self, outputs: tuple[int, int], taps: tuple[int, int]) -> tuple[int, int, int]:
        """(elements, before, after): what ranges [first, end) of outputs and taps read of the axis, at least one
        element, and how many places before and after it they read as zero.
        """
        (first, last), (low, high) = outputs, taps
        begin = first * self.step + low * self.gap - self.before
        end = (last - 1) * self.step + (high - 1) * self.gap - self.before + 1
        start, stop = max(begin, 0), min(end, self.extent)
        return max(stop - start, 1), start - begin, end - stop


@dataclass(frozen=True)
class Convolution:
    """What an operation convolves, in the names of its own dimensions.

    image, filters         the tensors x and w
    batch, channel, inner  the dimensions n, k and j
    width, per             channels of a group, in and out
    x_axes                 where x has its batch, rows, columns and channels; `y_axes` likewise of what is written
    w_axes                 where w has k, the taps of rows and of columns, and j
    """

    image: str
    filters: str
    batch: str
    channel: str
    inner: str
    rows: Line
    columns: Line
    width: int
    per: int
    x_axes: tuple[int, ...]
    w_axes: tuple[int, ...]
    y_axes: tuple[int, ...]

    @property
    def channels_last(self) -> bool:
        """Whether x is [n, h, w, c], w is [k, r, s, j] and y is [n, p, q, k]."""
        return self.x_axes == self.w_axes == self.y_axes == (0, 1, 2, 3)


def convolution(op: Operation, program: Program) -> Convolution | None:
    """The convolution that an operation of a program is, or None."""
    if op.factors is None or op.where or len(op.dims) != 7 or len(op.reduce_dims) != 3:
        return None
    return _found(op, tuple((name, program.tensor(name).shape) for name in op.operands))


@lru_cache(maxsize=65536)
def _found(op: Operation, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Convolution | None:
    reads = [arg for arg in op.factors or () if isinstance(arg, Read) and len(arg.index) == 4]
    if len(reads) != 2 or len(op.write) != 4:
        return None
    found = [match for x, w in (reads, reads[::-1]) for match in _matches(op, x, w, dict(shapes)[x.tensor])]
    # Where axes have one element they may be several things: what x and y agree on comes first.
    return next((match for match in found if match.x_axes == match.y_axes), next(iter(found), None))


def _matches(op: Operation, image: Read, filters: Read, shape: Sequence[int]) -> Iterator[Convolution]:
    """Every way to see a convolution in the operation, the natural orders first."""
    if not filters.guard and _pads(image, shape, op.extents):
        matches = (_matched(op, image, filters, roles, shape) for roles in _roles(op, image, filters))
        yield from (match for match in matches if match is not None)


def _pads(image: Read, shape: Sequence[int], extents: Mapping[str, int]) -> bool:
    """Whether a guard leaves out only what lies outside of the image, which then reads as zero."""
    return not image.guard or (
        image.fill == 0 and all(_outside(bound, image.index, shape, extents) for bound in image.guard)
    )


def _outside(bound: Bound, index: Sequence[Affine], shape: Sequence[int], extents: Mapping[str, int]) -> bool:
    """Whether, wherever the bound fails, some index lies outside of its axis."""
    for row, extent in zip(index, shape, strict=True):
        varying = {name for name in bound.expr.dims if extents[name] > 1}
        if varying <= row.dims:
            points = _points(bound.expr.dims | row.dims, extents)
            value, at = bound.expr.evaluate(points), row.evaluate(points)
            holds = np.logical_and(bound.lo is None or bound.lo <= value, bound.hi is None or value < bound.hi)
            if np.all(holds | (at < 0) | (at >= extent)):
                return True
    return False


def _points(names: frozenset[str], extents: Mapping[str, int]) -> dict[str, object]:
    """Every point of the box of some dimensions, as arrays that broadcast."""
    ordered = sorted(names)
    return dict(zip(ordered, np.ix_(*(np.arange(extents[name]) for name in ordered)), strict=True))


@dataclass(frozen=True)
class _Roles:
    """A way to name the dimensions and to order the axes that may be that of a convolution."""

    parallel: tuple[str, ...]  # n, p, q, k
    folded: tuple[str, ...]  # r, s, j
    x_axes: tuple[int, ...]


# Batch, rows, columns, channels: channels last, second, then anywhere.
_ORDERS = tuple(dict.fromkeys([(0, 1, 2, 3), (0, 2, 3, 1), *permutations(range(4))]))


def _roles(op: Operation, image: Read, filters: Read) -> Iterator[_Roles]:
    """Those that the plain indices leave. Where dimensions have one element several mean the same: the first counts."""
    extents = op.extents
    for axes, (n, p, q, k) in product(_ORDERS, permutations(op.parallel_dims)):
        if _is(image.index[axes[0]], n, extents) and any(_is(row, k, extents) for row in filters.index):
            for folded in permutations(op.reduce_dims):
                yield _Roles((n, p, q, k), folded, axes)


def _matched(op: Operation, image: Read, filters: Read, roles: _Roles, shape: Sequence[int]) -> Convolution | None:
    """The convolution of these roles, if every index is what it must be."""
    (n, p, q, k), (r, s, j), extents = roles.parallel, roles.folded, op.extents
    _, y, x, c = roles.x_axes
    rows = _line(image.index[y], p, r, extents, shape[y])
    columns = _line(image.index[x], q, s, extents, shape[x])
    per = _group(image.index[c], k, j, extents)
    w_axes, y_axes = _places(filters.index, (k, r, s, j), extents), _places(op.write, (n, p, q, k), extents)
    if rows is None or columns is None or per is None or w_axes is None or y_axes is None:
        return None
    return Convolution(
        image.tensor, filters.tensor, n, k, j, rows, columns, extents[j], per, roles.x_axes, w_axes, y_axes
    )


def _is(row: Affine, name: str, extents: Mapping[str, int]) -> bool:
    """Whether an index is a dimension itself; of one with one element, 0 says the same."""
    return row == Affine.dim(name) or (extents[name] == 1 and row == Affine())


def _places(index: Sequence[Affine], names: Sequence[str], extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """The axes that the dimensions are, each another one, those named first."""
    left, found = list(range(len(index))), {}
    for name in sorted(names, key=lambda name: Affine.dim(name) not in index):
        axis = next((axis for axis in left if index[axis] == Affine.dim(name)), None)
        if axis is None:
            axis = next((axis for axis in left if _is(index[axis], name, extents)), None)
        if axis is None:
            return None
        left.remove(axis)
        found[name] = axis
    return tuple(found[name] for name in names)


def _line(row: Affine, output: str, tap: str, extents: Mapping[str, int], extent: int) -> Line | None:
    """step * output + gap * tap - before, step and gap positive."""
    if not row.is_affine or not row.dims <= {output, tap}:
        return None
    steps = [row.coefficient(name) or (1 if extents[name] == 1 else 0) for name in (output, tap)]
    return Line(output, tap, steps[0], steps[1], -row.const, extent) if min(steps) > 0 else None


def _group(row: Affine, channel: str, inner: str, extents: Mapping[str, int]) -> int | None:
    """Channels out of a group: `per` where an index is width * (channel // per) + inner, all groups alike."""
    width, count = extents[inner], extents[channel]
    plain = Affine.dim(inner) * row.coefficient(inner)
    first = row - plain
    if not row.dims <= {channel, inner} or inner in first.dims or (plain != Affine.dim(inner) and width > 1):
        return None
    begins = np.broadcast_to(first.evaluate({channel: np.arange(count)}), (count,))
    per = int(np.count_nonzero(begins == 0))
    alike = per and count % per == 0 and np.array_equal(begins, np.arange(count) // per * width)
    return per if alike else None
