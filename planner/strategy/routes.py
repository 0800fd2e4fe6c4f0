"""The cheapest paths between the plain layouts of a tensor, all pairs at once.

Plain is a layout in which every mesh axis cuts one axis of the tensor into equal blocks, or has copies; and one in
which ranks of different hosts or islands, at equal places in them, have brought such blocks together. What a transfer
between two of them moves is in proportion to the size of the tensor, so it is counted once, on a small one (`Atlas`),
for all tensors. Mesh axes that cross hosts or islands are taken apart there, so that what lies within a host is a
layout of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from ...space import Region
from ..format.loads import complete_loads
from ..format.senders import Groups
from .columns import Ints
from .layouts import Layout, Layouts, relate
from .mesh import Cut, Mesh

MOST_RANKS = 64
MOST = 32  # layouts of a tensor whose axes are cut in every way
SHORTER = 1e-9  # by how much of itself a path must be shorter than another one, so that rounding decides nothing

Floats = Any


def by_level(mesh: Mesh, groups: Groups) -> Mesh:
    """The mesh with every axis in two that reaches beyond the groups of a level, where these are equal rows of ranks.

    >>> by_level(Mesh.of((8, 2), 16), ((0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4, (0,) * 16)).shape
    (4, 2, 2)
    """
    shape = list(mesh.shape)
    for of in groups[:-1]:
        size = of.count(0)
        if of != tuple(rank // size for rank in range(mesh.size)) or mesh.size % size:
            continue
        below = mesh.size
        for axis, extent in enumerate(shape):
            below //= extent
            if below < size < below * extent and size % below == 0 and extent % (size // below) == 0:
                shape[axis : axis + 1] = [extent * below // size, size // below]
                break
    return Mesh(tuple(shape), tuple(f"axis{k}" for k in range(len(shape))))


def plain_layouts(shape: Sequence[int], axes: Sequence[int], layouts: Layouts, groups: Groups) -> list[Layout]:
    """All of a tensor, each once; ``axes``: those that are cut. As many for every tensor with the same `unit`."""
    mesh = layouts.mesh
    found: dict[tuple[Region, ...], Layout] = {}
    even = [p for p in product((None, *axes), repeat=len(mesh.shape)) if _even(p, shape, mesh)]
    for pattern in even:
        layout = layouts.cut(tuple(shape), [None if axis is None else Cut(str(axis)) for axis in pattern])
        found.setdefault(layout.regions, layout)
    crossing = [k for k in range(len(mesh.shape)) if _crosses(mesh, k, groups)]
    for pattern in even if crossing else ():
        layout = layouts.cut(tuple(shape), [None if axis is None else Cut(str(axis)) for axis in pattern])
        for k in crossing:
            if pattern[k] is not None and pattern[k] in pattern[k + 1 :]:
                together = layout.around(_apart_in(mesh, k))
                found.setdefault(together.regions, together)
    return [*found.values()]


def _even(pattern: Sequence[int | None], shape: Sequence[int], mesh: Mesh) -> bool:
    """Whether every axis is in equal blocks."""
    counts = [1] * len(shape)
    for axis, count in zip(pattern, mesh.shape, strict=True):
        if axis is not None:
            counts[axis] *= count
    return all(extent % count == 0 for extent, count in zip(shape, counts, strict=True))


def _crosses(mesh: Mesh, axis: int, groups: Groups) -> bool:
    """Whether ranks that differ in their coordinate along one axis alone may be in different groups."""
    return any(of[rank] != of[ranks[0]] for of in groups for ranks in _apart_in(mesh, axis) for rank in ranks)


def _apart_in(mesh: Mesh, axis: int) -> tuple[tuple[int, ...], ...]:
    """The ranks that differ in their coordinate along one axis alone."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(mesh.coordinates):
        rows.setdefault((*place[:axis], *place[axis + 1 :]), []).append(rank)
    return tuple(map(tuple, rows.values()))


class Atlas:
    """The transfers between all plain layouts of the smallest tensor that can be cut so.

    busiest   [have, need, level] elements that the busiest rank receives or sends, whichever is more
    kinds     [have][need] what a library would call it
    lacking   [have, need, rank] whether the rank lacks anything
    """

    def __init__(self, mesh: Mesh, groups: Groups, shape: tuple[int, ...], kind: Callable[..., str]) -> None:
        self.elements = prod(shape)
        nodes = plain_layouts(shape, range(len(shape)), Layouts(mesh), groups)
        related = relate(nodes, nodes)
        spreads = [node.spread for node in nodes]
        self.busiest: Ints = np.array([_most(have.spread, spreads, groups) for have in nodes])
        self.kinds = [[kind(a, b, related.of(k).pair(j)) for j, b in enumerate(nodes)] for k, a in enumerate(nodes)]
        self._nodes = nodes

    @cached_property
    def lacking(self) -> list[list[tuple[int, ...]]]:
        """[have][need] the ranks that lack anything."""
        return [
            [tuple(rank for rank, lack in enumerate(a.missing(b)) if lack) for b in self._nodes] for a in self._nodes
        ]


def _most(have: Any, needs: Sequence[Any], groups: Groups) -> Ints:
    found: Ints = complete_loads(have, needs, groups).max(axis=(1, 3))
    return found


@lru_cache(maxsize=64)
def atlas(mesh: Mesh, groups: Groups, shape: tuple[int, ...], kind: Callable[..., str]) -> Atlas:
    """One for all tensors and searches. ``shape``: see `unit`."""
    return Atlas(mesh, groups, shape, kind)


def unit(shape: Sequence[int], axes: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """Of the axes that are cut, into how many equal blocks they can be."""
    return tuple(gcd(shape[axis], mesh.size) for axis in axes)


@dataclass(frozen=True, eq=False)
class Routes:
    """The plain layouts of a tensor: ``seconds`` [have, need] on the cheapest path, and ``onward`` [have, need] the
    layout that comes next on it."""

    nodes: list[Layout]
    number: dict[tuple[Region, ...], int]
    seconds: Floats
    onward: Ints

    @staticmethod
    def of(nodes: list[Layout], direct: Floats) -> Routes:
        """``direct``: seconds of one transfer. Shortest paths by Floyd and Warshall, all pairs at each step."""
        seconds, onward = direct.copy(), np.broadcast_to(np.arange(len(nodes)), direct.shape).copy()
        for k in range(len(nodes)):
            through = seconds[:, k, None] + seconds[k]
            shorter = through < seconds * (1 - SHORTER)
            seconds = np.where(shorter, through, seconds)
            onward = np.where(shorter, onward[:, k, None], onward)
        return Routes(nodes, {node.regions: k for k, node in enumerate(nodes)}, seconds, onward)

    def path(self, have: int, need: int) -> list[Layout]:
        """The layouts behind one of them on its way to another."""
        found = []
        while have != need:
            have = int(self.onward[have, need])
            found.append(self.nodes[have])
        return found


def cut_axes(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """The axes of a tensor that its plain layouts cut: the longest of those that some ranks share evenly, as many as
    leave a few layouts."""
    even = [axis for axis, extent in enumerate(shape) if extent and gcd(extent, mesh.size) > 1]
    most = max((n for n in range(len(shape) + 1) if (n + 1) ** len(mesh.shape) <= MOST), default=0)
    return tuple(sorted(sorted(even, key=lambda axis: (-shape[axis], axis))[:most]))
