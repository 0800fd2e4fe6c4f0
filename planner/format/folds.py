"""How many elements every rank receives and sends in transfers that fold one partial source, for many of them at once.

Where different ranks need the same or nothing in common, all that `planner.format.senders` says of a fold is a table
of [transfer, piece of what is there, rank]: who of the needers of a piece fold which share of it, from whom these take
the parts they lack, and whom they tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...space import Region
from .loads import ENTRIES, IN, OUT, Counts, Loads, Pieces, Spread, common_sizes, partial_loads, senders_of, taken
from .senders import Groups


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

    def loads(self, needs: Sequence[Spread]) -> Iterator[Loads]:
        """What each of some layouts takes."""
        simple = self.pieces.regions and all(len(region.grids) == 1 for region in self.pieces.regions)
        plain = dict.fromkeys(need for need in needs if simple and need.regions and need.apart)
        counted: dict[Spread, Loads] = {}
        if plain:
            met = _Met(self.pieces.regions, list(plain), records=self.records)
            tables = [need for need in plain if met.all_there(need)]
            step = max(1, ENTRIES // (len(self.given) * len(self.parts)))
            for first in range(0, len(tables), step):
                some = tables[first : first + step]
                counted.update(zip(some, self._counted(some, met), strict=True))
        for need in needs:
            yield counted.get(need) or self._one_by_one(need)

    def _one_by_one(self, need: Spread) -> Loads:
        return partial_loads(self.held.given, need.given, self.parts, self.groups, records=self.records)

    def _counted(self, needs: Sequence[Spread], met: _Met) -> Iterator[Loads]:
        codes = np.array([need.codes for need in needs])
        shares = self._shares(codes, *met.of(needs), cut=met.cut)
        lacking = np.zeros((len(needs), len(self.contributions.holders), len(self.parts)), dtype=np.int64)
        for k, piece in self.given:
            lacking[:, k] += shares[:, piece]
        lacking[:, self.contributions.held] = 0
        contributed = taken(lacking, senders_of(self.contributions, lacking, self.groups), self.groups)
        return map(Loads, _told(codes, shares.sum(axis=1), self.groups), contributed)

    def _shares(self, codes: Any, elements: Counts, longest: Counts, *, cut: bool) -> Counts:
        """[transfer, piece of what is there, rank] elements that the rank folds of it."""
        held = self.pieces.held
        all_needers, holding = _like(codes, np.ones_like(held[:1])), _like(codes, held)
        able = holding.count > 0
        count = np.where(able, holding.count, all_needers.count)
        turn = np.where(able, holding.turn, all_needers.turn)
        length = (turn + 1) * longest // count - turn * longest // count if cut else 1 * (turn == 0)
        folds = (elements > 0) & (held | ~able)
        shares: Counts = np.where(folds, length * (elements // np.maximum(longest, 1)), 0)
        return shares


class _Like(NamedTuple):
    """[transfer, piece, rank]: of the ranks that need the same as a rank, how many hold the piece, and how many of these
    come before it."""

    turn: Any
    count: Any


def _like(codes: Any, held: Any) -> _Like:
    """``codes``: [transfer, rank], equal for ranks that need the same; ``held``: [piece, rank]."""
    order = np.argsort(codes, axis=1, kind="stable")
    ordered = np.take_along_axis(codes, order, axis=1)
    places = np.broadcast_to(np.arange(codes.shape[1]), codes.shape)
    fresh = np.ones(codes.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    final = np.ones(codes.shape, dtype=bool)
    final[:, :-1] = fresh[:, 1:]
    first = np.maximum.accumulate(np.where(fresh, places, 0), axis=1)[:, None]
    last = np.minimum.accumulate(np.where(final, places, codes.shape[1])[:, ::-1], axis=1)[:, None, ::-1]
    before = np.zeros((len(codes), len(held), codes.shape[1] + 1), dtype=np.int64)
    np.cumsum(held[:, order].swapaxes(0, 1), axis=2, out=before[:, :, 1:])
    begun = np.take_along_axis(before, np.broadcast_to(first, (len(codes), len(held), codes.shape[1])), axis=2)
    ended = np.take_along_axis(before, np.broadcast_to(last + 1, begun.shape), axis=2)
    found = np.empty((2, *begun.shape), dtype=np.int64)
    at = np.broadcast_to(order[:, None], begun.shape)
    np.put_along_axis(found[0], at, before[:, :, :-1] - begun, axis=2)
    np.put_along_axis(found[1], at, ended - begun, axis=2)
    return _Like(found[0], found[1])


class _Met:
    """What pieces have in common with the regions of some layouts: ``elements``, and coordinates along the longest axis
    that may be cut, by [piece, region], with a last column for nothing."""

    def __init__(self, pieces: Sequence[Region], needs: Sequence[Spread], *, records: bool) -> None:
        regions = list(dict.fromkeys(region for need in needs for region in need.regions))
        self.number = {region: k for k, region in enumerate(regions)}
        per_axis = common_sizes(pieces, regions)
        able = per_axis[: len(per_axis) - records]
        elements = np.prod(per_axis, axis=0, dtype=np.int64)
        longest = np.max(able, axis=0) if able else np.ones_like(elements)
        self.cut = bool(able)
        there = elements.sum(axis=0) == [region.size for region in regions]
        self.there = dict(zip(regions, there.tolist(), strict=True))
        self.elements, self.longest = (np.concatenate([t, 0 * t[:, :1]], axis=1) for t in (elements, longest))

    def all_there(self, need: Spread) -> bool:
        """Whether some piece has each element that is needed, and numbers are small."""
        small = sum(region.size for region in need.given) * len(need.given) < 1 << 61
        return small and all(self.there[region] for region in need.regions)

    def of(self, needs: Sequence[Spread]) -> tuple[Counts, Counts]:
        """[transfer, piece, rank] both of what the rank needs."""
        nothing = len(self.number)
        codes = np.array([[self.number.get(region, nothing) for region in need.given] for need in needs])
        return self.elements[:, codes].swapaxes(0, 1), self.longest[:, codes].swapaxes(0, 1)


def _told(codes: Any, folded: Counts, groups: Groups) -> Counts:
    """[transfer, received or sent, level, rank] of what ranks folded and tell all others that need the same."""
    transfers, ranks = codes.shape
    found = np.zeros((transfers, 2, len(groups), ranks), dtype=np.int64)
    inner_in, inner_out = folded, np.zeros_like(folded)
    for level, of in enumerate(groups):
        kinds = 1 + int(codes.max())
        key = (np.arange(transfers)[:, None] * (1 + max(of)) + np.array(of)) * (kinds + 1) + 1 + codes
        key = np.unique(key, return_inverse=True)[1].reshape(codes.shape)
        size = int(key.max()) + 1
        heard = np.zeros(size, dtype=np.int64)
        np.add.at(heard, key.reshape(-1), folded.reshape(-1))
        count = np.bincount(key.reshape(-1), minlength=size)
        whole_in, whole_out = heard[key], folded * (count[key] - 1)
        found[:, IN, level] = np.where(codes >= 0, whole_in - inner_in, 0)
        found[:, OUT, level] = whole_out - inner_out
        inner_in, inner_out = whole_in, whole_out
    return found
