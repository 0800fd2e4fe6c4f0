"""How many elements every rank receives and sends in a transfer, without a list of its messages.

What `planner.format.senders` says, counted: messages are millions where ranks are thousands, and a search asks for
thousands of transfers. Equal regions are counted once, and regions that are one grid each axis by axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...records import Width
from ...space import IntSet, Region
from .messages import atoms, refined
from .senders import Groups, contributors, least, share_sizes, who_folds

Counts = Any  # elements: arrays of int64, or of Python's integers where these may be greater
IN, OUT = 0, 1
ENTRIES = 1 << 21  # of an array of transfers by pieces by ranks that is made at once


@dataclass(frozen=True)
class Loads:
    """Elements, and records that are folded, by (received or sent, level of `Groups` that it crosses, rank)."""

    elements: Counts
    records: Counts

    def nbytes(self, width: Width) -> Counts:
        """Bytes, by the same."""
        return self.elements * width.complete + self.records * width.partial

    @property
    def moved(self) -> int:
        """Elements and records that all ranks receive from one another."""
        return int((self.elements + self.records)[IN].sum())


class Spread:
    """What each rank has, told apart: the different regions, and who has which; -1 who has nothing."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.given = tuple(regions)
        numbers: dict[Region, int] = {}
        codes = [numbers.setdefault(region, len(numbers)) if region else -1 for region in regions]
        self.regions = list(numbers)
        self.codes = np.array(codes, dtype=np.int64)

    @cached_property
    def apart(self) -> bool:
        """Whether different regions are known to have nothing in common: single grids, cut along axes."""
        if any(len(region.grids) != 1 or not region.grids[0].axes for region in self.regions):
            return False
        return all(map(_apart, zip(*(region.grids[0].axes for region in self.regions), strict=True)))

    @cached_property
    def pieces(self) -> Pieces:
        """The disjoint pieces of it, each with all the ranks that hold it."""
        if self.apart:
            ranks: dict[int, list[int]] = {}
            for rank, code in enumerate(self.codes.tolist()):
                ranks.setdefault(code, []).append(rank)
            held = [(region, tuple(ranks[code])) for code, region in enumerate(self.regions)]
            return Pieces(held, [region.size for region in self.given])
        return Pieces(refined(dict(enumerate(self.given))), [region.size for region in self.given])


@lru_cache(maxsize=1024)
def _apart(sets: tuple[IntSet, ...]) -> bool:
    different = dict.fromkeys(sets)
    return IntSet().union(*different).size == sum(values.size for values in different)


class Pieces:
    """Disjoint regions with the ranks that hold each."""

    def __init__(self, pieces: Sequence[tuple[Region, tuple[int, ...]]], sizes: Sequence[int]) -> None:
        """sizes: elements that each rank holds in all."""
        self.regions = [region for region, _ in pieces]
        self.holders = [holders for _, holders in pieces]
        self.sizes = sizes
        self._turns: dict[Groups, list[Turn]] = {}

    @cached_property
    def held(self) -> Any:
        """By piece and rank whether it holds it."""
        found = np.zeros((len(self.holders), len(self.sizes)), dtype=bool)
        for k, holders in enumerate(self.holders):
            found[k, list(holders)] = True
        return found

    @cached_property
    def alone(self) -> Any | None:
        """By piece its only holder; None where one has several."""
        if any(len(holders) != 1 for holders in self.holders):
            return None
        return np.array([holders[0] for holders in self.holders], dtype=np.int64)[:, None]

    def turns(self, groups: Groups) -> list[Turn]:
        """Which ranks take in turn: per group those of which no nearer group has a holder."""
        if groups not in self._turns:
            left, found = np.ones(self.held.shape, dtype=bool), []
            for of in groups:
                for group in range(max(of) + 1):
                    table, count = self._table([rank for rank, its in enumerate(of) if its == group])
                    able = left & (count > 0)[:, None] & (np.array(of) == group)
                    if able.any():
                        found.append(Turn(able, table, np.maximum(count, 1)))
                        left &= ~able
            self._turns[groups] = found
        return self._turns[groups]

    def _table(self, members: Sequence[int]) -> tuple[Any, Any]:
        """Per piece its holders among some ranks, filled up, and how many they are."""
        among = frozenset(members)
        there = ([rank for rank in ranks if rank in among] for ranks in self.holders)
        chosen = [least(ranks, self.sizes) if ranks else ranks for ranks in there]
        count = np.array([len(ranks) for ranks in chosen], dtype=np.int64)
        table = np.zeros((len(chosen), max(1, int(count.max()))), dtype=np.int64)
        for k, ranks in enumerate(chosen):
            table[k, : len(ranks)] = ranks
        return table, count


