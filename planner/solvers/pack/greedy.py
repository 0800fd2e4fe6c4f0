"""Packing one group after another, in several orders. Enough for most plans; search takes over where it is not."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from .groups import Group
from .problem import Buffer


def greedy_packings(buffers: Sequence[Buffer], groups: Sequence[Group]) -> Iterator[list[int]]:
    """Offsets of all buffers, one list for each order and fit. No capacity is kept."""
    keys = _sort_keys(buffers, groups)
    neighbours = _Neighbours(buffers)
    for key, best_fit in product(keys, (True, False)):
        order = sorted(range(len(groups)), key=key.__getitem__)
        yield _place_all(buffers, [groups[g] for g in order], neighbours, best_fit)


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


class _Neighbours:
    """Of each buffer those that are alive with it at some instant; looked up once for all orders."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._lower = np.array([b.lower for b in buffers], np.int64)
        self._upper = np.array([b.upper for b in buffers], np.int64)
        self._sized = np.array([b.size > 0 for b in buffers], np.bool_)
        self._found: dict[int, list[int]] = {}

    def of(self, i: int) -> list[int]:
        if i not in self._found:
            meets = (self._lower < self._upper[i]) & (self._upper > self._lower[i]) & self._sized
            self._found[i] = np.flatnonzero(meets).tolist()
        return self._found[i]


def _place_all(
    buffers: Sequence[Buffer], groups: Sequence[Group], neighbours: _Neighbours, best_fit: bool
) -> list[int]:
    offsets = [0] * len(buffers)
    taken: list[tuple[int, int] | None] = [None] * len(buffers)  # bottom and top of what is placed and takes anything
    for group in sorted(groups, key=lambda g: g.offset is None):  # pinned ones first; the sort is stable
        members = [i for i in group.members if buffers[i].size]
        offset = group.offset
        if offset is None:
            # Of each member what is placed and alive with it, and how much below that its own bottom has to be.
            beside = [(list(filter(None, map(taken.__getitem__, neighbours.of(i)))), buffers[i].size) for i in members]
            offset = _offset(beside, group.alignment, best_fit)
        for i in group.members:
            offsets[i] = offset
        for i in members:
            taken[i] = offset, offset + buffers[i].size
    return offsets


def _offset(beside: list[tuple[list[tuple[int, int]], int]], alignment: int, best_fit: bool) -> int:
    """The lowest allowed offset, or the one that leaves the smallest hole."""
    if len(beside) == 1:
        spans, size = beside[0]
    else:  # as if all took nothing, and what is placed began that much lower
        spans, size = [(bottom - own, top) for mine, own in beside for bottom, top in mine], 0
    spans.sort()
    top, best, smallest = 0, None, 0
    for bottom, end in spans:
        if bottom - size >= top:
            start = top + -top % alignment
            room = bottom - size - start  # how far above the start an offset may still be
            if room >= 0 and not best_fit:
                return start
            if room >= 0 and (best is None or room < smallest):
                best, smallest = start, room
        if end > top:
            top = end
    return top + -top % alignment if best is None else best
