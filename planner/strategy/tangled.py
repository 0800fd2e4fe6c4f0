"""Who folds how much where the regions that ranks need overlap along one axis, as the keys of causal attention do.

Along this axis what ranks need falls into cells, each the values that the same ranks need. A cell of a piece is folded
by those who need it and contribute to it, or by all who need it if none contributes. All ranks that need the same of
the other axes are looked at together, as tables of ranks by cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..format.loads import IN, OUT
from .along import Along, Level
from .columns import Column, Columns, Ints, joined, overlap

Floats = NDArray[np.float64]

ENTRIES = 1 << 20  # of a table of ranks by cells that is made at once


class Cells(NamedTuple):
    """``inside[j, c]``: whether the j-th of some sets has cell c; ``length[u, c]``: values that the cell has in common
    with the u-th of other sets."""

    inside: Any  # of booleans
    length: Ints

    @staticmethod
    def of(sets: Column, some: Ints, others: Column) -> Cells:
        """Of the sets of one column with some numbers, all intervals."""
        assert others.spans is not None
        inside, cell, low, high = _cells(sets, some.tobytes())
        length = np.zeros((len(others.sets), inside.shape[1]), dtype=np.int64)
        for begin, end in zip(others.spans[0].T, others.spans[1].T, strict=True):
            both = np.minimum(end[:, None], high) - np.maximum(begin[:, None], low)
            np.add.at(length.T, cell, np.maximum(both, 0).T)
        return Cells(inside, length)


@lru_cache(maxsize=16)
def _cells(sets: Column, some: bytes) -> tuple[Any, Ints, Ints, Ints]:
    """[set, cell] which sets have a cell; of every interval between ends of sets its cell, and where it begins and
    ends."""
    assert sets.spans is not None
    low, high = (ends[np.frombuffer(some, dtype=np.int64)] for ends in sets.spans)
    ends = np.unique(np.concatenate([low, high]))
    inside = np.zeros((len(low), len(ends) - 1), dtype=bool)
    for begin, end in zip(low.T, high.T, strict=True):
        inside |= (begin[:, None] <= ends[:-1]) & (ends[:-1] < end[:, None])
    kept = np.flatnonzero(inside.any(axis=0))
    patterns = np.packbits(inside[:, kept].T, axis=1)
    numbers: dict[bytes, int] = {}
    cell = np.array([numbers.setdefault(pattern.tobytes(), len(numbers)) for pattern in patterns], dtype=np.int64)
    first = np.unique(cell, return_index=True)[1]
    return inside[:, kept[first]], cell, ends[kept], ends[kept + 1]


@dataclass
class Folds:
    """What is added up: ``shares[piece, rank]``, ``within[level, received or sent, rank]`` of what is told to others,
    and ``counts``, the numbers of ranks that share a piece.
    """

    shares: Ints
    within: Ints
    counts: set[int]


class Tangled:
    """Folds of parts to regions that overlap along one axis."""

    def __init__(self, source: Along, need: Columns, axis: int, able: int) -> None:
        """``able``: how many axes may be cut."""
        self.source, self.need, self.axis, self.able = source, need, axis, able
        self.others = [k for k in range(len(need)) if k != axis]

    def folds(self) -> Folds:
        """All of them."""
        ranks, pieces = self.source.ranks, len(self.source.first)
        within = np.zeros((len(self.source.levels), 2, ranks), dtype=np.int64)
        found = Folds(np.zeros((pieces, ranks), dtype=np.int64), within, {1})
        there = self.need[self.axis].sizes > 0
        beside = [self.need[k] for k in self.others]
        codes = joined(beside)[0] if beside else np.zeros(ranks, dtype=np.int64)
        for code in np.unique(codes[there]).tolist():
            _Alike(self, np.flatnonzero(there & (codes == code)), found).add()
        return found


class _Alike:
    """Ranks that need the same of all axes but one."""

    def __init__(self, tangled: Tangled, ranks: Ints, found: Folds) -> None:
        self.tangled, self.source, self.ranks, self.found = tangled, tangled.source, ranks, found
        self.sizes, self.longest = self._beside()
        column = tangled.need[tangled.axis]
        numbers, self.at = np.unique(column.codes[ranks], return_inverse=True)
        self.cells = Cells.of(column, numbers, self.source.cut[tangled.axis])
        self.piece = self.source.held.codes[ranks]
        sets = self.source.cut[tangled.axis].codes[self.source.first]  # of every piece
        able = np.flatnonzero(self.sizes > 0)
        self.pieces = _by(sets[able], able, self.cells.length.shape[0])
        mine = np.flatnonzero(self.sizes[self.piece] > 0)
        mine = mine[np.argsort(self.piece[mine], kind="stable")]
        self.holders = _by(sets[self.piece[mine]], mine, self.cells.length.shape[0])

    def _beside(self) -> tuple[Ints, Ints]:
        """Per piece, of all axes but one, how many elements of it these ranks need, and the most along an axis that may
        be cut."""
        first, mine = self.source.first, self.ranks[:1]
        sizes, longest = np.ones_like(first), np.ones_like(first)
        for k in self.tangled.others:
            have, need = self.source.cut[k], self.tangled.need[k]
            common = overlap(have, have.codes[first], need, need.codes[mine])
            sizes *= common
            if k < self.tangled.able:
                np.maximum(longest, common, out=longest)
        return sizes, longest

    def add(self) -> None:
        """Add what is folded, some cells at a time."""
        step = max(1, ENTRIES // len(self.ranks))
        for begin in range(0, self.cells.inside.shape[1], step):
            cells = np.arange(begin, min(begin + step, self.cells.inside.shape[1]))
            inside = self.cells.inside[:, cells].astype(np.float64)[self.at]
            folded = np.zeros_like(inside)
            turn = np.cumsum(inside, axis=0) - 1
            for number in np.flatnonzero(self.cells.length[:, cells].any(axis=1)).tolist():
                self._fold(number, cells, inside, turn, folded)
            for level, within in zip(self.source.levels, self.found.within, strict=True):
                self._tell(level, within, inside, folded)

    def _fold(self, number: int, cells: Ints, inside: Floats, turn: Floats, folded: Floats) -> None:
        """Of pieces with one set of the axis. ``inside``, ``turn``: [rank, cell] whether it is needed, and how many
        ranks before need it; ``folded`` is added to. Counts are whole numbers that floating point has exactly."""
        pieces, mine = self.pieces[number], self.holders[number]
        length = self.cells.length[number, cells]
        met = np.flatnonzero(length)
        if not len(pieces):
            return
        holding = np.zeros((len(pieces), len(met)))
        if len(mine):
            self._contributing(mine, np.searchsorted(pieces, self.piece[mine]), holding, met, inside, length, folded)
        without = holding == 0
        some = np.flatnonzero(without.any(axis=0))
        if len(some):
            self._needing(pieces, without[:, some], met[some], inside, turn, length[met[some]], folded)

    def _contributing(
        self, mine: Ints, group: Ints, holding: Floats, met: Ints, inside: Floats, length: Ints, folded: Floats
    ) -> None:
        """Those who need and contribute to a piece fold it. ``mine``: these ranks piece by piece; ``group``: the place
        of the piece of each."""
        wanted = inside[np.ix_(mine, met)]
        turn = np.cumsum(wanted, axis=0)
        start = np.flatnonzero(np.diff(group, prepend=-1))
        last = np.append(start[1:], len(mine)) - 1
        base = turn[start] - wanted[start]
        holding[group[start]] = turn[last] - base
        turn -= np.repeat(base, np.diff(np.append(start, len(mine))), axis=0) + 1 if len(start) > 1 else 1
        piece = self.piece[mine]
        shares = self._shares(turn, holding[group] if len(start) > 1 else holding[group[:1]], piece, length[met])
        shares *= wanted
        self.found.shares[piece, self.ranks[mine]] += shares.sum(axis=1).astype(np.int64)
        folded[np.ix_(mine, met)] += shares
        self._count(holding)

    def _needing(
        self, pieces: Ints, without: Any, cells: Ints, inside: Floats, turn: Floats, length: Ints, folded: Floats
    ) -> None:
        """Where no needer contributes, all of them fold. ``without``: [piece, cell] where that is so."""
        wanted, turn = inside[:, cells], turn[:, cells]
        count = turn[-1] + 1
        kinds, which = np.unique(
            np.stack([self.sizes[pieces], self.longest[pieces]]), axis=1, return_index=True, return_inverse=True
        )[1:]
        for kind, one in enumerate(pieces[kinds].tolist()):
            alike = which.reshape(-1) == kind
            shares = self._shares(turn, count, np.array([one]), length)
            shares *= wanted
            total = without[alike].astype(np.float64) @ shares.T
            self.found.shares[np.ix_(pieces[alike], self.ranks)] += total.astype(np.int64)
            folded[:, cells] += shares * without[alike].sum(axis=0)
        self._count(count)

    def _count(self, counts: Floats) -> None:
        """How many ranks share pieces."""
        if self.tangled.able:
            self.found.counts |= {*map(int, np.unique(counts).tolist())} - {0}

    def _shares(self, turn: Floats, count: Floats, pieces: Ints, length: Ints) -> Floats:
        """What a rank folds whose turn it is among so many, of pieces with so many values of the axis."""
        first = pieces[:1]
        uniform = all((table[pieces] == table[first]).all() for table in (self.sizes, self.longest))
        pieces = first if uniform else pieces
        sizes, longest = self.sizes[pieces][:, None] * length, self.longest[pieces][:, None]
        if not self.tangled.able:
            return np.where(turn == 0, sizes, 0.0)
        if self.tangled.axis < self.tangled.able:
            longest = np.maximum(longest, length)
        count = np.maximum(count, 1)
        before = turn * longest
        found: Floats = before + longest
        for cut in (before, found):
            cut /= count
            np.floor(cut, out=cut)
        found -= before
        found *= sizes // longest
        return found

    def _tell(self, level: Level, within: Ints, inside: Floats, folded: Floats) -> None:
        """What is folded is told to all others that need it."""
        order, start, group = _grouped(level.of[self.ranks])
        heard, count = (_summed(table, order, start) for table in (folded, inside))
        alone = len(start) == 1
        received = inside @ heard[0] if alone else np.einsum("rc,rc->r", inside, heard[group])
        sent = folded @ count[0] if alone else np.einsum("rc,rc->r", folded, count[group])
        own = folded.sum(axis=1)
        within[IN, self.ranks] += (received - own).astype(np.int64)
        within[OUT, self.ranks] += (sent - own).astype(np.int64)


def _by(numbers: Ints, some: Ints, count: int) -> list[Ints]:
    """Those of some that have each number, in their order."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(count + 1))
    return [some[order[low:high]] for low, high in pairwise(ends.tolist())]


def _summed(table: Floats, order: Ints, start: Ints) -> Floats:
    """The sum of the rows of each group."""
    size = len(order) // len(start)
    found: Floats
    if size * len(start) == len(order) and (order[::size] == start).all() and (np.diff(order) == 1).all():
        found = table.reshape(len(start), size, -1).sum(axis=1)
    else:
        found = np.add.reduceat(table[order], start, axis=0)
    return found


def _grouped(of: Ints) -> tuple[Ints, Ints, Ints]:
    """The places group by group, where each group begins, and the number of the group of each place."""
    order = np.argsort(of, kind="stable")
    start = np.flatnonzero(np.diff(of[order], prepend=-1))
    group = np.empty_like(of)
    group[order] = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(of))))
    return order, start, group
