"""What lies where on a mesh: one region per rank, interned so that equal layouts are one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from ...space import Grid, Region
from ..format.spread import Spread
from .columns import (
    Columns,
    Sizes,
    beside,
    columns,
    common,
    covered,
    different,
    few,
    joined,
    of_those_there,
    region_of,
)
from .images import united_columns
from .mesh import Cut, Mesh, Shards, full_box
from .pairs import Pair, Related, Stack, facts, kept
from .sets import everything, in_both, inside, without


@dataclass(frozen=True, eq=False)
class Layout:
    """A layout: per rank a region of one tensor, with part numbers where it is partial.

    Compared by identity: `Layouts` makes equal layouts one object. It is ``given`` as regions, or as their axes, of
    which regions are made when they are asked for.
    """

    shape: tuple[int, ...]
    given: tuple[Region, ...] | None
    parts: tuple[int, ...] | None = None
    _cut: Columns | None = field(default=None, repr=False)
    _meets: dict[tuple[int, ...], Region] = field(default_factory=dict, repr=False)
    _pairs: dict[Layout, Pair] = field(default_factory=dict, repr=False)
    _related: list[tuple[Related, int]] = field(default_factory=list, repr=False)
    _around: dict[tuple[tuple[int, ...], ...], Layout] = field(default_factory=dict, repr=False)
    _stored: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """What each rank has."""
        if self.given is not None:
            return self.given
        assert self._cut is not None
        distinct, which = different(self._cut)
        return tuple(map(distinct.__getitem__, which.tolist()))

    def region(self, rank: int) -> Region:
        """What one rank has."""
        return self.regions[rank] if self._cut is None else region_of(self._cut, rank)

    @cached_property
    def sizes(self) -> Sizes:
        """Elements of each rank."""
        if self.by_axes is not None:
            found: Sizes = np.prod([axis.sizes for axis in self.by_axes], axis=0)
            return found
        small = prod(self.shape) < 1 << 62
        return np.array([region.size for region in self.regions], dtype=np.int64 if small else object)

    @cached_property
    def ranks(self) -> tuple[int, ...] | None:
        """Those that have anything; None: all, or none."""
        found = tuple(np.flatnonzero(self.sizes > 0).tolist())
        return None if len(found) in (0, len(self.sizes)) else found

    @cached_property
    def spread(self) -> Spread:
        """What each rank has, told apart, as transfers are counted by."""
        return Spread(self.regions)

    @cached_property
    def by_axes(self) -> Columns | None:
        """The axes of all regions, see `columns`."""
        return columns(self.shape, self.regions) if self._cut is None else self._cut

    def common(self, other: Layout) -> Sizes:
        """Elements that each rank has in both."""
        if self.by_axes is not None and other.by_axes is not None:
            return common(self.by_axes, other.by_axes)
        met = [a.meet_size(b) for a, b in zip(self.regions, other.regions, strict=True)]
        return np.array(met, dtype=object)

    def satisfies(self, need: Layout) -> bool:
        """Complete, and every rank holds what it needs already: no transfer, no copy."""
        return self.parts is None and need.within(self)

    @cached_property
    def total(self) -> int:
        """Elements on all ranks together, copies counted."""
        return sum(self.sizes.tolist())

    @cached_property
    def everything(self) -> Region:
        """All elements that some rank has."""
        found = None if self.by_axes is None else everything(self.by_axes)
        return self.union(range(len(self.sizes))) if found is None else Region((found,))

    @cached_property
    def tiled(self) -> bool:
        """Any two ranks are known to have the same elements or none in common."""
        return self.by_axes is not None and all(axis.apart for axis in self.by_axes)

    @cached_property
    def holders(self) -> int:
        """Ranks that have any element."""
        return int(np.count_nonzero(self.sizes > 0))

    def union(self, ranks: Sequence[int] | range) -> Region:
        """All elements that some of these ranks have."""
        key = tuple(ranks)
        if key not in self._meets:
            whole = self.by_axes is not None and covered(self.by_axes, key) == prod(self.shape)
            united = full_box(self.shape) if whole else Region.union(self.regions[rank] for rank in key)
            self._meets[key] = united
        return self._meets[key]

    def around(self, groups: tuple[tuple[int, ...], ...]) -> Layout:
        """All that some rank of its group has, on every rank. Each rank is in one group."""
        if groups not in self._around:
            regions = list(self.regions)
            for ranks in groups:
                together = self.union(ranks)
                for rank in ranks:
                    regions[rank] = together
            self._around[groups] = Layout(self.shape, tuple(regions))
        return self._around[groups]

    @cached_property
    def storage(self) -> dict[Region, Grid | None]:
        """What a buffer stores densely of each region that some rank has."""
        return {region: region.storage() for region in dict.fromkeys(self.regions)}

    @cached_property
    def storage_size(self) -> int:
        """Elements of the largest storage grid of any rank: what a buffer for it takes."""
        if self.by_axes is not None:
            return int(np.prod([axis.stored for axis in self.by_axes], axis=0).max())
        return max((grid.size for grid in self.storage.values() if grid is not None), default=0)

    def stored_on(self, ranks: tuple[int, ...]) -> int:
        """Elements of the largest storage grid of any of these ranks."""
        if ranks not in self._stored:
            grids = (self.storage[self.regions[rank]] for rank in ranks)
            self._stored[ranks] = max((grid.size for grid in grids if grid is not None), default=0)
        return self._stored[ranks]

    def stored_like(self, other: Layout) -> bool:
        """On every rank the same elements lie equally far from the start of a buffer for the one and for the other."""
        if self is other or self.storage_size != other.storage_size:
            return self is other
        both = zip(self.regions, other.regions, strict=True)
        return all(self.storage[a] == other.storage[b] for a, b in dict.fromkeys(both))

    @cached_property
    def disjoint(self) -> bool:
        """No element on two ranks."""
        return self.everything.size == self.total

    @property
    def one_copy(self) -> bool:
        """Every element is on one rank."""
        return self.disjoint and self.total == prod(self.shape)

    @cached_property
    def part_count(self) -> int:
        """Number of distinct contributions: 1 when complete."""
        if self.parts is None:
            return 1
        return len({part for part, size in zip(self.parts, self.sizes.tolist(), strict=True) if size})

    @cached_property
    def by_part(self) -> list[Layout]:
        """What the ranks of each part have."""
        numbers = sorted({part for part, region in zip(self.parts or (), self.regions, strict=True) if region})
        columns = (
            [r if p == k else Region() for p, r in zip(self.parts or (), self.regions, strict=True)] for k in numbers
        )
        return [Layout(self.shape, tuple(regions)) for regions in columns]

    @cached_property
    def shares(self) -> Counter[Region]:
        """What is there of each part, with how many parts have just that."""
        ranks: dict[int, list[int]] = {}
        for rank, part in enumerate(self.parts or ()):
            ranks.setdefault(part, []).append(rank)
        return Counter(self.union(mine) for mine in ranks.values())

    def shared_out(self, *, single: bool) -> Columns | None:
        """The same axis by axis, or with ``single`` only the first rank's of what several have. None where some element
        is nobody's, or where ranks have part of the same.
        """
        cut = self.by_axes
        if cut is None or (single and not self.tiled) or self.everything != full_box(self.shape):
            return None
        if not single:
            return cut
        first = np.zeros(len(self.sizes), dtype=bool)
        first[joined(cut)[1]] = True
        return of_those_there(cut, first & (self.sizes > 0))

    def pair(self, need: Layout) -> Pair:
        """What this layout has to do with one that is needed."""
        found = self._known(need)
        if found is None:
            found = self._pairs[need] = _counted(self, need)
        return found

    def _known(self, need: Layout) -> Pair | None:
        if need not in self._pairs:
            for related, row in self._related:
                if need in related.numbers:
                    self._pairs[need] = related.pair(row, need)
                    break
        return self._pairs.get(need)

    def missing(self, need: Layout) -> list[int]:
        """Per rank how many elements of ``need`` it does not hold."""
        found: list[int] = (need.sizes - self.common(need)).tolist()
        return found

    def moved(self, need: Layout) -> int:
        """Elements that ranks receive from one another to complete ``need``: what `planner.format.messages` sends.

        Complete: what each rank is missing. Partial: one for each part that an element has, and for each needer, but
        those whose own part the fold begins with, and the one that folds.
        """
        if self.parts is None:
            return self.pair(need).missing
        wanted = need.everything
        everywhere = wanted.size == prod(self.shape)
        contributed = sum(
            count * (region.size if everywhere else wanted.meet_size(region)) for region, count in self.shares.items()
        )
        return contributed - wanted.size + need.total - self._kept(need)

    def _kept(self, need: Layout) -> int:
        """Elements that some rank has and needs, each once."""
        found = kept(self.by_axes, need.by_axes) if self.by_axes is not None and need.by_axes is not None else None
        if found is None:
            found = Region.union(n & h for n, h in zip(need.regions, self.regions, strict=True)).size
        return found

    def near(self, need: Layout) -> bool:
        """Every rank finds all that it needs on itself and the ranks one before and one after it."""
        if self.by_axes is not None and need.by_axes is not None:
            found = beside(self.by_axes, need.by_axes, Stack.of([self.by_axes]).regions[0])
            if found is not None:
                return bool((found == need.sizes).all())
        size = len(self.regions)
        around = ([r for r in (rank - 1, rank, rank + 1) if 0 <= r < size] for rank in range(size))
        return all(region <= self.union(ranks) for region, ranks in zip(need.regions, around, strict=True))

    def lacking(self, need: Layout) -> list[Region]:
        """Per rank the elements of ``need`` that it does not hold."""
        return [n - h for n, h in zip(need.regions, self.regions, strict=True)]

    def within(self, other: Layout) -> bool:
        """Every rank's region is inside the other's (which is complete)."""
        if self is other:
            return True
        turned = other._known(self)
        return self.pair(other).inside if turned is None else turned.missing == 0

    def meets(self, other: Layout) -> bool:
        """On some rank the two have an element in common."""
        return bool(self.common(other).any())


def relate(haves: Sequence[Layout], needs: Sequence[Layout]) -> Related:
    """Find out, for all pairs at once, what is asked about each of them later (`Layout.pair`). Each is there once."""
    cut = [[k for k, layout in enumerate(some) if layout.by_axes is not None] for some in (haves, needs)]
    columns = [[layout.by_axes for layout in some if layout.by_axes is not None] for some in (haves, needs)]
    if all(columns) and [*map(len, columns)] == [len(haves), len(needs)]:
        tables = list(facts(*columns))
    else:
        tables = [np.zeros((len(haves), len(needs)), dtype=object) for _ in Pair._fields]
        for table, part in zip(tables, facts(*columns) if all(columns) else (), strict=False):
            table[np.ix_(*cut)] = part
        others = [(i, j) for i in range(len(haves)) for j in range(len(needs)) if i not in cut[0] or j not in cut[1]]
        for i, j in others:
            for table, fact in zip(tables, _counted(haves[i], needs[j]), strict=True):
                table[i, j] = fact
    related = Related({need: k for k, need in enumerate(needs)}, *tables)
    for k, have in enumerate(haves):
        have._related.append((related, k))
    return related


def _counted(have: Layout, need: Layout) -> Pair:
    """The same for any regions, by their sets."""
    common = have.common(need)
    missing = (need.sizes - common).tolist()
    needers = {region for region, lack in zip(need.regions, missing, strict=True) if lack}
    inside = have is need or bool((common == have.sizes).all())
    return Pair(sum(missing), max(missing), sum(map(bool, missing)), len(needers) <= 1, inside)


class Layouts:
    """Interns layouts: equal regions and parts give the same `Layout`."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._known: dict[tuple[tuple[int, ...], tuple[Region, ...], tuple[int, ...] | None], Layout] = {}
        self._cut: dict[tuple[tuple[int, ...], Columns, tuple[int, ...] | None], Layout] = {}
        self._of_cuts: dict[tuple[tuple[int, ...], tuple[Cut | None, ...]], Layout] = {}

    def of(self, shape: tuple[int, ...], regions: Sequence[Region], parts: Sequence[int] | None = None) -> Layout:
        key = (shape, tuple(regions), None if parts is None else tuple(parts))
        found = self._known.get(key)
        if found is None:
            cut = columns(shape, key[1])
            found = Layout(*key) if cut is None else self._of_columns(*key, cut)
            self._known[key] = found
        return found

    def of_columns(self, shape: tuple[int, ...], cut: Columns, parts: tuple[int, ...] | None = None) -> Layout:
        """By the axes of all regions, see `columns`."""
        known = self._cut.get((shape, cut, parts))
        if known is not None:
            return known
        if few(shape, len(cut[0].codes)):
            return self._of_columns(shape, None, parts, cut)
        return self.of(shape, Layout(shape, None, parts, cut).regions, parts)

    def _of_columns(
        self, shape: tuple[int, ...], regions: tuple[Region, ...] | None, parts: tuple[int, ...] | None, cut: Columns
    ) -> Layout:
        return self._cut.setdefault((shape, cut, parts), Layout(shape, regions, parts, cut))

    def cut(self, shape: tuple[int, ...], cuts: Sequence[Cut | None]) -> Layout:
        """A tensor cut along its axes: per mesh axis an axis of the tensor, or None: a copy each.

        ``Cut.dim`` is the axis's number as text.
        """
        key = shape, tuple(cuts)
        if key not in self._of_cuts:
            names = tuple(str(axis) for axis in range(len(shape)))
            shards = Shards.of(self.mesh, dict(zip(names, shape, strict=True)), cuts)
            by_axes = shards.columns(shape)
            found = self.of(shape, shards.regions) if by_axes is None else self.of_columns(shape, by_axes)
            self._of_cuts[key] = found
        return self._of_cuts[key]

    def inside(self, layout: Layout, to: Region, parts: tuple[int, ...] | None = None) -> Layout:
        """What each rank has of a layout within a region. ``parts``: see `Layout`."""
        if layout.by_axes is not None and len(to.grids) == 1:
            return self.of_columns(layout.shape, inside(layout.by_axes, to.grids[0]), parts)
        return self.of(layout.shape, [region & to for region in layout.regions], parts)

    def both(self, one: Layout, other: Layout) -> Layout:
        """What each rank has in both, complete."""
        if one.by_axes is not None and other.by_axes is not None:
            return self.of_columns(one.shape, in_both(one.by_axes, other.by_axes))
        return self.of(one.shape, [a & b for a, b in zip(one.regions, other.regions, strict=True)])

    def without(self, layout: Layout, other: Layout) -> Layout:
        """What each rank has of a layout that it has not of another one."""
        mine, theirs = layout.by_axes, other.by_axes
        found = None if mine is None or theirs is None else without(mine, theirs)
        if found is not None:
            return self.of_columns(layout.shape, found)
        return self.of(layout.shape, other.lacking(layout))

    def replicated(self, shape: tuple[int, ...]) -> Layout:
        return self.cut(shape, (None,) * len(self.mesh.shape))


def united(needs: Sequence[Layout], layouts: Layouts) -> Layout:
    """On every rank all that some of these layouts have, of one tensor and all complete, or all shares alike."""
    different = list(dict.fromkeys(needs))
    if len(different) == 1:
        return different[0]
    by_axes = [need.by_axes for need in different if need.by_axes is not None]
    found = united_columns(tuple(by_axes)) if len(by_axes) == len(different) else None
    if found is not None:
        return layouts.of_columns(different[0].shape, found, different[0].parts)
    columns = zip(*(need.regions for need in different), strict=True)
    return layouts.of(different[0].shape, [Region.union(regions) for regions in columns], different[0].parts)
