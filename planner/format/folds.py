"""How many elements every rank receives and sends in transfers that fold one partial source, for many of them at once.

What is there and what is needed falls into pieces. Where these are grids, all that `planner.format.senders` says of a
fold is a table of [transfer, piece of what is there, piece of what is needed and rank]: who of the needers of a piece
fold which share of it, from whom these take the parts they lack, and whom they tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from ...space import Region
from .loads import ENTRIES, IN, OUT, Counts, Loads, Wanted, added_up, common_sizes, in_order, partial_loads, taken
from .senders import Groups
from .spread import Pieces, Spread


class Source:
    """A partial source: what each rank has, and the number of the part that it is a share of."""

    def __init__(self, held: Spread, parts: Sequence[int], groups: Groups, *, records: bool) -> None:
        self.held, self.parts, self.groups, self.records = held, parts, groups, records
        self.pieces = held.pieces
        contributions: dict[tuple[int, ...], list[int]] = {}
        for piece, holders in enumerate(self.pieces.holders):
            by_part: dict[int, list[int]] = {}
            for rank in holders:
                by_part.setdefault(parts[rank], []).append(rank)
            for ranks in by_part.values():
                contributions.setdefault(tuple(ranks), []).append(piece)
        self.contributions = Pieces([(Region(), ranks) for ranks in contributions], self.pieces.sizes)
        # By contributors, and the pieces that they have the same part of.
        self.given = [(k, piece) for k, pieces in enumerate(contributions.values()) for piece in pieces]

    def loads(self, needs: Sequence[Spread]) -> Loads:
        """What each of some layouts takes: elements and records by (transfer, received or sent, level, rank)."""
        return self.shared(needs)[0]

    def shared(self, needs: Sequence[Spread]) -> tuple[Loads, list[int]]:
        """The same, and of each what all counts of ranks that share a piece divide; 0 where that is not known."""
        simple = self.pieces.regions and all(len(region.grids) == 1 for region in self.pieces.regions)
        plain = [k for k, need in enumerate(needs) if simple and need.regions and _Needed.plain(need)]
        found = np.zeros((2, len(needs), 2, len(self.groups), len(self.parts)), dtype=np.int64)
        done: list[int] = []
        counts = [0] * len(needs)
        if plain:
            needed = {k: _Needed.of(needs[k]) for k in plain}
            met = _Met(self.pieces.regions, list(needed.values()), records=self.records)
            done = [k for k in plain if met.all_there(needed[k], len(self.parts))]
            for some in self._at_once({k: len(needed[k].ranks) for k in done}):
                told, contributed, sharing = self._counted([needed[k] for k in some], met)
                found[:, some] = told, contributed
                for k, count in zip(some, sharing, strict=True):
                    counts[k] = count
        for k in sorted({*range(len(needs))} - {*done}):
            alone = partial_loads(self.held.given, needs[k].given, self.parts, self.groups, records=self.records)
            found = found if alone.elements.dtype != object else found.astype(object)
            found[:, k] = alone.elements, alone.records
        return Loads(found[0], found[1]), counts

    def _at_once(self, entries: Mapping[int, int]) -> Iterator[list[int]]:
        """Transfers with about as many entries each, as many as one table is to hold."""
        some: list[int] = []
        for k in sorted(entries, key=entries.__getitem__):
            large = (len(some) + 1) * entries[k] * len(self.pieces.regions) > ENTRIES
            if some and (large or entries[k] > 2 * entries[some[0]]):
                yield some
                some = []
            some.append(k)
        if some:
            yield some

    def _counted(self, needs: Sequence[_Needed], met: _Met) -> tuple[Counts, Counts, list[int]]:
        table = _Table.of(needs, met)
        shares, sharing = self._shares(table, cut=met.cut)
        ranks = len(self.parts)
        transfers, pieces, entries = shares.shape
        repeated = np.repeat(table.ranks, pieces, axis=0)
        by_rank = added_up(repeated, shares.reshape(-1, entries), ranks).reshape(transfers, pieces, ranks)
        contributed = self._contributed(by_rank)
        told = np.zeros_like(contributed)
        for way, level, counts in _told(table, shares.sum(axis=1), self.groups):
            told[:, way, level] = added_up(table.ranks, counts, ranks)
        return told, contributed, sharing

    def _contributed(self, shares: Counts) -> Counts:
        """What comes to those who fold ``shares``, [transfer, piece, rank], from all who have a part of a piece."""
        if self.contributions.alone is not None:
            return self._given_alone(shares, self.contributions.alone)
        lacking = np.zeros((len(shares), len(self.contributions.holders), shares.shape[2]), dtype=np.int64)
        for k, piece in self.given:
            lacking[:, k] += shares[:, piece]
        lacking[:, self.contributions.held] = 0
        transfers, numbers, ranks = np.nonzero(lacking)
        wanted = Wanted(transfers, numbers, ranks, lacking[transfers, numbers, ranks])
        return taken(self.contributions, wanted, self.groups, len(shares))

    def _given_alone(self, shares: Counts, holders: Any) -> Counts:
        """The same where each part is one rank's, so that whoever folds a share of a piece has it from all who hold a
        part of it: all within a group is what its nearest level and those before it move.
        """
        which, piece = np.array(self.given, dtype=np.int64).T
        holder = holders[which]
        own = shares[:, piece, holder]
        found = np.zeros((len(shares), 2, len(self.groups), shares.shape[2]), dtype=np.int64)
        within = np.zeros((2, len(shares), shares.shape[2]), dtype=np.int64)
        for level, of in enumerate(self.groups):
            at, before = np.array(of), within
            parts = np.zeros((shares.shape[1], 1 + max(of)), dtype=np.int64)
            np.add.at(parts, (piece, at[holder]), 1)
            folded = added_up(at, shares.reshape(-1, len(at)), parts.shape[1]).reshape(*shares.shape[:2], -1)
            received = (shares * parts[:, at]).sum(axis=1) - added_up(holder, own, shares.shape[2])
            sent = added_up(holder, folded[:, piece, at[holder]] - own, shares.shape[2])
            within = np.stack([received, sent])
            found[:, :, level] = (within - before).swapaxes(0, 1)
        return found

    def _shares(self, table: _Table, *, cut: bool) -> tuple[Counts, list[int]]:
        """[transfer, piece of what is there, entry] elements that the rank folds of it; of each transfer what all
        counts of ranks that share a piece divide."""
        met, numbers = table.met, table.numbers
        pieces, transfers, entries = np.nonzero((met.elements > 0)[:, numbers])
        held = self.pieces.held[pieces, table.ranks[transfers, entries]]
        kinds = 1 + int(table.codes.max(initial=0))
        group = (transfers * len(met.elements) + pieces) * kinds + table.codes[transfers, entries]
        holding = np.bincount(group[held], minlength=int(group.max(initial=0)) + 1)[group]
        turn, count = (found[transfers, entries] for found in _like(table.codes))
        turn[held] = in_order(group[held])
        count = np.where(holding > 0, holding, count)
        folds = held | (holding == 0)
        pieces, transfers, entries, turn, count = (
            found[folds] for found in (pieces, transfers, entries, turn, count)
        )  # fmt: skip
        number = numbers[transfers, entries]
        longest = met.longest[pieces, number]
        length = (turn + 1) * longest // count - turn * longest // count if cut else 1 * (turn == 0)
        shares: Counts = np.zeros((len(numbers), len(met.elements), numbers.shape[1]), dtype=np.int64)
        shares[transfers, pieces, entries] = length * (met.elements[pieces, number] // longest)
        return shares, _shared_by(transfers, count, len(numbers)) if cut else [1] * len(numbers)


def _shared_by(transfers: Counts, count: Counts, size: int) -> list[int]:
    """Of each transfer what all its counts divide."""
    counts: list[set[int]] = [set() for _ in range(size)]
    most = 1 + int(count.max(initial=0))
    for both in np.unique(transfers * most + count).tolist():
        counts[both // most].add(both % most)
    return [lcm(*some) for some in counts]


class _Needed(NamedTuple):
    """Pieces of what is needed, none in common, by the ranks that need them: an entry for each rank of each piece, the
    ranks in order.

    ``total``: elements of all ranks.
    """

    pieces: Sequence[Region]
    ranks: Any
    codes: Any
    total: int

    @staticmethod
    def plain(need: Spread) -> bool:
        """Whether all pieces are single grids."""
        return need.apart or all(len(region.grids) == 1 for region in need.pieces.regions)

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(need: Spread) -> _Needed:
        if need.apart:
            pieces, entries = need.regions, [(r, code) for r, code in enumerate(need.codes.tolist()) if code >= 0]
        else:
            pieces = need.pieces.regions
            entries = sorted((rank, k) for k, holders in enumerate(need.pieces.holders) for rank in holders)
        ranks, codes = np.array(entries, dtype=np.int64).T
        return _Needed(pieces, ranks, codes, sum(region.size for region in need.given))


class _Table(NamedTuple):
    """[transfer, entry] of which rank it is; of which piece, -1 for no entry; and the number of this in ``met``."""

    ranks: Any
    codes: Any
    numbers: Any
    met: _Met

    @staticmethod
    def of(needs: Sequence[_Needed], met: _Met) -> _Table:
        shape = len(needs), max(len(need.ranks) for need in needs)
        ranks, codes = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
        numbers = np.full(shape, len(met.number), dtype=np.int64)
        for k, need in enumerate(needs):
            mine = slice(len(need.ranks))
            ranks[k, mine], codes[k, mine] = need.ranks, need.codes
            numbers[k, mine] = np.array([met.number[piece] for piece in need.pieces])[need.codes]
        return _Table(ranks, codes, numbers, met)


def _like(codes: Any) -> tuple[Any, Any]:
    """[transfer, entry] how many entries before it are of the same piece, and how many in all."""
    kinds = 2 + int(codes.max(initial=0))
    keys = np.arange(len(codes))[:, None] * kinds + 1 + codes
    return in_order(keys.reshape(-1)).reshape(codes.shape), np.bincount(keys.reshape(-1))[keys]


class _Met:
    """What pieces have in common with the pieces of some needs: ``elements``, and coordinates along the longest axis
    that may be cut, by [piece that is there, piece that is needed], with a last column for nothing."""

    def __init__(self, pieces: Sequence[Region], needs: Sequence[_Needed], *, records: bool) -> None:
        regions = list(dict.fromkeys(region for need in needs for region in need.pieces))
        self.number = {region: k for k, region in enumerate(regions)}
        per_axis = common_sizes(pieces, regions)
        able = per_axis[: len(per_axis) - records]
        elements = np.ones((len(pieces), len(regions)), dtype=np.int64)  # of scalars as well, which have no axes
        for table in per_axis:
            elements *= table
        longest = np.max(able, axis=0) if able else np.ones_like(elements)
        self.cut = bool(able)
        there = elements.sum(axis=0) == [region.size for region in regions]
        self.there = dict(zip(regions, there.tolist(), strict=True))
        self.elements, self.longest = (np.concatenate([t, 0 * t[:, :1]], axis=1) for t in (elements, longest))

    def all_there(self, needed: _Needed, ranks: int) -> bool:
        """Whether some piece has each element that is needed, and numbers are small."""
        return needed.total * ranks < 1 << 61 and all(self.there[region] for region in needed.pieces)


def _told(table: _Table, folded: Counts, groups: Groups) -> Iterator[tuple[int, int, Counts]]:
    """(received or sent, level, [transfer, entry]) of what ranks folded and tell all others that need the same."""
    kinds, transfers = 1 + int(table.codes.max()), np.arange(len(table.codes))[:, None]
    inner_in, inner_out = folded, np.zeros_like(folded)
    for level, of in enumerate(groups):
        key = (transfers * (1 + max(of)) + np.array(of)[table.ranks]) * (kinds + 1) + 1 + table.codes
        key = np.unique(key, return_inverse=True)[1].reshape(key.shape)
        heard = np.zeros(int(key.max()) + 1, dtype=np.int64)
        np.add.at(heard, key.reshape(-1), folded.reshape(-1))
        whole_in, whole_out = heard[key], folded * (np.bincount(key.reshape(-1))[key] - 1)
        yield IN, level, np.where(table.codes >= 0, whole_in - inner_in, 0)
        yield OUT, level, whole_out - inner_out
        inner_in, inner_out = whole_in, whole_out
