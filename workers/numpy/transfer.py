"""Moving and folding elements between stored arrays.

Partial results are stored in their tensor's dtype. A fold of parts computes in the compute type (at least float32,
exact integers), in the order of the part numbers, and rounds once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...errors import TapestryError
from ...space import Grid, IntSet, Region
from .attention import fold_states
from .folding import Array, fold_ufunc
from .views import Place, Stored, axis_pairs, grid_pairs

Pairs = list[tuple[Place, Place]]


def move(source: Stored, target: Stored, region: Region) -> None:
    """Copy the elements of a region that both store."""
    for from_, to in region_pairs(region, source, target):
        target.array[to] = source.array[from_]


def region_pairs(region: Region, source: Stored, target: Stored) -> Pairs:
    """Local slices of the same elements in two stored arrays."""
    return [pair for grid in region.grids for pair in grid_pairs(grid, source.grid, target.grid)]


# -- payloads ----------------------------------------------------------------------------------------------------


def _compact_axis(axis: IntSet, storage: IntSet) -> list[tuple[slice, slice]]:
    """(slice of the storage, slice of the compact axis), the compact axis being run after run of ``axis``."""
    pairs, start = [], 0
    for run in axis.runs:
        for interval in storage.runs:
            for part in (IntSet((run,)) & IntSet((interval,))).runs:
                [(local, _)] = axis_pairs(IntSet((part,)), storage, IntSet((interval,)))
                first = start + (part.start - run.start) // run.step
                pairs.append((local, slice(first, first + len(part))))
        start += len(run)
    return pairs


def _compact_pairs(grid: Grid, storage: Grid) -> Iterable[tuple[Place, Place]]:
    axes = [_compact_axis(*pair) for pair in zip(grid.axes, storage.axes, strict=True)]
    return (((*(a for a, _ in pick), ...), (*(b for _, b in pick), ...)) for pick in product(*axes))


def pack(source: Stored, region: Region) -> Array:
    """The elements of a region, grid after grid, one after another."""
    payload = np.empty(region.size, source.array.dtype)
    for grid, part in _parts(region, payload):
        for local, compact in _compact_pairs(grid, source.grid):
            part[compact] = source.array[local]
    return payload


def unpack(payload: Array, target: Stored, region: Region) -> None:
    """Put back what `pack` took."""
    for grid, part in _parts(region, payload):
        for local, compact in _compact_pairs(grid, target.grid):
            target.array[local] = part[compact]


def _parts(region: Region, payload: Array) -> list[tuple[Grid, Array]]:
    """The payload as one compact array per grid."""
    found, start = [], 0
    for grid in region.grids:
        found.append((grid, payload[start : start + grid.size].reshape(grid.shape)))
        start += grid.size
    return found


def received(payload: Array, region: Region) -> Stored:
    """A payload as a stored array; no copy where its region is one grid of intervals."""
    storage = region.storage()
    assert storage is not None
    if len(region.grids) == 1 and storage == region.grids[0]:
        return Stored(payload.reshape(storage.shape), storage)
    stored = Stored(np.empty(storage.shape, payload.dtype), storage)
    unpack(payload, stored, region)
    return stored


# -- folds -------------------------------------------------------------------------------------------------------


def fold_parts(parts: Sequence[tuple[Region, Stored]], target: Stored, monoid: str) -> None:
    """Fold contributions, in the order given, into the elements of ``target`` that they cover."""
    covered = Region.of(*(grid for region, _ in parts for grid in region.grids))
    total = _accumulator(covered, target)
    if total is None:
        return
    started = Region()
    for region, source in parts:
        first, again = region - started, region & started
        move(source, total, first)
        for from_, to in region_pairs(again, source, total):
            _combine(total.array[to], source.array[from_], monoid)
        started = started | region
    if total is not target:
        move(total, target, covered)


def _accumulator(covered: Region, target: Stored) -> Stored | None:
    """Where to add up: the target, unless its floats are narrower than the compute type."""
    storage = covered.storage()
    if storage is None:
        return None
    # Integers wrap the same way whatever the width.
    if target.array.dtype.kind in "bi" or target.array.itemsize >= 4:
        return target
    return Stored(np.empty(storage.shape, np.float32), storage)


def _combine(total: Array, more: Array, monoid: str) -> None:
    if monoid == "online_softmax":
        fold_states(total, more)
    else:
        fold_ufunc(monoid)(total, more, out=total, casting="unsafe")


def demand(stored: Stored | None, what: str, **where: Any) -> Stored:
    """A buffer that a task needs; TapestryError if the rank stores nothing of it."""
    if stored is None:
        raise TapestryError(f"{what} stores nothing", where=", ".join(f"{key} {value}" for key, value in where.items()))
    return stored
