"""Moving, packing and folding elements, bound to their arrays: which slices go where is found once.

Partial results are stored as records of their monoid. A fold of parts combines them in the order of the part numbers,
16-bit floats in float32 where the monoid rounds, and finishes and rounds once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...dtypes import DTYPES, name_of
from ...expr import MONOIDS, Monoid
from ...space import Grid, IntSet, Region
from ..device import Packed, Runner, Stored, in_order, nothing, packets
from .folding import Array, Reduction, compute_dtype
from .records import combined, state_of, store, store_records
from .views import Place, axis_pairs, grid_pairs

Pairs = list[tuple[Array, Array]]


def _copying(pairs: Pairs) -> Runner:
    """Copies (target, source) view by view."""
    if not pairs:
        return nothing
    if len(pairs) == 1:
        [(target, source)] = pairs
        return lambda: np.copyto(target, source)

    def run() -> None:
        for to, from_ in pairs:
            np.copyto(to, from_)

    return run


def bind_move(source: Stored, target: Stored, region: Region) -> Runner:
    """Copy the elements of a region that both store."""
    return _copying([(target.array[to], source.array[from_]) for from_, to in region_pairs(region, source, target)])


def region_pairs(region: Region, source: Stored, target: Stored) -> list[tuple[Place, Place]]:
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


def _packed_pairs(packed: Packed, stored: Stored) -> Pairs:
    """Views of the same elements: (of the packed array, of the stored one)."""
    found: Pairs = []
    grids = [Region((grid,)) for grid in packed.region.grids]
    for part, region in zip(packets(packed.array, grids), grids, strict=True):
        compact = part.array.reshape(region.grids[0].shape)
        found += [(compact[to], stored.array[at]) for at, to in _compact_pairs(region.grids[0], stored.grid)]
    return found


def bind_pack(source: Stored, target: Packed) -> Runner:
    """The elements of a region, grid after grid, one after another."""
    return _copying(_packed_pairs(target, source))


def bind_unpack(source: Packed, target: Stored) -> Runner:
    """Put back what `bind_pack` took."""
    return _copying([(to, from_) for from_, to in _packed_pairs(source, target)])


def contiguous(stored: Stored, region: Region) -> Array | None:
    """The elements of a region as one stretch of the memory that stores them, None where they are no such stretch."""
    if len(region.grids) != 1:
        return None
    places = list(_compact_pairs(region.grids[0], stored.grid))
    if len(places) != 1:
        return None
    view: Array = stored.array[places[0][0]]
    return view.reshape(-1) if view.flags.c_contiguous else None


def _stored(part: Packed) -> tuple[Stored, Runner]:
    """Packed elements as a stored array and what fills it; no copy where their region is one grid of intervals."""
    storage = part.region.storage()
    assert storage is not None
    if len(part.region.grids) == 1 and storage == part.region.grids[0]:
        return Stored(part.array.reshape(storage.shape), storage), nothing
    stored = Stored(np.empty(storage.shape, part.array.dtype), storage)
    return stored, bind_unpack(part, stored)


# -- folds -------------------------------------------------------------------------------------------------------


def bind_fold(parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: str) -> Runner:
    """Fold contributions, in the order given, into the elements of ``target`` that they cover."""
    entry = MONOIDS[monoid]
    covered = Region.of(*(grid for region, _ in parts for grid in region.grids))
    storage = covered.storage()
    if storage is None:
        return nothing
    records = parts[0][1].array.dtype
    wide = _summed(entry, records)
    total = target if target.array.dtype == wide else Stored(np.empty(storage.shape, wide), storage)
    started, steps = Region(), []
    for region, held in parts:
        source, unpacking = _stored(held) if isinstance(held, Packed) else (held, nothing)
        first, again = region - started, region & started
        pairs = [(total.array[to], source.array[from_]) for from_, to in region_pairs(again, source, total)]
        moving = nothing if source.array is total.array else bind_move(source, total, first)
        steps += [unpacking, moving, _combining(pairs, entry)]
        started = started | region
    if total is not target:
        pairs = [(target.array[to], total.array[from_]) for from_, to in region_pairs(covered, total, target)]
        steps.append(_finishing(pairs, entry))
    return in_order(steps)


def _summed(monoid: Monoid, records: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which records are combined: their compute type where combining them rounds."""
    if monoid.function is None or monoid.packed:
        return records
    dtype = name_of(records)
    return records if DTYPES[dtype].kind in monoid.exact else compute_dtype(dtype)


def _combining(pairs: Pairs, monoid: Monoid) -> Runner:
    """total = fold of total and more, view by view."""
    if not pairs:
        return nothing
    plain = Reduction.ufunc_of(monoid)

    def run() -> None:
        for total, more in pairs:
            if plain is not None:
                plain(total, more, out=total, casting="unsafe")
            else:
                store_records(monoid, combined(monoid, state_of(monoid, total), state_of(monoid, more)), total)

    return run


def _finishing(pairs: Pairs, monoid: Monoid) -> Runner:
    """The results of folded records, view by view."""

    def run() -> None:
        for target, total in pairs:
            store(monoid, state_of(monoid, total), target)

    return run
