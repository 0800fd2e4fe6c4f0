"""How many elements every rank receives and sends in a transfer, without a list of its messages.

What `planner.format.senders` says, counted: messages are millions where ranks are thousands, and a search asks for
thousands of transfers. Equal regions are counted once, and regions that are one grid each axis by axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...records import Width
from ...space import IntSet, Region
from .messages import atoms
from .senders import Groups, among, contributors, share_sizes, who_folds
from .spread import Pieces, Spread

Counts = Any  # elements: arrays of int64, or of Python's integers where these may be greater
IN, OUT = 0, 1
ENTRIES = 1 << 21  # of an array of transfers by pieces by ranks that is made at once
EXACT = 1 << 53  # sums below this are exact in floating point as well


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


class Wanted(NamedTuple):
    """What ranks lack, an entry for each transfer, piece and rank, in their order, the piece before the transfer or the
    other way round."""

    transfers: Any
    pieces: Any
    ranks: Any
    elements: Counts

    def where(self, chosen: Any) -> Wanted:
        return Wanted(*(field[chosen] for field in self))


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
        table = sizes_of_both(tuple(sets), tuple(others_sets))
        found.append(table[np.array([at[x] for x in a])[:, None], [there[x] for x in b]])
    return found


@lru_cache(maxsize=8192)
def sizes_of_both(mine: tuple[IntSet, ...], theirs: tuple[IntSet, ...]) -> Any:
    """How many values each of some sets has in common with each of others."""
    if any(run.step != 1 for values in (*mine, *theirs) for run in values.runs):
        return np.array([[(a & b).size for b in theirs] for a in mine], dtype=np.int64)
    found = np.zeros((len(mine), len(theirs)), dtype=np.int64)
    for low, high in _intervals(mine):
        for other_low, other_high in _intervals(theirs):
            both = np.minimum(high[:, None], other_high) - np.maximum(low[:, None], other_low)
            found += np.maximum(both, 0)
    return found


def _intervals(sets: Sequence[IntSet]) -> list[tuple[Any, Any]]:
    """Where the first intervals of some sets begin and end, where the second, and so on; nothing where there are none
    left.
    """
    most = max((len(values.runs) for values in sets), default=0)
    ends = np.zeros((most, 2, len(sets)), dtype=np.int64)
    for k, values in enumerate(sets):
        for j, run in enumerate(values.runs):
            ends[j, :, k] = run.start, run.stop
    return [(low, high) for low, high in ends]


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
    if pieces.alone is not None:
        return _from_alone(pieces.alone, common, codes, groups)
    found = found.astype(common.dtype, copy=False)
    step = max(1, ENTRIES // (len(pieces.regions) * ranks))
    for first in range(0, len(needs), step):
        some = codes[first : first + step]
        wanting = (common > 0)[:, some] & ~pieces.held[:, None]
        numbers, transfers, receivers = np.nonzero(wanting)
        wanted = Wanted(transfers, numbers, receivers, common[numbers, some[transfers, receivers]])
        found[first : first + step] = taken(pieces, wanted, groups, len(some))
    return found


def _from_alone(holders: Any, common: Counts, codes: Any, groups: Groups) -> Counts:
    """Where each piece has one holder, nobody has to be told who sends: all within a group is what its nearest level
    and those before it move. ``codes``: [transfer, rank] which column of ``common``, [piece, region], each needs.
    """
    transfers, ranks = codes.shape
    counts = np.zeros((transfers, 2, len(groups), ranks), dtype=common.dtype)
    pieces = np.arange(len(holders))
    own = common[pieces, codes[:, holders]]
    within = np.zeros((2, transfers, ranks), dtype=common.dtype)
    for level, of in enumerate(groups):
        at, before = np.array(of), within
        there = np.zeros((1 + max(of), common.shape[1]), dtype=common.dtype)
        np.add.at(there, at[holders], common)
        sent = _sent_within(of, holders, common, codes)
        received = there[at, codes] - added_up(holders, own, ranks)
        within = np.stack([received, added_up(holders, sent - own, ranks)])
        counts[:, :, level] = (within - before).swapaxes(0, 1)
    return counts


def _sent_within(of: tuple[int, ...], holders: Any, common: Counts, codes: Any) -> Counts:
    """[transfer, piece] what the ranks of its holder's group need of it, the holder too."""
    if not max(of):
        asked = np.zeros((len(codes), common.shape[1]), dtype=common.dtype)
        np.add.at(asked, (np.arange(len(codes))[:, None], codes), 1)
        if common.dtype == object or codes.shape[1] * int(common.sum(axis=1).max()) >= EXACT:
            return asked @ common.T
        return (asked.astype(np.float64) @ common.T.astype(np.float64)).astype(np.int64)
    groups: list[list[int]] = [[] for _ in range(1 + max(of))]
    for rank, group in enumerate(of):
        groups[group].append(rank)
    most = max(map(len, groups))
    members = np.array(
        [group + [len(of)] * (most - len(group)) for group in groups]
    )  # filled up by one that needs nothing
    there = np.pad(codes, ((0, 0), (0, 1)), constant_values=-1)[:, members[np.array(of)[holders]]]
    sent: Counts = common[np.arange(len(holders))[:, None], there].sum(axis=2)
    return sent


