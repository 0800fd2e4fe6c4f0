"""Stored arrays of a rank, and strided views of what an index expression touches over a box."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ...expr import Affine
from ...space import Grid, IntSet
from ..device import Stored
from .folding import Array

Slices = tuple[slice, ...]
# Slices and an ellipsis, so that indexing a 0-d array gives an array.
Place = tuple[Any, ...]


def strided(stored: Stored, index: Sequence[Affine], dims: Sequence[tuple[str, int]]) -> Array | None:
    """View [dims ...] of ``stored[index]`` over the box 0 <= d < extent; dimensions that do not occur are 1 long.

    None where the local index is not affine: floors, or an axis that touches more than one interval of the storage.
    """
    ranges = {name: (0, extent) for name, extent in dims}
    offset, strides = 0, dict.fromkeys(ranges, 0)
    for expr, axis, step in zip(index, stored.grid.axes, stored.array.strides, strict=True):
        base = _local_base(expr, axis, ranges)
        if base is None:
            return None
        offset += (expr.const - base) * step
        for name, c in expr.terms:
            strides[str(name)] += c * step
    shape = [extent if strides[name] else 1 for name, extent in dims]
    return np.ndarray(
        shape,
        stored.array.dtype,
        stored.array.reshape(-1).view(np.uint8).data,
        offset,
        [strides[name] for name, _ in dims],
    )


def _local_base(expr: Affine, axis: IntSet, ranges: dict[str, tuple[int, int]]) -> int | None:
    """What to subtract from a global index on an axis to get the local one, if that is the same over the whole box."""
    if not expr.is_affine:
        return None
    lo, hi = expr.bounds(ranges)
    for run in axis.runs:
        if run.start <= lo and hi <= run.stop:
            return run.start - axis.position(run.start)
    return None


def position_table(axis: IntSet) -> Array:
    """Local index of every global index in the hull of a storage axis, -1 where nothing is stored."""
    table = np.full(axis.hi - axis.lo, -1, dtype=np.int64)
    place = 0
    for run in axis.runs:
        table[run.start - axis.lo : run.stop - axis.lo] = np.arange(place, place + len(run))
        place += len(run)
    return table


def collapse(view: Array, axes: Sequence[int]) -> tuple[int, int] | None:
    """(length, stride) of several axes of a view seen as one, or None; axes 1 long do not count."""
    length, stride = 1, 0
    for axis in reversed(axes):
        if view.shape[axis] == 1:
            continue
        if length == 1:
            stride = view.strides[axis]
        elif view.strides[axis] != stride * length:
            return None
        length *= view.shape[axis]
    return length, stride


def slabs(shape: Sequence[int], order: Sequence[int], limit: int) -> list[Slices]:
    """Cut a box into slabs of at most about ``limit`` points, whole along the axes that come last in ``order``."""
    block = list(shape)
    left = max(1, limit)
    for axis in reversed(order):
        block[axis] = max(1, min(shape[axis], left))
        left //= block[axis]
    steps = [[slice(at, min(at + b, n)) for at in range(0, n, b)] for n, b in zip(shape, block, strict=True)]
    return list(product(*steps))


def slab_shape(slab: Slices) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in slab)


def within(array: Array, slab: Slices) -> Array:
    """The part of a broadcasting array that belongs to a slab: axes 1 long are kept whole."""
    index: Place = (*(cut if n > 1 else slice(None) for cut, n in zip(slab, array.shape, strict=True)), ...)
    part: Array = array[index]
    return part


def axis_pairs(region: IntSet, source: IntSet, target: IntSet) -> list[tuple[slice, slice]]:
    """Local slices (in a buffer storing ``source``, in one storing ``target``) of the same global elements of
    ``region``.

    ``source`` and ``target`` consist of intervals. Elements that either does not store are left out.
    """
    pairs = []
    for run in region.runs:
        for a in source.runs:
            for b in target.runs:
                common = (IntSet((run,)) & IntSet((a,))) & IntSet((b,))
                for part in common.runs:
                    pairs.append((_local(part, a, source), _local(part, b, target)))
    return pairs


def _local(part: range, interval: range, axis: IntSet) -> slice:
    first = part.start - interval.start + axis.position(interval.start)
    return slice(first, first + part.stop - part.start, part.step)


def grid_pairs(region: Grid, source: Grid, target: Grid) -> list[tuple[Place, Place]]:
    """Local slices of the same elements of a grid in two storages."""
    per_axis = [axis_pairs(*axes) for axes in zip(region.axes, source.axes, target.axes, strict=True)]
    return [((*(a for a, _ in pick), ...), (*(b for _, b in pick), ...)) for pick in product(*per_axis)]