class Turn(NamedTuple):
    """By piece and rank whether it takes part, and per piece the holders that it takes from, with how many they are."""

    able: Any
    table: Any
    count: Any

    def pick(self, wanting: Any) -> Any:
        """By piece and rank who sends to it, for every transfer."""
        turn = np.cumsum(wanting & self.able, axis=2) - 1
        return self.table[np.arange(len(self.table))[:, None], turn % self.count[:, None]]


def _common(pieces: Pieces, regions: Sequence[Region], ranks: int) -> Counts:
    """Elements that each piece has in common with each of some regions."""
    most = max(region.size for region in regions) * max(1, ranks)
    found = np.ones((len(pieces.regions), len(regions)), dtype=np.int64 if most < 1 << 62 else object)
    if any(len(region.grids) != 1 for region in (*pieces.regions, *regions)):
        found[:] = [[a.meet_size(b) for b in regions] for a in pieces.regions]
        return found
    for table in common_sizes(pieces.regions, regions):
        found *= table
    return found


def common_sizes(some: Sequence[Region], others: Sequence[Region]) -> list[Any]:
    """Per axis how many coordinates each of some regions has in common with each of others, all of one grid."""
    mine, theirs = ([region.grids[0].axes for region in regions] for regions in (some, others))
    found = []
    for a, b in zip(zip(*mine, strict=True), zip(*theirs, strict=True), strict=True):
        sets, others_sets = dict.fromkeys(a), dict.fromkeys(b)
        at, there = ({axis: k for k, axis in enumerate(different)} for different in (sets, others_sets))
        table = _sizes(tuple(sets), tuple(others_sets))
        found.append(table[np.array([at[x] for x in a])[:, None], [there[x] for x in b]])
    return found


@lru_cache(maxsize=8192)
def _sizes(mine: tuple[IntSet, ...], theirs: tuple[IntSet, ...]) -> Any:
    """How many values each of some sets has in common with each of others."""
    return np.array([[(a & b).size for b in theirs] for a in mine], dtype=np.int64)


