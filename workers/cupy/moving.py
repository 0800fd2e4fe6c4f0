"""Copies between arrays that store parts of a tensor: which elements go where, found once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

import numpy as np

from ...space import Grid, IntSet, Region
from ..device import Packed, Runner, Stored, in_order, nothing, packets
from .arrays import DeviceArray
from .machine import Lines, Machine

# Bytes that one access may take.
WIDEST = 16
# Boxes of rows that are worth a call of a copy engine each, and the bytes from row to row that it takes.
BOXES, FARTHEST = 16, (1 << 31) - 1


@dataclass(frozen=True)
class Segment:
    """Elements along one axis: how many, the first place and the step on either side."""

    count: int
    source: int
    source_step: int
    target: int
    target_step: int


def segments(region: IntSet, source: IntSet, target: IntSet) -> list[Segment]:
    """The elements of ``region`` along an axis as they lie in two storages; those that either lacks are left out."""
    found = []
    for run in region.runs:
        for a, before in _runs(source):
            for b, other in _runs(target):
                for part in ((IntSet((run,)) & IntSet((a,))) & IntSet((b,))).runs:
                    first, step = _local(part, a, before)
                    second, other_step = _local(part, b, other)
                    found.append(Segment(len(part), first, step, second, other_step))
    return found


def _runs(axis: IntSet) -> Iterator[tuple[range, int]]:
    """The runs of an axis and how many elements are stored before each."""
    before = 0
    for run in axis.runs:
        yield run, before
        before += len(run)


def _local(part: range, run: range, before: int) -> tuple[int, int]:
    return before + (part.start - run.start) // run.step, max(1, part.step // run.step)


Pick = tuple[Segment, ...]


def picks(region: Region, source: Grid, target: Grid) -> list[Pick]:
    """Boxes of elements that lie evenly in both storages, a segment for each axis."""
    found: list[Pick] = []
    for grid in region.grids:
        axes = [segments(*axis) for axis in zip(grid.axes, source.axes, target.axes, strict=True)]
        found += product(*axes)
    return found


def lines_of(pick: Pick, source: Stored, target: Stored) -> Lines:
    """A box as the fewest and widest accesses: axes that lie together on both sides are one."""
    item = source.array.dtype.itemsize
    steps = _steps(source.array.shape, item), _steps(target.array.shape, item)
    starts = [
        sum(getattr(s, side) * step for s, step in zip(pick, steps[k], strict=True)) for k, side in enumerate(_SIDES)
    ]
    axes = [(item, 1, 1)]
    for segment, first, second in reversed(list(zip(pick, *steps, strict=True))):
        if segment.count > 1:
            axes.append((segment.count, segment.source_step * first, segment.target_step * second))
    merged = [axes[0]]
    for n, first, second in axes[1:]:
        count, a, b = merged[-1]
        if (first, second) == (count * a, count * b):
            merged[-1] = (count * n, a, b)
        else:
            merged.append((n, first, second))
    addresses = source.array.pointer + starts[0], target.array.pointer + starts[1]
    rest = merged[1:]
    width = gcd(WIDEST, merged[0][0], *addresses, *(step for _, *pair in rest for step in pair))
    last = (merged[0][0] // width, width, width)
    shape, from_, to = zip(*[*reversed(rest), last], strict=True)
    return Lines(*addresses, width, shape, from_, to)


@dataclass(frozen=True)
class Rows:
    """So many rows of bytes, and the bytes from one to the next on either side."""

    source: int
    source_step: int
    target: int
    target_step: int
    nbytes: int
    count: int


def rows_of(lines: Lines) -> list[Rows] | None:
    """A copy as a few of rows, which copy engines take; None where it is none."""
    *outer, count, words = lines.extents
    nbytes = words * lines.width
    steps = lines.source_steps[-2], lines.target_steps[-2]
    if prod(outer) > BOXES or not all(nbytes <= step <= FARTHEST for step in steps):
        return None
    found = []
    for at in np.ndindex(*outer):
        first, second = (
            sum(k * step for k, step in zip(at, given, strict=False))
            for given in (lines.source_steps, lines.target_steps)
        )
        found.append(Rows(lines.source + first, steps[0], lines.target + second, steps[1], nbytes, count))
    return found


_SIDES = ("source", "target")


def _steps(shape: Sequence[int], item: int) -> list[int]:
    """Bytes from one element to the next along each axis."""
    found, step = [], item
    for n in reversed(shape):
        found.append(step)
        step *= n
    return found[::-1]


def bind_copy(machine: Machine, source: Stored, target: Stored, region: Region) -> Runner:
    """Copy the elements of a region that both store; either side may be NumPy's."""
    found = picks(region, source.grid, target.grid)
    if not found:
        return nothing
    if isinstance(source.array, np.ndarray):
        return _coming(machine, source, target, found)
    if isinstance(target.array, np.ndarray):
        return _leaving(machine, source, target, found)
    arrays = source.array, target.array
    return in_order([machine.copy(lines_of(pick, source, target), arrays) for pick in found])


