"""Packing one group after another, in several orders. Enough for most plans; search takes over where it is not."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from .groups import Group
from .problem import Buffer


def greedy_packings(buffers: Sequence[Buffer], groups: Sequence[Group]) -> Iterator[tuple[list[int], int]]:
    """Offsets of all buffers and their peak, one after another for several orders and fits, each lower than those
    before. No capacity is kept.
    """
    keys = _sort_keys(buffers, groups)
    lowest: int | None = None
    for key, best_fit in product(keys, (True, False)):
        order = sorted(range(len(groups)), key=key.__getitem__)
        found = _place_all(buffers, [groups[g] for g in order], best_fit, lowest)
        if found is not None:
            lowest = found[1]
            yield found
    if any(group.offset is not None for group in groups):
        return
    neighbours = _Neighbours(buffers)
    for key in _upward_keys(buffers, groups):
        found = _place_upwards(buffers, groups, key, neighbours, lowest)
        if found is not None:
            lowest = found[1]
            yield found


def _upward_keys(buffers: Sequence[Buffer], groups: Sequence[Group]) -> list[list[tuple[int, ...]]]:
    """Sort keys of the groups for orders upwards: by the largest total alive with them, or by lifetime."""
    starts = sorted({b.lower for b in buffers})
    change = np.zeros(len(starts) + 1, np.int64)
    spans = [(bisect_left(starts, b.lower), bisect_left(starts, b.upper)) for b in buffers]
    for b, (first, last) in zip(buffers, spans, strict=True):
        change[first] += b.size
        change[last] -= b.size
    totals = change.cumsum()
    most = [max(int(totals[slice(*spans[i])].max()) for i in g.members) for g in groups]
    sized = [(total, _area(buffers, g), *_span(buffers, g)) for total, g in zip(most, groups, strict=True)]
    return [
        [(-total, -(upper - lower), -area) for total, area, lower, upper in sized],
        [(-total, -area, -(upper - lower)) for total, area, lower, upper in sized],
        [(-(upper - lower), -area) for total, area, lower, upper in sized],
    ]


def _sort_keys(buffers: Sequence[Buffer], groups: Sequence[Group]) -> list[list[tuple[int, ...]]]:
    """Sort keys of the groups for each order: size, area, lifetime, start; larger first, ties by the others."""
    sized = [(max(buffers[i].size for i in g.members), _area(buffers, g), *_span(buffers, g)) for g in groups]
    return [
        [(-size, -(upper - lower), lower) for size, area, lower, upper in sized],
        [(-area, -size, lower) for size, area, lower, upper in sized],
        [(-(upper - lower), -size, lower) for size, area, lower, upper in sized],
        [(lower, -(upper - lower), -size) for size, area, lower, upper in sized],
    ]


def _area(buffers: Sequence[Buffer], group: Group) -> int:
    return sum(buffers[i].size * (buffers[i].upper - buffers[i].lower) for i in group.members)


def _span(buffers: Sequence[Buffer], group: Group) -> tuple[int, int]:
    return min(buffers[i].lower for i in group.members), max(buffers[i].upper for i in group.members)


class _Places:
    """What is placed so far, from the lowest bottom up: columns of its bottom, its top and its lifetime."""

    def __init__(self, count: int) -> None:
        self._columns, self._count = np.zeros((4, count), np.int64), 0

    def put(self, buffer: Buffer, offset: int) -> None:
        columns, count = self._columns, self._count
        at = columns[0, :count].searchsorted(offset)
        columns[:, at + 1 : count + 1] = columns[:, at:count]
        columns[:, at] = offset, offset + buffer.size, buffer.lower, buffer.upper
        self._count = count + 1

    def beside(self, buffer: Buffer) -> tuple[Any, Any]:
        """Bottoms and tops of what is placed and alive with a buffer; the bottoms lower by its size, in their order."""
        bottoms, tops, lower, upper = self._columns[:, : self._count]
        alive = ((lower < buffer.upper) & (upper > buffer.lower)).nonzero()[0]
        return bottoms.take(alive) - buffer.size, tops.take(alive)


class _Neighbours:
    """Of each buffer those that are alive with it at some instant; looked up once for all orders."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._lower = np.array([b.lower for b in buffers], np.int64)
        self._upper = np.array([b.upper for b in buffers], np.int64)
        self._sized = np.array([b.size > 0 for b in buffers], np.bool_)
        self._found: dict[int, Any] = {}

    def of(self, i: int) -> Any:
        if i not in self._found:
            meets = (self._lower < self._upper[i]) & (self._upper > self._lower[i]) & self._sized
            self._found[i] = np.flatnonzero(meets)
        return self._found[i]


