"""Packing one group after another, in several orders. Enough for most plans; search takes over where it is not."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from .groups import Group
from .problem import Buffer

Ints = NDArray[np.int64]


def greedy_packings(buffers: Sequence[Buffer], groups: Sequence[Group]) -> Iterator[Ints]:
    """Offsets of all buffers, shape [buffers], one array for each order and fit. No capacity is kept."""
    keys = _sort_keys(buffers, groups)
    for key, best_fit in product(keys, (True, False)):
        order = sorted(range(len(groups)), key=key.__getitem__)
        yield _place_all(buffers, [groups[g] for g in order], best_fit)


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


class _Arena:
    """What is placed so far, as columns (lower, upper, bottom, top)."""

    def __init__(self, rows: int) -> None:
        self._columns = np.empty((4, rows), np.int64)
        self._rows = 0

    def add(self, b: Buffer, offset: int) -> None:
        self._columns[:, self._rows] = b.lower, b.upper, offset, offset + b.size
        self._rows += 1

    def forbidden(self, b: Buffer) -> tuple[Ints, Ints]:
        """Open intervals (low, high) in which an offset of `b` would overlap something alive with it."""
        lower, upper, bottom, top = self._columns[:, : self._rows]
        meets = (lower < b.upper) & (upper > b.lower)
        return bottom[meets] - b.size, top[meets]


def _place_all(buffers: Sequence[Buffer], groups: Sequence[Group], best_fit: bool) -> Ints:
    arena = _Arena(len(buffers))
    offsets = np.zeros(len(buffers), np.int64)
    for group in sorted(groups, key=lambda g: g.offset is None):  # pinned ones first; the sort is stable
        members = [i for i in group.members if buffers[i].size]
        offset = group.offset
        if offset is None:
            offset = _offset([arena.forbidden(buffers[i]) for i in members], group.alignment, best_fit)
        for i in members:
            arena.add(buffers[i], offset)
        offsets[list(group.members)] = offset
    return offsets


def _offset(forbidden: Sequence[tuple[Ints, Ints]], alignment: int, best_fit: bool) -> int:
    """The lowest allowed offset, or the one that leaves the smallest hole."""
    if not forbidden:
        return 0
    lows = np.concatenate([low for low, _ in forbidden])
    highs = np.concatenate([high for _, high in forbidden])
    order = np.argsort(lows, kind="stable")
    starts = np.zeros(len(order) + 1, np.int64)
    np.maximum.accumulate(highs[order], out=starts[1:])
    starts += -starts % alignment
    room = lows[order] - starts[:-1]  # how far above each start an offset may still be
    holes = np.flatnonzero(room >= 0)
    if not len(holes):
        return int(starts[-1])
    return int(starts[holes[np.argmin(room[holes])]] if best_fit else starts[holes[0]])
