"""The cheapest paths from any layout to the plain ones of its tensor, which `routes` knows among themselves.

From a layout that is not plain the first transfer goes to a plain one. Parts of a fold may be folded within hosts
first, and what they make there between hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...records import Width
from . import paths, routes
from .kinds import complete_kind
from .layouts import Layout, Layouts
from .mesh import Mesh
from .routes import Atlas, Floats, Routes

if TYPE_CHECKING:
    from .traffic import Traffic


class Ways:
    """At the prices of one `Traffic`, which says what single transfers take."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic, self._groups = traffic, traffic.levels[1]
        self._layouts = Layouts(traffic.mesh)
        self._routes: dict[tuple[tuple[int, ...], int], Routes | None] = {}
        self._numbers: dict[Layout, int | None] = {}
        self._directs: dict[tuple[Layout, Width], Floats] = {}
        self._firsts: dict[tuple[Layout, Width], Floats] = {}
        self._larger: dict[tuple[Layout, Width, int], Layout] = {}

    def shorten(self, seconds: Floats, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> None:
        """[have, need] seconds: of those needs that are plain, put what the cheapest paths take in their place."""
        known = self._routes_of(needs[0].shape, width) if haves and needs else None
        numbers = (
            {} if known is None else {k: at for k, n in enumerate(needs) if (at := self.number(n, width)) is not None}
        )
        if known is None or not numbers:
            return
        self._look_ahead(haves, known, width)
        places, ends = list(numbers), np.array(list(numbers.values()))
        for row, have in enumerate(haves):
            start = self.number(have, width)
            if start is not None:
                seconds[row, places] = known.seconds[start, ends]
            else:
                through = self._first(have, known, width)[:, None] + known.seconds[:, ends]
                seconds[row, places] = through.min(axis=0)

    def _look_ahead(self, haves: Sequence[Layout], known: Routes, width: Width) -> None:
        """Find out what first transfers from all of these layouts take at once."""
        new = [h for h in haves if self.number(h, width) is None and (h, width) not in self._directs]
        for alike in ([have for have in new if have.parts is None], [have for have in new if have.parts is not None]):
            if alike:
                found = self._traffic.at_once.directly(alike, known.nodes, width)
                self._directs.update(((have, width), row) for have, row in zip(alike, found, strict=True))

    def path(self, have: Layout, need: Layout, width: Width) -> tuple[Layout, ...] | None:
        """The cheapest path to a plain layout; None to others."""
        known, start, end = self._routes_of(have.shape, width), self.number(have, width), self.number(need, width)
        if known is None or end is None:
            return None
        if start is not None:
            return have, *known.path(start, end)[:-1], need
        first = self._first(have, known, width)
        whole = first + known.seconds[:, end]
        best = int(whole.argmin())
        if whole[best] >= first[end] * (1 - routes.SHORTER):
            best = end
        begin = self._begin(have, best, width)
        return (*begin, need) if best == end else (*begin, known.nodes[best], *known.path(best, end)[:-1], need)

    def _first(self, have: Layout, known: Routes, width: Width) -> Floats:
        """Seconds from a layout that is not plain, or is partial, to each plain one: of one transfer, but for those of
        parts to larger ones.
        """
        key = have, width
        if key not in self._firsts:
            self._look_ahead([have], known, width)
            self._firsts[key] = self._by_level(have, self._directs[key], known, width)
        return self._firsts[key]

    def _by_level(self, have: Layout, seconds: Floats, known: Routes, width: Width) -> Floats:
        """The same, or less where parts are folded within groups of ranks first."""
        best = seconds
        apart = [node for node in known.nodes if node.total == prod(have.shape)]
        for of in self._groups[:-1] if have.parts is not None else ():
            for found in paths.within_groups(have, of, apart, packed=width.packed):
                mid = self._layouts.of(have.shape, *found)
                through = self._traffic.direct(have, mid, width).seconds + self._first(mid, known, width)
                for node in np.flatnonzero(through < best * (1 - routes.SHORTER)).tolist():
                    self._larger[have, width, node] = mid
                best = np.where(through < best * (1 - routes.SHORTER), through, best)
        return best

    def _begin(self, have: Layout, node: int, width: Width) -> tuple[Layout, ...]:
        """A layout, and those with larger parts that it becomes on the way to a plain one."""
        mid = self._larger.get((have, width, node))
        return (have,) if mid is None else (have, *self._begin(mid, node, width))

    def number(self, layout: Layout, width: Width) -> int | None:
        """Which of the plain layouts it is."""
        if layout not in self._numbers:
            known = self._routes_of(layout.shape, width) if layout.parts is None else None
            self._numbers[layout] = None if known is None else known.number.get(layout.regions)
        return self._numbers[layout]

    def _routes_of(self, shape: tuple[int, ...], width: Width) -> Routes | None:
        """Paths between the plain layouts of a tensor; None where there are none but the whole, or too many ranks."""
        key = shape, width.complete
        if key not in self._routes:
            mesh = routes.by_level(self._traffic.mesh, self._groups)
            axes = routes.cut_axes(shape, mesh)
            able = axes and 1 < mesh.size <= routes.MOST_RANKS and not self._traffic.pathless
            self._routes[key] = self._routed(shape, mesh, axes, width) if able else None
        return self._routes[key]

    def _routed(self, shape: tuple[int, ...], mesh: Mesh, axes: tuple[int, ...], width: Width) -> Routes:
        found = routes.atlas(mesh, self._groups, routes.unit(shape, axes, mesh), complete_kind)
        each = width.complete * (prod(shape) // found.elements)
        busiest, size = (found.busiest * each).tolist(), len(found.kinds)
        pairs = product(range(size), repeat=2)
        price = self._traffic.seconds_of
        direct = [price(found.kinds[a][b], tuple(busiest[a][b]), self._receiving(found, a, b)) for a, b in pairs]
        nodes = routes.plain_layouts(shape, axes, Layouts(mesh), self._groups)
        return Routes.of(nodes, np.array(direct).reshape(size, size))

    def _receiving(self, found: Atlas, have: int, need: int) -> tuple[int, ...]:
        return found.lacking[have][need] if self._traffic.shared else ()
