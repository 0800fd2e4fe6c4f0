"""What every rank receives and sends where parts are folded, between layouts cut along axes: see `along`."""

from __future__ import annotations

from functools import cached_property
from math import lcm, prod

import numpy as np

from ..format.senders import Groups
from . import along
from .along import Along, Held, InTurn
from .columns import Columns, Ints, joined, overlap
from .layouts import Layout
from .tangled import Tangled


class Folding(Along):
    """A partial layout, the parts of which are folded."""

    @staticmethod
    def of_parts(have: Layout, groups: Groups) -> Folding | None:
        """None where that cannot be counted here."""
        found = Along.of(have, groups) if have.parts is not None else None
        return None if found is None else Folding(have, found.cut, groups)

    @cached_property
    def contributions(self) -> tuple[Held, Ints]:
        """Who holds which part of which piece; and of each of these the piece."""
        parts = np.unique(np.array(self.have.parts), return_inverse=True)[1]
        most = 1 + int(parts.max())
        numbers, codes = np.unique(self.held.codes * most + parts, return_inverse=True)
        return Held.of(codes), numbers // most

    def folded(self, need: Layout, *, records: bool) -> tuple[Ints, Ints, int] | None:
        """[received or sent, level, rank] elements and records, and what all counts of ranks that share a piece
        divide, as `planner.format.folds` counts them; None where that is not known here."""
        cut = self.able(need)
        tangled = [] if cut is None else [k for k, axis in enumerate(cut) if not axis.apart]
        if cut is None or len(tangled) > 1 or not self._all_there(need, cut):
            return None
        if tangled:
            folds = Tangled(self, cut, tangled[0], len(cut) - records).folds()
            told = np.diff(folds.within, axis=0, prepend=0).swapaxes(0, 1)
            return told, self._contributed(folds.shares), lcm(*folds.counts)
        needed = Held.of(joined(cut)[0])
        shared = Shares(self, cut, needed, len(cut) - records)
        shares = np.zeros((len(self.first), self.ranks), dtype=np.int64)
        for some, block in self.blocks(cut):
            shares[some] = shared.of(some, block)
        return self._told(shares.sum(axis=0), needed), self._contributed(shares), lcm(*shared.counts)

    def _all_there(self, need: Layout, cut: Columns) -> bool:
        """Whether some piece has each element that is needed."""
        if int(self.have.sizes[self.first].sum()) == prod(self.have.shape):
            return True
        there = sum(block.sum(axis=0) for _, block in self.blocks(cut))
        return bool((there == need.sizes).all())

    def _contributed(self, shares: Ints) -> Ints:
        """What comes to those who fold, [piece, rank], from all who have a part of a piece."""
        if int(self.contributions[0].count.max()) == 1:
            return self._given_by_one(shares)
        found = np.zeros((2, len(self.levels), self.ranks), dtype=np.int64)
        self._given_in_turn(found, shares)
        return found

    def _given_by_one(self, shares: Ints) -> Ints:
        """What comes to those who fold, where each part of a piece is one rank's."""
        codes = self.held.codes
        received, sent = self.held.count @ shares, shares.sum(axis=1)[codes]
        return self.between(lambda holders, ranks: shares[codes[holders], ranks], received, sent)

    def _given_in_turn(self, found: Ints, shares: Ints) -> None:
        held, pieces = self.contributions
        turns = InTurn(held, self.levels)
        for number, level in enumerate(self.levels[:-1]):
            members = level.members
            wanted = shares[self.held.codes[members][:, None, :], members[:, :, None]]
            turns.within(found, number, wanted * (level.there[:, None, :] & level.there[:, :, None]))
        step = max(1, along.ENTRIES // self.ranks)
        for begin in range(0, len(pieces), step):
            some = slice(begin, min(begin + step, len(pieces)))
            turns.beyond(found, some, shares[pieces[some]])

    def _told(self, folded: Ints, needed: Held) -> Ints:
        """What ranks folded and tell all others that need the same."""
        within = []
        for level in self.levels:
            key = np.unique(level.of * len(needed.count) + needed.codes, return_inverse=True)[1]
            heard = np.zeros(int(key.max()) + 1, dtype=np.int64)
            np.add.at(heard, key, folded)
            within.append(np.stack([heard[key] - folded, folded * (np.bincount(key)[key] - 1)]))
        return np.diff(np.stack(within, axis=1), axis=1, prepend=0)


class Shares:
    """Who folds how much of what. ``counts``: the numbers of ranks that share a piece, of all that were asked for.

    ``able``: how many axes may be cut.
    """

    def __init__(self, source: Along, need: Columns, needed: Held, able: int) -> None:
        self.source, self.need, self.needed, self.able = source, need, needed, able
        self.counts = {1}
        place = np.empty_like(needed.codes)  # of every rank, among those that need the same
        place[needed.order] = np.arange(len(needed.codes)) - np.repeat(needed.start, needed.count)
        self.place = place
        both = Held.of(np.unique(source.held.codes * len(needed.count) + needed.codes, return_inverse=True)[1])
        own = np.empty_like(place)  # the same among those that have the same as well
        own[both.order] = np.arange(len(own)) - np.repeat(both.start, both.count)
        self.own, self.owners = own, both.count[both.codes]

    def of(self, some: slice, wanted: Ints) -> Ints:
        """[piece, rank] elements that the rank folds of some of the pieces. ``wanted``: those that it needs."""
        codes, here = self.source.held.codes, np.arange(wanted.shape[1])
        there = (codes >= some.start) & (codes < some.stop)
        mine, rows = here[there], codes[there] - some.start
        contributed = np.zeros((len(wanted), len(self.needed.count)), dtype=bool)
        contributed[rows, self.needed.codes[there]] = True  # who needs it and contributes to it folds it
        taken = contributed[:, self.needed.codes]
        turn, count = np.broadcast_to(self.place, wanted.shape), self.needed.count[self.needed.codes]
        longest = self._longest(some, wanted)
        shares = _share(turn, count[None], wanted, longest, cut=self.able > 0)
        shares[taken] = 0
        own = wanted[rows, mine]
        shares[rows, mine] = _share(self.own[mine], self.owners[mine], own, longest[rows, mine], cut=self.able > 0)
        if self.able:
            others = (wanted > 0) & ~taken
            self.counts |= {*np.unique(count[others.any(axis=0)]).tolist()}
            self.counts |= {*np.unique(self.owners[mine][own > 0]).tolist()}
        return shares

    def _longest(self, some: slice, wanted: Ints) -> Ints:
        """[piece, rank] coordinates along the longest axis that may be cut."""
        found = np.ones_like(wanted)
        first = self.source.first[some]
        for mine, theirs in [*zip(self.source.cut, self.need, strict=True)][: self.able]:
            sets, at = np.unique(mine.codes[first], return_inverse=True)
            table = overlap(mine, sets[:, None], theirs, np.arange(len(theirs.sets))[None])
            np.maximum(found, table[:, theirs.codes][at], out=found)
        return found


def _share(turn: Ints, count: Ints, size: Ints, longest: Ints, *, cut: bool) -> Ints:
    """Elements of the share of a piece with a number, of so many shares."""
    if not cut:
        return np.where(turn == 0, size, 0)
    length = (turn + 1) * longest // count - turn * longest // count
    found: Ints = length * (size // longest)
    return found
