"""What transfers take at least, all pairs of layouts at once, by what ranks lack of what they need alone.

No path takes less than the start of a transfer and the bytes that the busiest rank lacks, at the fastest rate. What a
group of ranks lacks altogether comes from beyond it, over the links between groups. Parts are joined one after another:
all ranks together receive as many contributions as there are but one, and a copy for each further rank that needs the
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from ..machine import Link, Scope
from ..machine.links import SCOPES
from .columns import Column, Ints, column
from .layouts import Layout
from .pairs import Related, Stack, common

if TYPE_CHECKING:
    from .traffic import Traffic

Floats = NDArray[np.float64]
Group = tuple[int, ...]  # per rank the number of its group


class Least:
    """At the links of one `Traffic`."""

    def __init__(self, traffic: Traffic) -> None:
        scopes, self._groups = traffic.levels
        # What does not come from within a group comes over some link beyond it.
        beyond = [[link for link in traffic.machine.links if reaches(link, scope)] for scope in scopes]
        self._rates = [max((link.gb_per_s * 1e9 for link in links), default=inf) for links in beyond]
        self._starts = [min(map(_start, links), default=0.0) for links in beyond]

    def seconds(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width, related: Related) -> Floats:
        """[have, need] where something is moved, else nothing."""
        complete = np.array([have.parts is None for have in haves], dtype=bool)[:, None]
        moved = np.where(complete, related.missing > 0, True)
        lacking = [np.where(complete, related.busiest * float(width.complete), _folded(haves, needs, width))]
        for of in self._groups[:-1]:
            lacking.append(_from_beyond(haves, needs, of) * float(min(width.complete, width.partial)))
        for level in reversed(range(len(lacking) - 1)):
            lacking[level] = np.maximum(lacking[level], lacking[level + 1])
        found = np.full(moved.shape, self._starts[0])
        for nbytes, start in zip(lacking[1:], self._starts[1:], strict=True):
            found = np.maximum(found, np.where(nbytes > 0, start, 0.0))
        for (nbytes, further), rate in zip(pairwise([*lacking, np.zeros(moved.shape)]), self._rates, strict=True):
            found = found + (nbytes - further) / rate
        return np.where(moved, found, 0.0).astype(
            np.float64
        )  # what regions of several grids lack are Python's integers


def reaches(link: Link, scope: Scope) -> bool:
    """Whether it connects devices that are as far from one another as those of a scope."""
    return SCOPES.index(link.scope) >= SCOPES.index(scope)


def _start(link: Link) -> float:
    return min([link.latency_s, *(curve.seconds(0) for curve in link.curve)])


def _folded(haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> Floats:
    """[have, need] bytes that the busiest rank receives at least where parts are folded."""
    size, ranks = prod(haves[0].shape), len(haves[0].regions)
    joined = np.array([float(have.part_count - 1 if _everywhere(have) else 0) for have in haves])
    whole = np.array([need.everything.size == size for need in needs], dtype=bool)
    copies = np.array([float(need.total - size) for need in needs])
    found = (joined[:, None] * size * width.partial + copies * width.complete) / ranks
    return np.where(whole, found, 0.0)


def _everywhere(have: Layout) -> bool:
    """Whether every part has a contribution to every element."""
    return have.parts is not None and all(region.size == prod(have.shape) for region in have.shares)


def _from_beyond(haves: Sequence[Layout], needs: Sequence[Layout], of: Group) -> Floats:
    """[have, need] elements that the busiest rank of a group receives at least from ranks of other groups."""
    found = np.zeros((len(haves), len(needs)))
    cut = [[layout.by_axes for layout in some] for some in (haves, needs)]
    if not all(axes is not None for some in cut for axes in some):
        return found
    together = [tuple(_together(axis, of) for axis in axes or ()) for axes in cut[0]]
    need = [axes for axes in cut[1] if axes is not None]
    shares, numbers = _shares(needs, Stack.of(need).regions, of), np.array(of)
    sizes = np.array([layout.sizes for layout in needs])
    apart = np.array([lacks_parts(have, of) for have in haves])  # [have, group]
    start = 0
    for both in common(together, need):
        rows = slice(start, start + len(both))
        complete = np.array([have.parts is None for have in haves[rows]])[:, None, None]
        lacking = np.where(complete, sizes - both, sizes * apart[rows][:, numbers][:, None]) * shares
        for group in np.unique(numbers):
            found[rows] = np.maximum(found[rows], lacking[:, :, numbers == group].sum(axis=2) / of.count(group))
        start += len(both)
    return found


def _shares(needs: Sequence[Layout], regions: Ints, of: Group) -> Floats:
    """[need, rank] one over the ranks of its group that need the same, where others of the group need nothing of it;
    else one over all of them."""
    numbers = np.array(of)
    alike = (regions[:, :, None] == regions[:, None, :]) & (numbers[:, None] == numbers)
    tiled = np.array([need.tiled for need in needs], dtype=bool)[:, None]
    shares: Floats = 1.0 / np.where(tiled, alike.sum(axis=2), (numbers[:, None] == numbers).sum(axis=1))
    return shares


def lacks_parts(have: Layout, of: Group) -> list[bool]:
    """Per group whether some part of each element is with other groups alone."""
    if have.parts is None or not _everywhere(have):
        return [False] * (max(of) + 1)
    there = [(group, part) for group, part, region in zip(of, have.parts, have.regions, strict=True) if region]
    return [len({part for at, part in there if at == group}) < have.part_count for group in range(max(of) + 1)]


@lru_cache(maxsize=8192)
def _together(axis: Column, of: Group) -> Column:
    """Every rank has all that some rank of its group has."""
    codes = [
        sorted({int(axis.codes[rank]) for rank, at in enumerate(of) if at == group}) for group in range(max(of) + 1)
    ]
    return column([axis.sets[mine[0]].union(*(axis.sets[k] for k in mine[1:])) for mine in codes], np.array(of))
