"""What every rank receives and sends between layouts cut along axes, by arithmetic on the sets of their axes.

The counts are those of `planner.format.loads` and `planner.format.folds`, which look at every piece that ranks have and
every region that they need. Among thousands of ranks that is too much. Here the regions that are there are apart, and
products of sets of axes, so an element count is a product of a few numbers, and within a group of ranks only what its
members have is looked at. Nothing is said (None) of layouts that are not so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..format.loads import EXACT, IN, OUT
from ..format.senders import Groups
from .columns import Column, Columns, Ints, joined, overlap
from .layouts import Layout

ENTRIES = 1 << 20  # of a table of pieces by ranks that is made at once


class Level(NamedTuple):
    """One level of `Groups`: of every rank its group and its place there, and [group, place] the ranks, in order and
    filled up with -1."""

    of: Ints
    places: Ints
    members: Ints

    @property
    def there(self) -> Any:
        """[group, place] whether a rank stands there."""
        return self.members >= 0


@lru_cache(maxsize=64)
def near(groups: Groups) -> tuple[Level, ...]:
    """The levels of groups as arrays."""
    found = []
    for level in groups:
        of = np.array(level, dtype=np.int64)
        order, counts = np.argsort(of, kind="stable"), np.bincount(of)
        places = np.empty_like(of)
        places[order] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        members = np.full((len(counts), int(counts.max())), -1, dtype=np.int64)
        members[of, places] = np.arange(len(of))
        found.append(Level(of, places, members))
    return tuple(found)


def elements(have: Columns, ranks: Ints, need: Columns, others: Ints) -> Ints:
    """Elements that regions of some ranks have in common with regions of others, rank by rank."""
    found: Ints = np.ones(np.broadcast_shapes(ranks.shape, others.shape), dtype=np.int64)
    for mine, theirs in zip(have, need, strict=True):
        if len(mine.sets) == len(theirs.sets) == 1:
            found *= overlap(mine, mine.codes[:1], theirs, theirs.codes[:1])
        else:
            found *= overlap(mine, mine.codes[ranks], theirs, theirs.codes[others])
    return found


@dataclass(frozen=True, eq=False)
class Held:
    """Who holds what, numbered: per rank its number, and rank by rank those who have the same one next to one another.

    ``order``: the ranks of number 0, of 1, and so on; ``start``, ``count``: by number.
    """

    codes: Ints
    order: Ints
    start: Ints
    count: Ints

    @staticmethod
    def of(codes: Ints) -> Held:
        count = np.bincount(codes)
        return Held(codes, np.argsort(codes, kind="stable"), np.cumsum(count) - count, count)


class Along:
    """A layout from which things are moved: regions that are apart, of intervals along axes. See `Along.of`."""

    def __init__(self, have: Layout, cut: Columns, groups: Groups) -> None:
        self.have, self.cut, self.levels = have, cut, near(groups)
        self.ranks = len(cut[0].codes)
        codes, first = joined(cut)
        self.first = np.array(first, dtype=np.int64)  # of every piece a rank that has it
        self.held = Held.of(codes)

    @staticmethod
    def of(have: Layout, groups: Groups) -> Along | None:
        """None where it is not known to be so."""
        cut = have.by_axes
        if cut is None or not have.tiled or any(column.spans is None for column in cut):
            return None
        return Along(have, cut, groups)

    def able(self, need: Layout) -> Columns | None:
        """The axes of a need, where its elements may be counted so."""
        cut = need.by_axes
        if cut is None or any(column.spans is None for column in cut) or need.total * self.ranks >= EXACT:
            return None
        return cut

    def blocks(self, need: Columns) -> Iterator[tuple[slice, Ints]]:
        """[piece, rank] elements that each rank needs of each piece, some pieces at a time."""
        step = max(1, ENTRIES // self.ranks)
        for begin in range(0, len(self.first), step):
            some = slice(begin, min(begin + step, len(self.first)))
            yield some, self._block(self.first[some], need)

    def _block(self, pieces: Ints, need: Columns) -> Ints:
        found = np.ones((len(pieces), self.ranks), dtype=np.int64)
        for mine, theirs in zip(self.cut, need, strict=True):
            sets, at = np.unique(mine.codes[pieces], return_inverse=True)
            table = overlap(mine, sets[:, None], theirs, np.arange(len(theirs.sets))[None])
            if len(theirs.sets) == 1:
                found *= table[at]
            elif len(sets) == 1:
                found *= table[0, theirs.codes]
            else:
                found *= table[:, theirs.codes][at]
        return found

    @cached_property
    def everyone(self) -> Ints:
        return np.arange(self.ranks)

    def moved(self, need: Layout) -> Ints | None:
        """[received or sent, level, rank] elements, as `planner.format.loads.complete_loads` counts them; None where
        that is not known here."""
        cut = self.able(need)
        if cut is None:
            return None
        if int(self.held.count.max()) == 1:
            return self._moved_from_one(need, cut)
        return self._moved_in_turn(cut)

    def _moved_from_one(self, need: Layout, cut: Columns) -> Ints | None:
        """Where each piece has one holder: what moves within a group is what its level and nearer ones move."""
        received = self._all_received(need, cut)
        if received is None:
            return None
        sent = self._all_sent(need, cut)
        return self.between(lambda holders, ranks: elements(self.cut, holders, cut, ranks), received, sent)

    def between(self, wanted: Callable[[Ints, Ints], Ints], received: Ints, sent: Ints) -> Ints:
        """[received or sent, level, rank] elements, where one rank alone holds what another wants of it. ``wanted``: of
        what holders have, what ranks want; ``received`` and ``sent``: from and to all, a rank itself among them.
        """
        here = self.everyone[:, None]
        own = wanted(self.everyone, self.everyone)
        within: list[Any] = []
        for level in self.levels[:-1]:
            members = level.members[level.of]
            both = (np.where(members >= 0, of, 0).sum(axis=1) for of in (wanted(members, here), wanted(here, members)))
            within.append(np.stack([*both]) - own)
        within.append(np.stack([received, sent]) - own)
        return np.diff(np.stack(within, axis=1), axis=1, prepend=0)

    def _all_received(self, need: Layout, cut: Columns) -> Ints | None:
        """What each rank needs of all that is there; None where that is not said by axes."""
        if int(self.have.sizes[self.first].sum()) == prod(self.have.shape):
            return np.asarray(need.sizes)
        found = np.zeros(self.ranks, dtype=np.int64)
        for _, block in self.blocks(cut):
            found += block.sum(axis=0)
        return found

    def _all_sent(self, need: Layout, cut: Columns) -> Ints:
        """What all ranks need of what each rank has, who has it for itself."""
        found = np.ones(self.ranks, dtype=np.int64)
        times = _evenly(need, cut)
        if times is None:
            for some, block in self.blocks(cut):
                found[self.first[some]] = block.sum(axis=1)
            return found
        for mine, theirs in zip(self.cut, cut, strict=True):
            found *= _needed(mine, theirs)[mine.codes]
        return found * times

    def _moved_in_turn(self, need: Columns) -> Ints:
        found = np.zeros((2, len(self.levels), self.ranks), dtype=np.int64)
        turns = InTurn(self.held, self.levels)
        for number in range(len(self.levels) - 1):
            level = self.levels[number]
            members, here = level.members[:, None, :], level.members[:, :, None]
            wanted = elements(self.cut, members, need, here)
            turns.within(found, number, wanted * (level.there[:, None, :] & level.there[:, :, None]))
        for some, block in self.blocks(need):
            turns.beyond(found, some, block)
        return found


class InTurn:
    """Who sends what several ranks hold: `planner.format.senders.in_turn`. All who hold a piece hold as much."""

    def __init__(self, held: Held, levels: Sequence[Level]) -> None:
        self.held, self.levels = held, levels

    @cached_property
    def near(self) -> list[Held]:
        """By level the holders of each piece within each group; their numbers are group by group, and of pieces."""
        pieces = len(self.held.count)
        return [Held.of(level.of * pieces + self.held.codes) for level in self.levels]

    def _has(self, level: int, pieces: Ints, ranks: Ints) -> Any:
        """Whether a rank's group at a level, or at -1 itself, has a piece."""
        if level < 0:
            return self.held.codes[ranks] == pieces
        key = self.levels[level].of[ranks] * len(self.held.count) + pieces
        count = self.near[level].count
        return (key < len(count)) & (count[np.minimum(key, len(count) - 1)] > 0)

    def within(self, found: Ints, number: int, wanted: Ints) -> None:
        """Add what moves at a level but the last. ``wanted``: [group, rank, holder] elements that ranks need of what
        those of their group hold."""
        level, near = self.levels[number], self.near[number]
        members = level.members
        pieces = self.held.codes[members]
        first = np.zeros(members.shape, dtype=bool)  # of every piece the first of its holders there counts
        first[level.of[near.order], level.places[near.order]] = np.diff(near.codes[near.order], prepend=-1) > 0
        without = ~self._has(number - 1, pieces[:, None, :], members[:, :, None])
        wanted = np.where(first[:, None, :] & without & (wanted > 0), wanted, 0)
        turn = np.cumsum(wanted > 0, axis=1) - 1
        groups, ranks, holders = np.nonzero(wanted)
        key = near.codes[members[groups, holders]]
        sender = near.order[near.start[key] + turn[groups, ranks, holders] % near.count[key]]
        counts = wanted[groups, ranks, holders]
        np.add.at(found[IN, number], members[groups, ranks], counts)
        np.add.at(found[OUT, number], sender, counts)

    def beyond(self, found: Ints, some: slice, wanted: Ints) -> None:
        """Add what moves at the last level. ``wanted``: [piece, rank] elements, of some of the pieces."""
        last, ranks = len(self.levels) - 1, np.arange(wanted.shape[1])
        pieces = np.arange(some.start, some.stop)
        wanted = np.where(self._has(last - 1, pieces[:, None], ranks[None]), 0, wanted)
        found[IN, last] += wanted.sum(axis=0)
        turn = np.cumsum(wanted > 0, axis=1) - 1
        most = int(self.held.count[some].max())
        place = (turn % self.held.count[some, None]) + np.arange(len(pieces))[:, None] * most
        sent = np.bincount(place.reshape(-1), weights=wanted.reshape(-1), minlength=most * len(pieces))
        slots = np.arange(most)[None]
        there = slots < self.held.count[some, None]
        sender = self.held.order[np.where(there, self.held.start[some, None] + slots, 0)]
        np.add.at(found[OUT, last], sender[there], sent.reshape(-1, most)[there].astype(np.int64))


