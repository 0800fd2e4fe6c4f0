"""Who sends what, the hosts of the ranks in mind: the rule of plans whose ``senders`` is "by_host".

What is held falls into pieces, each the elements that the same ranks hold. The ranks that lack some of a piece take all
that they lack of it from one of its holders: from those of their own island, if there are any, else from those of their
own host, else from any, each time from those that hold the least in all, in turn, as the ranks are numbered. A fold is
made by the needers that contribute, or by all needers if none does (its *roots*), in equal shares along the longest
axis, counted along it in ascending order. A root takes each contribution that it has not itself by the same rule: the
roots that lack a part take it from those that hold it, in turn. Then it sends what it folded to the other needers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from ...space import Grid, IntSet, Region
from .messages import Message, atoms, joined, refined

Scope = TypeVar("Scope", bound=str)

Holders = tuple[int, ...]
"""The ranks that hold one piece, in order."""

Contributions = tuple[tuple[int, Holders], ...]
"""The numbers of the contributions to a piece with the ranks that hold each, in the order in which they are folded."""

Groups = tuple[tuple[int, ...], ...]
"""Which ranks are near to one another: per level, the nearest first, of every rank the number of its group, counted
from 0. In the last level all ranks are one group.
"""


def levels_of(reaches: Iterable[tuple[Scope, int]], devices: Sequence[int]) -> tuple[tuple[Scope, ...], Groups]:
    """The levels of ranks on some devices, with the scope of the links of each. A level with the groups of a nearer one
    is none.

    ``reaches``: of every scope how many devices next to one another it takes in, the fewest first, all at last.

    >>> levels_of([("island", 2), ("host", 4), ("cluster", 8)], range(4))
    (('island', 'host'), ((0, 0, 1, 1), (0, 0, 0, 0)))
    """
    found: dict[tuple[int, ...], Scope] = {}
    for scope, size in reaches:
        numbers: dict[int, int] = {}
        groups = tuple(numbers.setdefault(device // size, len(numbers)) for device in devices)
        found.setdefault(groups, scope)
    return tuple(found.values()), tuple(found)


def moves_by_host(
    held: Sequence[Region],
    needed: Sequence[Region],
    groups: Groups,
    parts: Sequence[int] | None = None,
    *,
    records: bool = False,
    onward: Sequence[int] | None = None,
) -> list[Message]:
    """The messages that give every rank what it needs, from what ranks hold.

    ``parts``, ``records``: see `planner.format.messages.moves`. ``onward``: the numbers that parts have afterwards,
    where they are folded within each of these groups of ranks alone. Local moves come first for each receiver.
    """
    if parts is None:
        return _complete(held, needed, groups)
    if onward is not None:
        apart = (moves_by_host(*ends, groups, parts, records=records) for ends in among(held, needed, onward))
        return [message for messages in apart for message in messages]
    folds = folds_of(held, needed, parts, records=records)
    sources = contributors(((f.parts, f.roots) for f in folds), groups, [region.size for region in held])
    found: list[Message] = []
    for fold in folds:
        for root, share in zip(fold.roots, fold.shares, strict=True):
            for part, holders in fold.parts:
                source = root if root in holders else sources[holders][root]
                found.append(Message(0, source, root, share, part))
            found += [Message(1, root, other, share) for other in fold.needers if other != root]
    return joined(found)


def among(
    held: Sequence[Region], needed: Sequence[Region], onward: Sequence[int]
) -> Iterator[tuple[list[Region], list[Region]]]:
    """What is held and needed within each group of ranks with one number."""
    for number in sorted(set(onward)):
        mine = [its == number for its in onward]
        ends = ([r if its else Region() for r, its in zip(some, mine, strict=True)] for some in (held, needed))
        yield next(ends), next(ends)


def _complete(held: Sequence[Region], needed: Sequence[Region], groups: Groups) -> list[Message]:
    found: dict[int, list[Message]] = {}
    sizes = [region.size for region in held]
    for dst, need in enumerate(needed):
        if need & held[dst]:
            found.setdefault(dst, []).append(Message(0, dst, dst, need & held[dst]))
    for piece, holders in refined(dict(enumerate(held))):
        wanted = {dst: need & piece for dst, need in enumerate(needed) if need and dst not in holders}
        receivers = [dst for dst, region in wanted.items() if region]
        for dst, src in zip(receivers, in_turn(holders, receivers, groups, sizes), strict=True):
            found.setdefault(dst, []).append(Message(0, src, dst, wanted[dst]))
    size = len(held)
    return [
        message
        for dst in sorted(found)
        for message in joined(found[dst], key=lambda message: (message.src - message.dst) % size)
    ]


def in_turn(holders: Sequence[int], receivers: Sequence[int], groups: Groups, held: Sequence[int]) -> list[int]:
    """Per receiver the holder that sends to it. ``held``: how many elements each rank holds in all.

    >>> in_turn([0, 1, 4], [2, 3, 5, 6, 8], groups=((0, 0, 0, 0, 1, 1, 1, 1, 2), (0,) * 9), held=[3] * 9)
    [0, 1, 4, 4, 0]
    """
    near: dict[tuple[int, int], list[int]] = {}
    for level, of in enumerate(groups):
        for rank in holders:
            near.setdefault((level, of[rank]), []).append(rank)
    able = {group: least(ranks, held) for group, ranks in near.items()}
    turns: dict[tuple[int, int], int] = {}
    found = []
    for rank in receivers:
        group = next((level, of[rank]) for level, of in enumerate(groups) if (level, of[rank]) in near)
        turn = turns[group] = turns.get(group, -1) + 1
        found.append(able[group][turn % len(able[group])])
    return found


def least(ranks: Sequence[int], held: Sequence[int]) -> list[int]:
    """Those of some ranks that hold the fewest elements: others have more to send."""
    fewest = min(held[rank] for rank in ranks)
    return [rank for rank in ranks if held[rank] == fewest]


@dataclass(frozen=True)
class PieceFold:
    """Elements of a partial source that the same ranks hold and the same ranks need, and who folds which share."""

    parts: Contributions
    needers: tuple[int, ...]
    roots: tuple[int, ...]
    shares: tuple[Region, ...]


def folds_of(
    held: Sequence[Region], needed: Sequence[Region], parts: Sequence[int], *, records: bool
) -> list[PieceFold]:
    """The folds of a transfer, piece by piece."""
    found = []
    for piece, holders, needers in atoms(held, needed):
        numbered, able = who_folds(holders, needers, parts)
        cut = [(root, share) for root, share in zip(able, shares(piece, len(able), records), strict=True) if share]
        found.append(PieceFold(numbered, needers, tuple(r for r, _ in cut), tuple(s for _, s in cut)))
    return found


def who_folds(holders: Holders, needers: Holders, parts: Sequence[int]) -> tuple[Contributions, Holders]:
    """The contributions to a piece, and the ranks that share its fold."""
    by_part: dict[int, list[int]] = {}
    for rank in holders:
        by_part.setdefault(parts[rank], []).append(rank)
    able = tuple(rank for rank in needers if rank in holders) or needers
    return tuple((part, tuple(by_part[part])) for part in sorted(by_part)), able


def contributors(
    folds: Iterable[tuple[Contributions, Sequence[int]]], groups: Groups, held: Sequence[int]
) -> dict[Holders, dict[int, int]]:
    """By the holders of a part, per root that is none of them the holder that it takes the part from.

    folds: the contributions of each, and its roots.
    """
    lacking: dict[Holders, set[int]] = {}
    for parts, roots in folds:
        for _, holders in parts:
            lacking.setdefault(holders, set()).update(root for root in roots if root not in holders)
    found = {}
    for holders, without in lacking.items():
        ranked = sorted(without)
        found[holders] = dict(zip(ranked, in_turn(holders, ranked, groups, held), strict=True))
    return found


def shares(piece: Region, count: int, records: bool) -> Iterator[Region]:
    """Equal cuts of a piece along the axis on which it has the most coordinates, the last left out if it holds
    records; cut are these coordinates, in ascending order.
    """
    ndim = piece.grids[0].ndim if piece else 0
    able = range(ndim - records)
    if count == 1 or not able:
        yield from (piece if k == 0 else Region() for k in range(count))
        return
    sets = [_united(grid.axes[axis] for grid in piece.grids) for axis in able]
    axis = max(able, key=lambda a: (sets[a].size, -a))
    size = sets[axis].size
    for k in range(count):
        chosen = _numbered(sets[axis], k * size // count, (k + 1) * size // count)
        cut = (Grid((*grid.axes[:axis], grid.axes[axis] & chosen, *grid.axes[axis + 1 :])) for grid in piece.grids)
        yield Region.of(*(grid for grid in cut if grid))


def share_sizes(piece: Region, count: int, records: bool) -> list[int]:
    """How many elements each of `shares` has."""
    if len(piece.grids) != 1:
        return [share.size for share in shares(piece, count, records)]
    able = [axis.size for axis in piece.grids[0].axes[: piece.grids[0].ndim - records]]
    if count == 1 or not able:
        return [piece.size] + [0] * (count - 1)
    size, each = max(able), piece.size // max(able)
    return [((k + 1) * size // count - k * size // count) * each for k in range(count)]


def _united(sets: Iterator[IntSet]) -> IntSet:
    first, *others = dict.fromkeys(sets)
    return first.union(*others) if others else first


def _numbered(values: IntSet, start: int, stop: int) -> IntSet:
    """Elements number start to stop - 1 of a set, counted in ascending order."""
    return values & IntSet.interval(_at(values, start), _at(values, stop)) if start < stop else IntSet()


def _at(values: IntSet, number: int) -> int:
    """The least bound that so many elements lie below."""
    if number == 0:
        return values.lo
    if all(a.stop <= b.start for a, b in pairwise(values.runs)):
        for run in values.runs:
            if number <= len(run):
                return run[number - 1] + 1
            number -= len(run)
    lo, hi = values.lo, values.hi  # runs that interleave
    while lo < hi:
        middle = (lo + hi) // 2
        if (values & IntSet.interval(values.lo, middle)).size < number:
            lo = middle + 1
        else:
            hi = middle
    return lo