def _place(pick: Pick, side: str) -> tuple[slice, ...]:
    places = [(getattr(s, side), getattr(s, f"{side}_step"), s.count) for s in pick]
    return (*(slice(at, at + (n - 1) * step + 1, step) for at, step, n in places),)


def _dense(machine: Machine, pick: Pick, like: DeviceArray) -> Stored:
    """Memory of the device for a box, and the grid 0:n of it."""
    shape = tuple(segment.count for segment in pick)
    size = int(np.prod(shape, dtype=np.int64)) * like.dtype.itemsize
    memory = machine.memory("", size)
    return Stored(DeviceArray(memory, 0, shape, like.dtype), Grid(tuple(IntSet.interval(0, n) for n in shape)))


def _flat(pick: Pick, side: str) -> Pick:
    """The same elements where one side is dense."""
    other = _SIDES[1 - _SIDES.index(side)]
    found = []
    for s in pick:
        kept = {other: getattr(s, other), f"{other}_step": getattr(s, f"{other}_step")}
        found.append(Segment(count=s.count, **{side: 0, f"{side}_step": 1}, **kept))
    return tuple(found)


def _together(pick: Pick, side: str, stored: Stored) -> DeviceArray | None:
    """The elements of a box as one stretch of a device's array, None where they lie apart."""
    array: DeviceArray = stored.array
    shape = tuple(segment.count for segment in pick)
    dense = Stored(replace(array, shape=shape), stored.grid)  # whose place does not matter
    other = _SIDES[1 - _SIDES.index(side)]
    flat, sides = _flat(pick, other), (stored, dense) if side == "source" else (dense, stored)
    lines = lines_of(flat, *sides)
    if len(lines.extents) > 1:
        return None
    first = lines.source if side == "source" else lines.target
    return replace(array, offset=array.offset + first - array.pointer, shape=(prod(shape),))


def _coming(machine: Machine, source: Stored, target: Stored, found: Sequence[Pick]) -> Runner:
    """From NumPy, by way of a dense copy on the device where they do not lie together there."""

    def run() -> None:
        for pick in found:
            values = np.ascontiguousarray(source.array[(*_place(pick, "source"), ...)])
            if (whole := _together(pick, "target", target)) is not None:
                machine.upload(values.tobytes(), whole)
                continue
            staged = _dense(machine, pick, target.array)
            machine.upload(values.tobytes(), staged.array)
            machine.copy(lines_of(_flat(pick, "source"), staged, target), (staged.array, target.array))()
            machine.synchronise()

    return run


def _leaving(machine: Machine, source: Stored, target: Stored, found: Sequence[Pick]) -> Runner:
    """To NumPy, by way of a dense copy on the device where they do not lie together there."""

    def run() -> None:
        for pick in found:
            made = _together(pick, "source", source)
            if made is None:
                staged = _dense(machine, pick, source.array)
                machine.copy(lines_of(_flat(pick, "target"), source, staged), (source.array, staged.array))()
                made = staged.array
            values = np.frombuffer(machine.download(made), source.array.dtype)
            target.array[(*_place(pick, "target"), ...)] = values.reshape([segment.count for segment in pick])

    return run


# -- elements on their way ---------------------------------------------------------------------------------------------


def packed_parts(packed: Packed) -> list[tuple[Region, Stored]]:
    """The grids of packed elements, each a dense array."""
    grids = [Region((grid,)) for grid in packed.region.grids]
    found = []
    for part, region in zip(packets(packed.array, grids), grids, strict=True):
        [grid] = region.grids
        found.append((region, Stored(part.array.reshape(grid.shape), grid)))
    return found


def bind_pack(machine: Machine, source: Stored, target: Packed) -> Runner:
    """The elements of a region, grid after grid, one after another."""
    return in_order([bind_copy(machine, source, part, region) for region, part in packed_parts(target)])


def bind_unpack(machine: Machine, source: Packed, target: Stored) -> Runner:
    """Put back what `bind_pack` took."""
    return in_order([bind_copy(machine, part, target, region) for region, part in packed_parts(source)])


def contiguous(stored: Stored, region: Region) -> DeviceArray | None:
    """The elements of a region as one stretch of the memory that stores them, None where they are no such stretch."""
    if len(region.grids) != 1 or isinstance(stored.array, np.ndarray):
        return None
    [grid] = region.grids
    found = picks(region, stored.grid, grid)
    if len(found) != 1:
        return None
    array, start, reach = stored.array, 0, 1
    for segment, n in zip(reversed(found[0]), reversed(array.shape), strict=True):
        start += segment.source * reach
        reach *= n
    whole = True  # axes behind are taken whole, so that one more may be cut
    for segment, n in zip(reversed(found[0]), reversed(array.shape), strict=True):
        if segment.count > 1 and (not whole or segment.source_step != 1):
            return None
        whole = whole and segment.count == n
    flat: DeviceArray = array.reshape((array.size,))
    return flat[start : start + region.size]
