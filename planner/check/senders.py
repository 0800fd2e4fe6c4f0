"""Who sends how much to whom, in plans whose senders are chosen by the hosts of the ranks, counted piece by piece.

A piece is the elements that the same ranks hold. Those that lack some of it take that from one of its holders, from
those of their own island or host if there are any, of these from those that hold the least in all, in turn. A fold is
made in equal shares along the longest axis by the needers that contribute, else by all needers; each takes a part that
it lacks from those that hold it by the same rule, and sends what it folded to the other needers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from . import cells
from .algebra import EMPTY, Algebra
from .cells import Form, length
from .near import Near

Column = tuple[int, ...]
Levels = Sequence[Sequence[int]]
"""Per level, the nearest first, of every rank the number of its group; in the last all ranks are one."""


class Sent:
    """Bytes that each rank receives and sends, by how near the two ranks are."""

    def __init__(self, near: Levels, largest: int) -> None:
        """largest: bytes that one rank sends to another at most."""
        self.near = [np.array(of) for of in near]
        ranks = len(near[0])
        self.exact = np.dtype(np.int64 if largest * ranks < 1 << 62 else object)
        self.arrives, self.leaves = ([np.array([0] * ranks, self.exact) for _ in near] for _ in range(2))

    def add(self, source: int, receivers: Any, nbytes: Any) -> None:
        """From one rank to others, so many bytes each; nothing to itself."""
        nbytes = np.where(receivers == source, 0, nbytes)
        for level, of in enumerate(self.near):
            here = np.where(of[receivers] == of[source], nbytes, 0)
            nbytes = nbytes - here
            np.add.at(self.arrives[level], receivers, here)
            self.leaves[level][source] += here.sum()

    def busiest(self) -> list[int]:
        """Per level what the busiest rank receives or sends, whichever is more."""
        return [int(max(a.max(), b.max())) for a, b in zip(self.arrives, self.leaves, strict=True)]

    def received(self) -> list[int]:
        """Per level what all ranks together receive."""
        return [int(arrived.sum()) for arrived in self.arrives]


def together(several: Iterable[Sent]) -> Sent:
    """What ranks receive and send in all of these."""
    first, *others = several
    for other in others:
        for mine, theirs in ((first.arrives, other.arrives), (first.leaves, other.leaves)):
            mine[:] = [a + b for a, b in zip(mine, theirs, strict=True)]
    return first


def complete(algebra: Algebra, have: Column, need: Column, near: Levels, item: int) -> Sent:
    """A transfer of complete elements of so many bytes."""
    sent, sizes = Sent(near, max(map(algebra.size, need)) * item), [*map(algebra.size, have)]
    wanted = [region for region in dict.fromkeys(need) if region != EMPTY]
    at = np.array([wanted.index(region) if region != EMPTY else -1 for region in need])
    for piece, holders in pieces(algebra, by_region(have)):
        algebra.budget.spend(len(wanted) + len(need) // 16, "pieces of what is moved")
        common = np.array([*(_common(algebra, piece, region) for region in wanted), 0], sent.exact)
        lacking = common[at]
        lacking[list(holders)] = 0
        receivers = np.flatnonzero(lacking)
        for source, its in _in_turn(holders, receivers.tolist(), near, sizes).items():
            sent.add(source, np.array(its), lacking[its] * item)
    return sent


def folded(
    algebra: Algebra,
    have: Column,
    need: Column,
    parts: Sequence[int],
    near: Levels,
    sizes: tuple[int, int],
    *,
    packed: bool,
) -> Sent:
    """A transfer that folds; sizes: bytes of a record and of an element. packed: the last axis is not cut."""
    (record, item), sent = sizes, Sent(near, sum(map(algebra.size, need)) * sum(sizes) * len(have))
    held = [*map(algebra.size, have)]
    shares: list[tuple[dict[int, int], dict[int, list[int]]]] = []
    lacking: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for piece, needers, holders in _folds(algebra, have, need):
        roots = sorted({*needers} & {*holders}) or sorted(needers)
        cut = zip(roots, equal_shares(algebra, piece, len(roots), packed=packed), strict=True)
        of = {root: size for root, size in cut if size}
        by_part: dict[int, list[int]] = defaultdict(list)
        for rank in sorted(holders):
            by_part[parts[rank]].append(rank)
        shares.append((of, by_part))
        for ranks in by_part.values():
            lacking[tuple(ranks)].update(root for root in of if root not in ranks)
        others = np.array(sorted(needers))
        for root, size in of.items():
            sent.add(root, others, np.full(len(others), size * item, sent.exact))
    sources = {ranks: _in_turn(ranks, sorted(roots), near, held) for ranks, roots in lacking.items()}
    for of, by_part in shares:
        for ranks in by_part.values():
            algebra.budget.spend(1 + len(of) // 8, "shares of folds")
            for source, its in sources[tuple(ranks)].items():
                mine = [root for root in its if root in of]
                sent.add(source, np.array(mine, dtype=int), np.array([of[r] * record for r in mine], sent.exact))
    return sent


def _in_turn(
    holders: Sequence[int], receivers: Sequence[int], near: Levels, held: Sequence[int]
) -> dict[int, list[int]]:
    """By holder the ranks that it sends to; held: elements on each rank, of which those with the fewest send."""
    found: dict[int, list[int]] = defaultdict(list)
    asked: dict[tuple[int, int], int] = defaultdict(int)
    groups = [defaultdict[int, list[int]](list) for _ in near]
    for of, members in zip(near, groups, strict=True):
        for rank in holders:
            members[of[rank]].append(rank)
    for rank in receivers:
        level = next(k for k, of in enumerate(near) if of[rank] in groups[k])
        there, turn = groups[level][near[level][rank]], asked[level, near[level][rank]]
        able = [holder for holder in there if held[holder] == min(held[other] for other in there)]
        found[able[turn % len(able)]].append(rank)
        asked[level, near[level][rank]] += 1
    return found


def _folds(algebra: Algebra, have: Column, need: Column) -> Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Regions that the same ranks need and the same ranks hold, with those ranks."""
    holding = by_region(have)
    around = Near(algebra, holding)
    for piece, needers in pieces(algebra, by_region(need)):
        held: dict[int, list[int]] = {}
        for region in around.to(piece):
            held.setdefault(algebra.meet(piece, region), []).extend(holding[region])
        held.pop(EMPTY, None)
        yield from ((part, needers, holders) for part, holders in pieces(algebra, held))


