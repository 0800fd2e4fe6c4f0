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
from .common import common_sizes
from .near import Near

Column = tuple[int, ...]
ENTRIES = 1 << 20  # of a table of pieces by ranks that is made at once
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

    def add(self, sources: Any, receivers: Any, nbytes: Any) -> None:
        """From each of some ranks, or from one, so many bytes to another one each; nothing to itself."""
        sources = np.broadcast_to(sources, receivers.shape)
        nbytes = np.where(receivers == sources, 0, nbytes)
        for level, of in enumerate(self.near):
            here = np.where(of[receivers] == of[sources], nbytes, 0)
            nbytes = nbytes - here
            np.add.at(self.arrives[level], receivers, here)
            np.add.at(self.leaves[level], sources, here)

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
    sent, fewest = Sent(near, max(map(algebra.size, need)) * item), _order([*map(algebra.size, have)])
    wanted = {region: k for k, region in enumerate(dict.fromkeys(region for region in need if region != EMPTY))}
    at = np.array([wanted.get(region, -1) for region in need])
    held = pieces(algebra, by_region(have))
    step = max(1, ENTRIES // len(need))
    for some in (held[first : first + step] for first in range(0, len(held) if wanted else 0, step)):
        algebra.budget.spend(len(some) * (1 + (len(wanted) + len(need)) // 16), "pieces of what is moved")
        common = common_sizes(algebra, [piece for piece, _ in some], [*wanted], sent.exact)
        lacking = np.pad(common, ((0, 0), (0, 1)))[:, at]  # what is not needed, last
        for k, (_, holders) in enumerate(some):
            lacking[k, list(holders)] = 0
        rows, receivers = np.nonzero(lacking)
        sources = _sources([holders for _, holders in some], rows, receivers, sent.near, fewest)
        sent.add(sources, receivers, lacking[rows, receivers] * item)
    return sent


def _sources(pieces_of: Sequence[tuple[int, ...]], rows: Any, receivers: Any, near: Sequence[Any], fewest: Any) -> Any:
    """Who sends to each receiver, of those that hold the piece with the number of its row; rows ascend."""
    found = np.array([holders[0] for holders in pieces_of])[rows]
    ends = np.searchsorted(rows, np.arange(len(pieces_of) + 1))
    for k, holders in enumerate(pieces_of):
        if len(holders) > 1:
            mine = slice(ends[k], ends[k + 1])
            found[mine] = _in_turn(holders, receivers[mine], near, fewest)
    return found


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
    held = _order([*map(algebra.size, have)])
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
    asked = {ranks: np.array(sorted(roots), dtype=int) for ranks, roots in lacking.items()}
    told = {ranks: _in_turn(ranks, roots, sent.near, held).tolist() for ranks, roots in asked.items()}
    sources = {ranks: dict(zip(asked[ranks].tolist(), told[ranks], strict=True)) for ranks in asked}
    for of, by_part in shares:
        for ranks in by_part.values():
            algebra.budget.spend(1 + len(of) // 8, "shares of folds")
            taken = [(source, root) for root, source in sources[tuple(ranks)].items() if root in of]
            if taken:
                giving, taking = np.array(taken).T
                sent.add(giving, taking, np.array([of[root] * record for _, root in taken], sent.exact))
    return sent


def _order(sizes: Sequence[int]) -> Any:
    """Small numbers in the order of the given ones."""
    known = {size: k for k, size in enumerate(sorted({*sizes}))}
    return np.array([known[size] for size in sizes])


def _in_turn(holders: Sequence[int], receivers: Any, near: Sequence[Any], fewest: Any) -> Any:
    """By receiver the rank that sends to it; ``fewest``: in the order of the elements on each rank, of whom those with
    the fewest send.
    """
    found, left = np.full(len(receivers), holders[0]), np.arange(len(receivers))
    for of in near if len(holders) > 1 else ():
        able = np.array(holders)
        lowest = np.full(1 + of.max(), fewest.max())
        np.minimum.at(lowest, of[able], fewest[able])
        able = able[fewest[able] == lowest[of[able]]]
        able = able[np.argsort(of[able], kind="stable")]
        groups, first, count = np.unique(of[able], return_index=True, return_counts=True)
        asking = of[receivers[left]]
        place = np.minimum(np.searchsorted(groups, asking), len(groups) - 1)
        here = groups[place] == asking
        place = place[here]
        found[left[here]] = able[first[place] + _turns(place) % count[place]]
        left = left[~here]
    return found


def _turns(numbers: Any) -> Any:
    """Of each number how many before it are equal."""
    order = np.argsort(numbers, kind="stable")
    ordered, found = numbers[order], np.empty_like(numbers)
    found[order] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered)
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