def _place_all(
    buffers: Sequence[Buffer], groups: Sequence[Group], best_fit: bool, below: int | None
) -> tuple[list[int], int] | None:
    """Offsets and their peak; None as soon as something ends no lower than `below`."""
    offsets, peak, places = [0] * len(buffers), 0, _Places(len(buffers))
    for group in sorted(groups, key=lambda g: g.offset is None):  # pinned ones first; the sort is stable
        members = [i for i in group.members if buffers[i].size]
        offset = group.offset
        if offset is None:
            # Of each member what is placed and alive with it, and how much below that its own bottom has to be.
            beside = [places.beside(buffers[i]) for i in members]
            offset = _offset(beside, group.alignment, best_fit)
        for i in group.members:
            offsets[i] = offset
            peak = max(peak, offset + buffers[i].size)
        if below is not None and peak >= below:
            return None
        for i in members:
            places.put(buffers[i], offset)
    return offsets, peak


def _place_upwards(
    buffers: Sequence[Buffer],
    groups: Sequence[Group],
    key: Sequence[tuple[int, ...]],
    neighbours: "_Neighbours",
    below: int | None,
) -> tuple[list[int], int] | None:
    """As `_place_all`, but whatever can lie lowest comes next, on top of all that it meets; those of one offset by
    their key. None is pinned.
    """
    owner = np.zeros(len(buffers), np.int64)
    for k, group in enumerate(groups):
        owner[list(group.members)] = k
    rank = np.empty(len(groups), np.int64)
    rank[sorted(range(len(groups)), key=key.__getitem__)] = np.arange(len(groups))
    align = np.array([group.alignment for group in groups], np.int64)
    offsets, peak = [0] * len(buffers), 0
    lowest, left = np.zeros(len(groups), np.int64), np.arange(len(groups))
    while len(left):
        at = lowest[left]
        low = at == at.min()
        k = int(left[low][rank[left[low]].argmin()])
        left = left[left != k]
        for i in groups[k].members:
            offsets[i] = int(lowest[k])
            top = offsets[i] + buffers[i].size
            peak = max(peak, top)
            if buffers[i].size:
                met = owner[neighbours.of(i)]
                met = met[met != k]
                lowest[met] = np.maximum(lowest[met], top + -top % align[met])
        if below is not None and peak >= below:
            return None
    return offsets, peak


def _offset(beside: Sequence[tuple[Any, Any]], alignment: int, best_fit: bool) -> int:
    """The lowest allowed offset, or the one that leaves the smallest hole; as if all took nothing, and what is placed
    began that much lower.
    """
    if not beside:
        return 0
    bottoms, tops = beside[0]
    if len(beside) > 1:
        bottoms, tops = map(np.concatenate, zip(*beside, strict=True))
        order = bottoms.argsort()
        bottoms, tops = bottoms[order], tops[order]
    starts = np.zeros(len(bottoms) + 1, np.int64)
    np.maximum.accumulate(tops, out=starts[1:])
    starts += -starts % alignment
    room = bottoms - starts[:-1]  # how far above a start an offset may still be
    holes = (room >= 0).nonzero()[0]
    if not len(holes):
        return int(starts[-1])
    return int(starts[holes[room[holes].argmin()] if best_fit else holes[0]])