def by_region(column: Column) -> dict[int, list[int]]:
    """The ranks of each region that is not empty."""
    found: dict[int, list[int]] = {}
    for rank, region in enumerate(column):
        if region != EMPTY:
            found.setdefault(region, []).append(rank)
    return found


def pieces(algebra: Algebra, ranks_of: dict[int, list[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Disjoint regions that make up all, each with the ranks that have it."""
    if sum(map(algebra.size, ranks_of)) == algebra.size(algebra.join(ranks_of)):
        return [(region, tuple(sorted(ranks))) for region, ranks in ranks_of.items()]
    found: list[tuple[int, tuple[int, ...]]] = []
    for region, ranks in ranks_of.items():
        rest, refined = region, []
        for piece, members in found:
            algebra.budget.spend(1, "pieces of what is moved")
            common = algebra.meet(piece, rest)
            refined += [(common, tuple(sorted((*members, *ranks)))), (algebra.minus(piece, common), members)]
            rest = algebra.minus(rest, common)
        refined.append((rest, tuple(sorted(ranks))))
        found = [(piece, members) for piece, members in refined if piece != EMPTY]
    return found


def _common(algebra: Algebra, one: int, other: int) -> int:
    """How many elements two regions have in common, by the tiles that they are made of."""
    if one == other:
        return algebra.size(one)
    return sum(_tiles(a, b) for a in algebra.form(one).tiles for b in algebra.form(other).tiles)


def _tiles(one: cells.Tile, other: cells.Tile) -> int:
    found = 1
    for a, b in zip(one, other, strict=True):
        if len(a) == len(b) == 1 and a[0].step == b[0].step == 1:
            found *= max(0, min(a[0].stop, b[0].stop) - max(a[0].start, b[0].start))
        elif found:
            found *= cells.classes([(a,), (b,)], lambda *_: None).get(3, 0)
    return found


def equal_shares(algebra: Algebra, piece: int, count: int, *, packed: bool) -> list[int]:
    """Elements of each of equal shares of a region along the axis with the most coordinates, the last left out where it
    is ``packed``: the coordinates are shared out, in ascending order.
    """
    form = algebra.form(piece)
    able = len(form.tiles[0]) - packed
    if count == 1 or not able:
        return [form.size if k == 0 else 0 for k in range(count)]
    if len(form.tiles) == 1:
        extents = [length(runs) for runs in form.tiles[0]]
        most = max(extents[:able])
        cuts = [k * most // count for k in range(count + 1)]
        return [prod(extents) // most * (stop - start) for start, stop in pairwise(cuts)]
    return _shares_of_tiles(algebra, form, count, able)


def _shares_of_tiles(algebra: Algebra, form: Form, count: int, able: int) -> list[int]:
    there = [[_coordinates(algebra, tile[axis]) for tile in form.tiles] for axis in range(able)]
    different = [np.unique(np.concatenate(values)) for values in there]
    axis = max(range(able), key=lambda a: (len(different[a]), -a))
    values, found = different[axis], [0] * count
    cuts = [k * len(values) // count for k in range(count + 1)]
    for tile, mine in zip(form.tiles, there[axis], strict=True):
        rest = prod(length(runs) for k, runs in enumerate(tile) if k != axis)
        for k, (start, stop) in enumerate(pairwise(cuts)):
            if start < stop:
                found[k] += rest * int(((mine >= values[start]) & (mine <= values[stop - 1])).sum())
    return found


def _coordinates(algebra: Algebra, runs: cells.Runs) -> Any:
    algebra.budget.spend(length(runs), "shares of folds of many pieces")
    return np.concatenate([np.arange(run.start, run.stop, run.step) for run in runs])
