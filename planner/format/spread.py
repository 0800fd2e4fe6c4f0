"""What ranks hold, told apart: the different regions, and the disjoint pieces with the ranks that hold each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...space import Grid, IntSet, Region
from .messages import refined
from .senders import least


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
        else:
            held = refined_along(self) or refined(dict(enumerate(self.given)))
        return Pieces(held, [region.size for region in self.given])


@lru_cache(maxsize=1024)
def _apart(sets: tuple[IntSet, ...]) -> bool:
    different = dict.fromkeys(sets)
    return IntSet().union(*different).size == sum(values.size for values in different)


def refined_along(spread: Spread) -> list[tuple[Region, tuple[int, ...]]] | None:
    """`refined` regions that are single grids and have common elements that they do not share whole along one axis
    alone, all of intervals; None for others.
    """
    grids = [region.grids[0] for region in spread.regions]
    if not grids or any(len(region.grids) != 1 for region in spread.regions):
        return None
    tangled = [k for k, sets in enumerate(zip(*(grid.axes for grid in grids), strict=True)) if not _apart(sets)]
    if len(tangled) != 1 or any(run.step != 1 for grid in grids for run in grid.axes[tangled[0]].runs):
        return None
    at, beside = tangled[0], dict[tuple[IntSet, ...], dict[IntSet, list[int]]]()
    for rank, code in enumerate(spread.codes.tolist()):
        if code >= 0:
            axes = grids[code].axes
            beside.setdefault((*axes[:at], *axes[at + 1 :]), {}).setdefault(axes[at], []).append(rank)
    found = []
    for others, ranks in beside.items():
        for values, members in _cells(list(ranks)):
            holders = sorted(rank for k in members for rank in list(ranks.values())[k])
            found.append((Grid((*others[:at], values, *others[at:])).region(), tuple(holders)))
    return found


def _cells(sets: Sequence[IntSet]) -> list[tuple[IntSet, tuple[int, ...]]]:
    """Values that are in the same of some sets of intervals, with the numbers of these sets."""
    ends = np.unique([end for values in sets for run in values.runs for end in (run.start, run.stop)])
    inside = np.zeros((len(sets), len(ends)), dtype=bool)
    for k, values in enumerate(sets):
        for run in values.runs:
            inside[k, np.searchsorted(ends, run.start) : np.searchsorted(ends, run.stop)] = True
    runs: dict[bytes, tuple[list[range], tuple[int, ...]]] = {}
    for low, high, column in zip(ends[:-1].tolist(), ends[1:].tolist(), inside.T, strict=False):
        if column.any():
            members = tuple(np.flatnonzero(column).tolist())
            runs.setdefault(column.tobytes(), ([], members))[0].append(range(low, high))
    return [(IntSet.of(*mine), members) for mine, members in runs.values()]


class Pieces:
    """Disjoint regions with the ranks that hold each."""

    def __init__(self, pieces: Sequence[tuple[Region, tuple[int, ...]]], sizes: Sequence[int]) -> None:
        """sizes: elements that each rank holds in all."""
        self.regions = [region for region, _ in pieces]
        self.holders = [holders for _, holders in pieces]
        self.sizes = sizes
        self._senders: dict[tuple[int, ...], Senders] = {}

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
        return np.array([holders[0] for holders in self.holders], dtype=np.int64)

    def senders(self, of: tuple[int, ...]) -> Senders:
        """Who sends within groups, by the group of each rank: the holders there that hold the fewest elements."""
        if of not in self._senders:
            chosen: dict[tuple[int, int], list[int]] = {}
            for piece, holders in enumerate(self.holders):
                for rank in holders:
                    chosen.setdefault((piece, of[rank]), []).append(rank)
            chosen = {place: least(ranks, self.sizes) for place, ranks in chosen.items()}
            shape = len(self.holders), 1 + max(of)
            table = np.zeros((*shape, max(map(len, chosen.values()), default=1)), dtype=np.int64)
            count = np.zeros(shape, dtype=np.int64)
            for place, ranks in chosen.items():
                table[place][: len(ranks)] = ranks
                count[place] = len(ranks)
            self._senders[of] = Senders(table, count)
        return self._senders[of]


class Senders(NamedTuple):
    """By piece and group the ranks that send it there, filled up, and how many they are."""

    table: Any
    count: Any
