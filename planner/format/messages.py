"""What is moved: the deterministic messages that take what ranks hold to what they need.

The lowering, the simulator, the workers and the drawings all ask `moves`; the checker counts with code of its own.

Complete source: every rank gets what it needs and does not hold from one holder; holders of the same elements share the
load in turn. Partial source: every element has a *root*, a needer where possible, that folds one contribution of each
part number in the order of the numbers (phase 0) and then sends the result to the other needers (phase 1). Per element
with needers N, holders H and one chosen contributor per part C this is |N - H| messages, or |C| + |N| - 1 - [root in
C]: the counts that traffic is priced by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ...records import Width
from ...space import Grid, IntSet, Region


@dataclass(frozen=True)
class Message:
    """``region`` goes from rank ``src`` to rank ``dst`` (equal: a local move, no traffic).

    phase 0: contributions (``part`` numbers the share of a partial source; None for complete data); phase 1: folded
    results, sent on from the root's target buffer.
    """

    phase: int
    src: int
    dst: int
    region: Region
    part: int | None = None

    @property
    def remote(self) -> bool:
        return self.src != self.dst

    @property
    def moved(self) -> int:
        """Elements that one rank receives from another by it: none by a local move."""
        return self.region.size if self.remote else 0

    def moved_bytes(self, width: Width) -> int:
        """Bytes of these: what is to be folded (it has a part) is records, everything else elements."""
        return self.moved * (width.complete if self.part is None else width.partial)


def moves(
    held: Sequence[Region], needed: Sequence[Region], parts: Sequence[int] | None = None, *, records: bool = False
) -> list[Message]:
    """The messages that give every rank what it needs, from what ranks hold.

    ``parts`` numbers the shares of a partial source by rank; None: what is held is complete. ``records``: elements
    along the last axis are one value.
    """
    return _complete(held, needed) if parts is None else _partial(held, parts, needed, records=records)


def _complete(held: Sequence[Region], needed: Sequence[Region]) -> list[Message]:
    """Messages of a transfer from a complete source. Local moves come first for each receiver.

    Elements that several ranks hold are taken from the next holder after the receiver, counted round the ranks, so that
    the receivers of one replicated piece do not all ask the same rank.
    """
    found: list[Message] = []
    size, holders = len(held), _Holders(held)
    for dst, need in enumerate(needed):
        missing = need
        near = (_next(ranks, dst) for ranks in holders.of(need))
        for src in sorted(near, key=lambda rank: (rank - dst) % size):
            part = missing & held[src]
            if part:
                found.append(Message(0, src, dst, part))
                missing = missing - part
            if not missing:
                break
    return found


class Way(NamedTuple):
    """How elements come to a rank: from another one of its host or not, and whether they are to be folded."""

    one_host: bool
    partial: bool


def received(
    held: Sequence[Region],
    needed: Sequence[Region],
    hosts: Sequence[int],
    parts: Sequence[int] | None = None,
    *,
    records: bool = False,
) -> Counter[Way]:
    """The elements that `moves` moves between ranks, counted. ``hosts``: of every rank.

    Where different holders hold nothing in common, as they mostly do, nothing is asked of pairs of ranks, which are
    millions: what a rank lacks comes from its own host as far as the next holder is there, and else from others.
    """
    found: Counter[Way] = Counter()
    holders = _Holders(held)
    if parts is not None or not holders.disjoint:
        for m in moves(held, needed, parts, records=records):
            if m.remote:
                found[Way(hosts[m.src] == hosts[m.dst], m.part is not None)] += m.moved
        return +found
    near, one_host = holders.by_host(hosts), len(set(hosts)) == 1
    for dst, need in enumerate(needed):
        lacking = need.meet_size(holders.everything) - need.meet_size(held[dst]) if need else 0
        if not lacking:
            continue
        beside = near.get(hosts[dst], [])
        others = (ranks for ranks in beside if held[ranks[0]] != held[dst] and hosts[_next(ranks, dst)] == hosts[dst])
        inside = sum(need.meet_size(held[ranks[0]]) for ranks in others) if not one_host else lacking
        found[Way(True, False)] += inside
        found[Way(False, False)] += lacking - inside
    return +found


def _next(ranks: Sequence[int], after: int) -> int:
    """The first of these ranks, which are in order, from one on, counted round."""
    return ranks[bisect_left(ranks, after) % len(ranks)]


class _Holders:
    """Who has what: the ranks of each different region, in order."""

    def __init__(self, regions: Sequence[Region]) -> None:
        found: dict[Region, list[int]] = {}
        for rank, region in enumerate(regions):
            if region:
                found.setdefault(region, []).append(rank)
        from ...space.overlap import Overlaps  # here, because it loads NumPy, which reading a plan does without

        self.regions, self.ranks = list(found), list(found.values())
        self._overlaps = Overlaps(self.regions)

    @cached_property
    def everything(self) -> Region:
        return Region.union(self.regions)

    @cached_property
    def disjoint(self) -> bool:
        """Regions that differ have nothing in common."""
        return sum(region.size for region in self.regions) == self.everything.size

    def by_host(self, hosts: Sequence[int]) -> dict[int, list[list[int]]]:
        """Per host the ranks of each different region that one of its ranks holds."""
        found: dict[int, list[list[int]]] = {}
        for ranks in self.ranks:
            for host in dict.fromkeys(hosts[rank] for rank in ranks):
                found.setdefault(host, []).append(ranks)
        return found

    def of(self, region: Region) -> list[list[int]]:
        """The ranks of each different region that may meet this one."""
        return [self.ranks[k] for k in self._overlaps.candidates(region)]

    def meeting(self, region: Region) -> Iterator[tuple[list[int], Region]]:
        """The same, with what they have of it."""
        return ((self.ranks[k], self.regions[k] & region) for k in self._overlaps.candidates(region))


def _partial(
    held: Sequence[Region], parts: Sequence[int], needed: Sequence[Region], *, records: bool = False
) -> list[Message]:
    """Messages of a transfer that folds a partial source: contributions to the roots, then results to the other
    needers.

    records: elements along the last axis are one value (see `Monoid.packed`), so the roots share out whole records.
    """
    found: list[Message] = []
    for piece, holders, needers in atoms(held, needed):
        for root, share in _roots(piece, holders, needers, records):
            contributors = _one_per_part(root, holders, parts)
            found += [Message(0, src, root, share, part) for part, src in contributors]
            found += [Message(1, root, dst, share) for dst in needers if dst != root]
    return joined(found)


def atoms(held: Sequence[Region], needed: Sequence[Region]) -> list[tuple[Region, tuple[int, ...], tuple[int, ...]]]:
    """Split the needed elements into pieces that have the same holders and the same needers."""
    pieces: list[tuple[Region, tuple[int, ...], tuple[int, ...]]] = []
    having = _holders(tuple(held))
    for region, needers in _pieces(tuple(needed)):
        near = {rank: common for ranks, common in having.meeting(region) for rank in ranks}
        held_pieces = refined(near, apart=having.disjoint)
        pieces += [(sub, holders, needers) for sub, holders in held_pieces]
        if sum(sub.size for sub, _ in held_pieces) < region.size:
            rest = region
            for sub, _ in held_pieces:
                rest = rest - sub
            pieces.append((rest, (), needers))
    return pieces


@lru_cache(maxsize=256)
def _holders(held: tuple[Region, ...]) -> _Holders:
    """A search asks of the same layouts again and again."""
    return _Holders(held)


@lru_cache(maxsize=256)
def _pieces(needed: tuple[Region, ...]) -> list[tuple[Region, tuple[int, ...]]]:
    return refined(dict(enumerate(needed)))


def refined(regions: Mapping[int, Region], *, apart: bool = False) -> list[tuple[Region, tuple[int, ...]]]:
    """Disjoint pieces of the union of the regions of some ranks, each with the ranks that hold it whole.

    ``apart``: regions that differ are known to have nothing in common.
    """
    owners: dict[Region, list[int]] = {}
    for rank in sorted(regions):
        if regions[rank]:
            owners.setdefault(regions[rank], []).append(rank)
    pieces: list[tuple[Region, tuple[int, ...]]] = []
    if apart or sum(region.size for region in owners) == Region.union(owners).size:
        return [(region, tuple(ranks)) for region, ranks in owners.items()]
    for region, ranks in owners.items():
        rest, refined = region, []
        for piece, members in pieces:
            common = piece & rest if rest else Region()
            if not common:
                refined.append((piece, members))
                continue
            refined.append((common, tuple(sorted((*members, *ranks)))))
            outside = piece - common
            if outside:
                refined.append((outside, members))
            rest = rest - common
        if rest:
            refined.append((rest, tuple(ranks)))
        pieces = refined
    return pieces


def _roots(
    piece: Region, holders: tuple[int, ...], needers: tuple[int, ...], records: bool
) -> Iterable[tuple[int, Region]]:
    """Who folds which share of a piece: needers that contribute, if any, in equal cuts along the longest axis."""
    candidates = [rank for rank in needers if rank in holders] or list(needers)
    if len(candidates) == 1:
        return [(candidates[0], piece)]
    shares = []
    for k, rank in enumerate(candidates):
        share = Region.of(*(_slice(grid, k, len(candidates), records) for grid in piece.grids))
        if share:
            shares.append((rank, share))
    return shares


def _slice(grid: Grid, k: int, count: int, records: bool) -> Grid:
    """The k-th of ``count`` equal cuts of a grid along its longest axis, the last left out if it holds records."""
    able = range(grid.ndim - records)
    if not able:
        return grid if k == 0 else Grid((IntSet(),) * max(1, grid.ndim))
    axis = max(able, key=lambda a: (grid.axes[a].size, -a))
    size = grid.axes[axis].size
    chosen = _subrange(grid.axes[axis], k * size // count, (k + 1) * size // count)
    return Grid((*grid.axes[:axis], chosen, *grid.axes[axis + 1 :]))


def _subrange(values: IntSet, start: int, stop: int) -> IntSet:
    """Elements number start..stop-1 of a set, counted run after run."""
    runs, seen = [], 0
    for run in values.runs:
        size = len(run)
        runs.append(run[max(0, start - seen) : max(0, min(size, stop - seen))])
        seen += size
    return IntSet.of(*runs)


def _one_per_part(root: int, holders: tuple[int, ...], parts: Sequence[int]) -> list[tuple[int, int]]:
    """(part, contributor) in the order of parts; the root itself where it can, else the next holder after it."""
    chosen: dict[int, int] = {}
    for rank in sorted(holders, key=lambda rank: (rank - root) % len(parts)):
        chosen.setdefault(parts[rank], rank)
    return sorted(chosen.items())


def joined(messages: Sequence[Message], key: Callable[[Message], Any] | None = None) -> list[Message]:
    """One message per (phase, src, dst, part), regions united, in the order of the phase, the receiver and the part, or
    as ``key`` says.
    """
    united: dict[tuple[int, int, int, int | None], list[Region]] = {}
    for m in messages:
        united.setdefault((m.phase, m.src, m.dst, m.part), []).append(m.region)
    found = [Message(p, s, d, _unite(regions), part) for (p, s, d, part), regions in united.items()]
    return sorted(found, key=key or (lambda m: (m.phase, m.dst, -1 if m.part is None else m.part, m.src)))


def _unite(regions: list[Region]) -> Region:
    return Region.of(*(grid for region in regions for grid in region.grids)) if len(regions) > 1 else regions[0]
