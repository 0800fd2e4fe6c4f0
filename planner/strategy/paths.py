"""Layouts on the way from what ranks have to what they need: where a detour is shorter than one transfer.

Elements that several ranks lack need not come to each of them from afar, or from one holder. They may first be shared
out among those who lack them, and then be handed on: over hosts an all-gather by levels, from one rank a scatter and a
gather, of partial results a fold where each element is needed, once, and a gather of what was folded. All complete
layouts on the way lie within what is needed at last, so a path takes no memory beyond that, and it moves no byte more.
Parts may be folded within hosts first, and what they make there between hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ...space import Region
from ..format.messages import refined
from ..format.senders import Groups, folds_of, shares
from .layouts import Layout

Regions = list[Region]


def by_levels(have: Layout, need: Layout, groups: Groups) -> Iterator[Regions]:
    """What ranks have before elements are handed on within groups that lacked them: they come to each group once.

    None for levels at which that saves less than a quarter of what comes to the groups. ``groups``: see
    `planner.format.senders`.
    """
    for of in groups[-2::-1]:
        members = tuple(tuple(rank for rank, its in enumerate(of) if its == k) for k in range(max(of) + 1))
        around = have.around(members)
        together = around.missing(need.around(members))
        once = sum(together[ranks[0]] for ranks in members)
        if 4 * once <= 3 * around.pair(need).missing:
            lacking = []
            for ranks in members:
                held = have.union(ranks)
                without = {region: region - held for region in {need.regions[rank] for rank in ranks}}
                lacking.append({rank: without[need.regions[rank]] for rank in ranks})
            yield from _shared_out(have, need, lacking)


def spread(have: Layout, need: Layout) -> Iterator[Regions]:
    """What ranks have before they hand on to one another what several of them lack: each its share of that."""
    yield from _shared_out(have, need, [dict(enumerate(have.lacking(need)))])


def folded(have: Layout, need: Layout, *, packed: bool) -> Regions:
    """What ranks have before they hand on what they folded: each its share."""
    assert have.parts is not None
    regions = [Region() for _ in need.regions]
    for fold in folds_of(have.regions, need.regions, have.parts, records=packed):
        for root, share in zip(fold.roots, fold.shares, strict=True):
            regions[root] = regions[root] | share
    return regions


def within_groups(
    have: Layout, of: Sequence[int], finals: Sequence[Layout], *, packed: bool
) -> Iterator[tuple[Regions, list[int]]]:
    """What ranks have once those near to one another folded their parts: a share each of what several have, and the
    number of the part that it is then. Nothing where that is the whole fold, or none at all.

    Shares are equal cuts, and such that what comes of them between groups is one of ``finals``. ``of``: of every rank
    the number of its group. Parts that are folded come one right after another in the order.
    """
    parts = _larger_parts(have, of)
    if parts is None:
        return
    holding: dict[tuple[int, Region], list[int]] = {}
    for rank, region in enumerate(have.regions):
        if region:
            holding.setdefault((parts[rank], region), []).append(rank)
    cut = [Region() for _ in have.regions]
    for (_, region), ranks in holding.items():
        for rank, share in zip(ranks, shares(region, len(ranks), packed), strict=True):
            cut[rank] = share
    yield cut, parts
    places = [of[:rank].count(its) for rank, its in enumerate(of)]
    opposite = tuple(tuple(r for r, its in enumerate(places) if its == k) for k in range(max(places) + 1))
    for final in finals if not packed else ():
        around = final.around(opposite)
        met = [a & b for a, b in zip(have.regions, around.regions, strict=True)]
        if all(
            region.size == sum(met[rank].size for rank in ranks) == Region.union(met[rank] for rank in ranks).size
            for (_, region), ranks in holding.items()
        ):
            yield met, parts


def _larger_parts(have: Layout, of: Sequence[int]) -> list[int] | None:
    """Per rank the number of what the parts in its group make up together."""
    assert have.parts is not None
    sets = [frozenset[int]()] * (1 + max(of))
    for part, region, its in zip(have.parts, have.regions, of, strict=True):
        sets[its] |= {part} if region else set()
    larger = sorted({some for some in sets if some}, key=min)
    if len(larger) < 2 or min(map(len, larger)) < 2 or any(max(a) >= min(b) for a, b in pairwise(larger)):
        return None
    return [larger.index(sets[its]) if sets[its] else 0 for its in of]


def _shared_out(have: Layout, need: Layout, lacking: Sequence[Mapping[int, Region]]) -> Iterator[Regions]:
    """Each rank keeps what it has and gets an equal share of what it and others of its group lack.

    Only where ranks lack the same or nothing in common, as they do of what is cut along axes: else the shares are many
    pieces, of which asking costs more than they save.
    """
    regions = [n & h for n, h in zip(need.regions, have.regions, strict=True)]
    for group in lacking:
        different = {region for region in group.values() if region}
        if sum(region.size for region in different) != Region.union(different).size:
            return
        for piece, ranks in refined(group):
            for rank, share in zip(ranks, shares(piece, len(ranks), False), strict=True):
                regions[rank] = regions[rank] | share
    if need.everything <= Region.union(regions):  # what a rank has for others of its group alone is not there
        yield regions


def different(regions: Sequence[Region], *ends: Layout) -> bool:
    """Whether these are neither where a path begins nor where it ends."""
    return all(any(not a.same(b) for a, b in zip(regions, end.regions, strict=True)) for end in ends)