def complete_loads(held: Spread, needs: Sequence[Spread], groups: Groups) -> Counts:
    """Of a transfer from one complete source to each of some layouts: elements by (transfer, received or sent, level
    that they cross, rank).
    """
    ranks, pieces = len(held.given), held.pieces
    regions = list(dict.fromkeys(region for need in needs for region in need.regions))
    found = np.zeros((len(needs), 2, len(groups), ranks), dtype=np.int64)
    if not pieces.regions or not regions:
        return found
    common = _common(pieces, regions, ranks)
    common = np.concatenate([common, np.zeros_like(common[:, :1])], axis=1)  # what is not needed, last
    at = {region: k for k, region in enumerate(regions)}
    codes = np.array([[at.get(region, -1) for region in need.given] for need in needs])
    found = found.astype(common.dtype, copy=False)
    step = max(1, ENTRIES // (len(pieces.regions) * ranks))
    for first in range(0, len(needs), step):
        some = slice(first, first + step)
        lacking = common[:, codes[some]].swapaxes(0, 1)
        lacking = np.where(pieces.held, 0, lacking)
        found[some] = taken(lacking, senders_of(pieces, lacking, groups), groups)
    return found


def senders_of(pieces: Pieces, lacking: Counts, groups: Groups) -> Any:
    """By transfer, piece and rank who sends: `planner.format.senders.in_turn` for many pieces at once."""
    if pieces.alone is not None:
        return np.broadcast_to(pieces.alone, lacking.shape)
    wanting = lacking > 0
    first, *others = pieces.turns(groups)
    found = first.pick(wanting)
    for turn in others:
        found = np.where(turn.able, turn.pick(wanting), found)
    return found


def taken(lacking: Counts, senders: Any, groups: Groups) -> Counts:
    """What each rank lacks of each piece comes from its sender."""
    counts = np.zeros((len(lacking), 2, len(groups), lacking.shape[2]), dtype=lacking.dtype)
    for level, of in enumerate(groups):
        moved = lacking
        if level < len(groups) - 1:
            at = np.array(of)
            moved = np.where(at[senders] == at, lacking, 0)
            lacking = lacking - moved
        counts[:, IN, level] = moved.sum(axis=1)
        transfer = np.arange(len(lacking))[:, None, None]
        np.add.at(counts[:, OUT, level], (transfer, senders), moved)
    return counts


def partial_loads(
    held: Sequence[Region], needed: Sequence[Region], parts: Sequence[int], groups: Groups, *, records: bool
) -> Loads:
    """Of a transfer that folds a partial source."""
    folds = []
    for piece, holders, needers in atoms(held, needed):
        contributions, able = who_folds(holders, needers, parts)
        cut = [(root, size) for root, size in zip(able, share_sizes(piece, len(able), records), strict=True) if size]
        folds.append((contributions, needers, [root for root, _ in cut], [size for _, size in cut]))
    sources = contributors(((fold[0], fold[2]) for fold in folds), groups, [region.size for region in held])
    contributed, told = _Sent(), _Sent()
    for contributions, needers, roots, sizes in folds:
        for _, holders in contributions:
            contributed.add(_sources(roots, holders, sources), roots, sizes)
        for needer in needers:
            told.add(roots, [needer] * len(roots), sizes)
    return Loads(told.counts(groups), contributed.counts(groups))


def _sources(
    roots: Sequence[int], holders: tuple[int, ...], sources: dict[tuple[int, ...], dict[int, int]]
) -> list[int]:
    """Who each root has a part from."""
    if len(holders) == 1:
        return [holders[0]] * len(roots)
    return [root if root in holders else sources[holders][root] for root in roots]


class _Sent:
    """So many elements from each of some ranks to another one each."""

    def __init__(self) -> None:
        self.senders: list[int] = []
        self.receivers: list[int] = []
        self.sizes: list[int] = []

    def add(self, senders: Sequence[int], receivers: Sequence[int], sizes: Sequence[int]) -> None:
        self.senders += senders
        self.receivers += receivers
        self.sizes += sizes

    def counts(self, groups: Groups) -> Counts:
        """By received or sent, level and rank."""
        large = sum(self.sizes) >= 1 << 61
        exact = np.dtype(object) if large else np.dtype(np.int64)
        found = np.zeros((2, len(groups), len(groups[0])), dtype=exact)
        senders, receivers = (np.array(ranks, dtype=np.int64) for ranks in (self.senders, self.receivers))
        _send(found, senders, receivers, np.array(self.sizes, dtype=exact), groups)
        return found


def _send(counts: Counts, senders: Any, receivers: Any, sizes: Counts, groups: Groups) -> None:
    """So many elements from each of some ranks to another one each; to itself is no traffic."""
    left = senders != receivers
    for level, of in enumerate(groups):
        at = np.array(of)
        on = left & (at[senders] == at[receivers])
        left = left & ~on
        np.add.at(counts[IN, level], receivers[on], sizes[on])
        np.add.at(counts[OUT, level], senders[on], sizes[on])


def loads_of(
    held: Sequence[Region],
    needed: Sequence[Region],
    groups: Groups,
    parts: Sequence[int] | None = None,
    *,
    records: bool = False,
) -> Loads:
    """Of any transfer."""
    if parts is not None:
        return partial_loads(held, needed, parts, groups, records=records)
    (counts,) = complete_loads(Spread(held), [Spread(needed)], groups)
    return Loads(counts, np.zeros_like(counts))