def _evenly(need: Layout, cut: Columns) -> int | None:
    """How many ranks need each product of the sets of axes that ranks need, where all are needed by as many."""
    there = np.flatnonzero(need.sizes > 0)
    codes = [np.unique(axis.codes[there], return_inverse=True) for axis in cut]
    together, size = np.zeros(len(there), dtype=np.int64), prod(len(sets) for sets, _ in codes)
    if size != prod(sum(map(bool, axis.sets)) for axis in cut) or not 0 < size <= len(there):
        return None
    for sets, numbers in codes:
        together = together * len(sets) + numbers
    counts = np.bincount(together, minlength=size)
    return int(counts[0]) if (counts == counts[0]).all() else None


@lru_cache(maxsize=4096)
def _needed(mine: Column, theirs: Column) -> Ints:
    """Per set of one column how many values the different sets of another one have of it, added up."""
    assert mine.spans is not None
    assert theirs.spans is not None
    low, high = (ends.reshape(-1) for ends in theirs.spans)
    ends, at = np.unique(np.concatenate([low, high]), return_inverse=True)
    slopes = np.zeros(len(ends), dtype=np.int64)
    np.add.at(slopes, at, np.repeat([1, -1], len(low)))
    slopes = np.cumsum(slopes)
    below = np.concatenate([[0], np.cumsum(slopes[:-1] * np.diff(ends))])

    def until(values: Ints) -> Ints:
        place = np.searchsorted(ends, values, side="right") - 1
        found: Ints = np.where(place >= 0, below[place] + slopes[place] * (values - ends[place]), 0)
        return found

    found: Ints = (until(mine.spans[1]) - until(mine.spans[0])).sum(axis=1)
    return found