def taken(pieces: Pieces, wanted: Wanted, groups: Groups, transfers: int) -> Counts:
    """What each rank lacks of each piece comes from its sender, `planner.format.senders.in_turn` for many pieces at
    once: by (transfer, received or sent, level, rank).
    """
    ranks = len(pieces.sizes)
    counts = np.zeros((transfers, 2, len(groups), ranks), dtype=wanted.elements.dtype)
    for level, of in enumerate(groups):
        senders, at = pieces.senders(of), np.array(of)
        able = senders.count[wanted.pieces, at[wanted.ranks]] > 0
        here, wanted = wanted.where(able), wanted.where(~able)
        group = at[here.ranks]
        turn = in_order((here.pieces * transfers + here.transfers) * (1 + max(of)) + group)
        sender = senders.table[here.pieces, group, turn % senders.count[here.pieces, group]]
        for way, who in ((IN, here.ranks), (OUT, sender)):
            counts[:, way, level] = _summed(here.transfers * ranks + who, here.elements, transfers * ranks).reshape(
                transfers, ranks
            )
    return counts


def in_order(keys: Any) -> Any:
    """Of every key how many before it are equal."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    found = np.empty_like(order)
    found[order] = np.arange(len(keys)) - np.repeat(first, np.diff(first, append=len(keys)))
    return found


def _summed(places: Any, counts: Counts, size: int) -> Counts:
    """Per place the sum of its counts."""
    if counts.dtype == object or int(counts.sum()) >= EXACT:
        found = np.zeros(size, dtype=counts.dtype)
        np.add.at(found, places, counts)
        return found
    return np.bincount(places, weights=counts, minlength=size).astype(np.int64)


def added_up(ranks: Any, counts: Counts, size: int) -> Counts:
    """By transfer and rank the sum of the counts that stand at this rank; of both arrays the first axis is the
    transfer.
    """
    transfers, flat = len(counts), counts.reshape(-1)
    places = np.flatnonzero(flat)
    at = np.broadcast_to(ranks, counts.shape).reshape(-1)[places]
    return _summed(places // (counts.size // max(1, transfers)) * size + at, flat[places], transfers * size).reshape(
        transfers, size
    )


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
    onward: Sequence[int] | None = None,
) -> Loads:
    """Of any transfer. ``onward``: see `planner.format.senders.moves_by_host`; then all that moves is records."""
    if parts is not None and onward is not None:
        apart = [partial_loads(*ends, parts, groups, records=records) for ends in among(held, needed, onward)]
        moved = sum(loads.elements + loads.records for loads in apart)
        return Loads(np.zeros_like(moved), moved)
    if parts is not None:
        return partial_loads(held, needed, parts, groups, records=records)
    (counts,) = complete_loads(Spread(held), [Spread(needed)], groups)
    return Loads(counts, np.zeros_like(counts))
