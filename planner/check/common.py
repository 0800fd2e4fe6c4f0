"""How many elements many regions have in common with many others, by the runs that the second engine reads.

Each pair of sets of an axis is met once, however many regions have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import cells
from .algebra import Algebra
from .cells import Runs, Tile

FAR = 1 << 61  # ends of which sums and differences need no more than 64 bits


def common_sizes(algebra: Algebra, some: Sequence[int], others: Sequence[int], exact: np.dtype[Any]) -> Any:
    """[one, other] elements that two regions have in common; none is empty. ``exact``: what holds as many."""
    mine, theirs = ([algebra.form(number).tiles for number in numbers] for numbers in (some, others))
    tiles, other_tiles = ([tile for form in forms for tile in form] for forms in (mine, theirs))
    found = np.ones((len(tiles), len(other_tiles)), dtype=exact)
    for axis in range(len(tiles[0])):
        (sets, at), (other_sets, there) = _told_apart(tiles, axis), _told_apart(other_tiles, axis)
        found = found * _lengths(sets, other_sets)[at[:, None], there]
    for along, forms in enumerate((mine, theirs)):
        if found.shape[along] > len(forms):
            first = np.cumsum([0, *map(len, forms[:-1])])
            found = np.add.reduceat(found, first, axis=along)
    return found


def _told_apart(tiles: Sequence[Tile], axis: int) -> tuple[list[Runs], Any]:
    """The different sets of an axis, and which of them each tile has."""
    numbers: dict[Runs, int] = {}
    codes = [numbers.setdefault(tile[axis], len(numbers)) for tile in tiles]
    return list(numbers), np.array(codes)


def _lengths(sets: Sequence[Runs], others: Sequence[Runs]) -> Any:
    """How many values each of some sets has in common with each of others."""
    if any(run.step != 1 for runs in (*sets, *others) for run in runs):
        met = [[cells.classes([(a,), (b,)], lambda *_: None).get(3, 0) for b in others] for a in sets]
        return np.array(met, dtype=np.int64)
    ends = [end for runs in (*sets, *others) for run in runs for end in (run.start, run.stop)]
    exact = np.dtype(np.int64 if all(abs(end) < FAR for end in ends) else object)
    found = np.zeros((len(sets), len(others)), dtype=exact)
    for low, high in _ends(sets, exact):
        for other_low, other_high in _ends(others, exact):
            both = np.minimum(high[:, None], other_high) - np.maximum(low[:, None], other_low)
            found += np.maximum(both, 0)
    return found


def _ends(sets: Sequence[Runs], exact: np.dtype[Any]) -> list[tuple[Any, Any]]:
    """Where the first runs of all sets begin and end, where the second, and so on; nothing where none is left."""
    most = max(map(len, sets))
    filled = [[*((run.start, run.stop) for run in runs), *[(0, 0)] * (most - len(runs))] for runs in sets]
    table = np.array(filled, dtype=exact)
    return [(table[:, k, 0], table[:, k, 1]) for k in range(most)]
