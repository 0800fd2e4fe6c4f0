"""Partitions: shard -> index points, disjoint and covering, over one or several axes of a mesh.

Shards are numbered row-major over ``mesh``. Each `CutBy` cuts one axis of the domain by a rule of
`tapestry.space.cuts`, its parts numbered by the coordinates along its mesh axes. `prove` states the whole partition as
one isl relation shard -> point, of a size that does not depend on the number of shards; uneven cuts are proved from
their table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from ..errors import UsageError
from ..expr.index import Bound
from .counting import Count, count_grid, total
from .cuts import KINDS, CutKind, Formula, Rule, Table
from .proofs import PartitionError, prove_regions, prove_relation
from .region import Box, Grid, Region

__all__ = ["CutBy", "Partition", "PartitionError", "prove_regions", "prove_relation"]

FEW = 64  # shards that are compared with one another rather than proved to partition by isl

Domain = Box | Region | Sequence[int]


@dataclass(frozen=True)
class CutBy:
    """``axis`` of the domain is cut by ``rule``; the coordinates along ``mesh_axes``, row-major, number its parts."""

    axis: int
    rule: Rule
    mesh_axes: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class NamedCut:
    """``axis`` of a domain that starts at 0 is cut by a kind; the coordinates along ``mesh_axes`` number its parts.

    ``weights``: in what proportion a kind that asks for it gives the parts their shares; empty: in equal ones.
    """

    axis: int
    kind: CutKind
    mesh_axes: tuple[int, ...]
    weights: tuple[int, ...] = ()


@dataclass(frozen=True)
class Partition:
    """A domain cut into shards.

    ``domain`` is the region that is cut; ``where`` restricts it further (conditions over ``dims``), for domains that
    are no regions, such as triangles: kinds that weigh points count within these conditions, and the proof is of them.

    >>> [str(shard) for shard in Partition.by_kinds([10], [4], [NamedCut(0, "block", (0,))]).shards()]
    ['0:2', '2:5', '5:7', '7:10']
    """

    domain: Region
    mesh: tuple[int, ...]
    cuts: tuple[CutBy, ...] = ()
    dims: tuple[str, ...] = ()
    where: tuple[Bound, ...] = ()

    @staticmethod
    def product(domain: Domain, mesh: Sequence[int], cuts: Sequence[CutBy]) -> Partition:
        """Cut several axes, each along its own axes of a mesh; each mesh axis of size > 1 is used once (UsageError)."""
        region = _region(domain)
        used = [axis for cut in cuts for axis in cut.mesh_axes]
        idle = [axis for axis, size in enumerate(mesh) if size > 1 and axis not in used]
        if idle or len(set(used)) != len(used) or any(axis >= len(mesh) for axis in used):
            raise UsageError(f"cuts along mesh axes {used} do not use each axis of the mesh {tuple(mesh)} once")
        for cut in cuts:
            _check_cut(cut, mesh, region)
        if len({cut.axis for cut in cuts}) != len(cuts):
            raise UsageError("an axis is cut twice", hint="give one cut both mesh axes: CutBy(axis, rule, (0, 1))")
        return Partition(region, tuple(mesh), tuple(cuts), _names(region))

    @staticmethod
    def by_kinds(
        domain: Domain,
        mesh: Sequence[int],
        cuts: Sequence[NamedCut],
        dims: Sequence[str] = (),
        where: Sequence[Bound] = (),
    ) -> Partition:
        """`product`, the rules named by kind; kinds that weigh points count those at which ``where`` holds."""
        region = _region(domain)
        found = []
        for cut in cuts:
            lo, hi = _span(region, cut.axis)
            below = Partition(region, (), (), tuple(dims), tuple(where))._points_below(cut.axis) if where else None
            parts = prod(mesh[axis] for axis in cut.mesh_axes)
            found.append(CutBy(cut.axis, KINDS[cut.kind].rule(parts, hi - lo, below, cut.weights), cut.mesh_axes))
        return replace(Partition.product(region, mesh, found), dims=tuple(dims) or _names(region), where=tuple(where))

    def _points_below(self, axis: int) -> Callable[[int], int]:
        """How many points lie below a cut of an axis."""
        hull = self._hull

        def below(cut: int) -> int:
            slab = Box(hull.lo, (*hull.hi[:axis], cut, *hull.hi[axis + 1 :]))
            return self._count(self.domain & slab.region()).value

        return below

    @cached_property
    def _hull(self) -> Box:
        return self.domain.hull() if self.domain else Box((0,) * len(self.dims), (0,) * len(self.dims))

    @property
    def count(self) -> int:
        """Number of shards."""
        return prod(self.mesh)

    def _count(self, region: Region) -> Count:
        return total(count_grid(self.dims or _names(region), self.where, grid) for grid in region.grids)

    def coordinates(self, shard: int) -> tuple[int, ...]:
        """Position of a shard in the mesh."""
        found: list[int] = []
        for size in reversed(self.mesh):
            shard, at = divmod(shard, size)
            found.append(at)
        return tuple(reversed(found))

    def shard(self, shard: int) -> Region:
        """The points of one shard (``where`` left out of account). IndexError for a number outside of the mesh."""
        if not 0 <= shard < self.count:
            raise IndexError(f"shard {shard} of {self.count}")
        if not self.domain:
            return self.domain
        at, hull = self.coordinates(shard), self._hull
        axes = list(hull.grid().axes)
        for cut in self.cuts:
            axes[cut.axis] = cut.rule.part(self._part(cut, at), hull.lo[cut.axis], hull.hi[cut.axis])
        grid = Grid(tuple(axes))
        return self.domain & Region((grid,)) if grid else Region()

    def _part(self, cut: CutBy, at: tuple[int, ...]) -> int:
        part = 0
        for axis in cut.mesh_axes:
            part = part * self.mesh[axis] + at[axis]
        return part

    def shards(self) -> list[Region]:
        """All shards in order."""
        whole = self._hull.grid()
        if self.domain.grids != (whole,):
            return [self.shard(k) for k in range(self.count)]
        parts = {
            cut: [cut.rule.part(r, whole.axes[cut.axis].lo, whole.axes[cut.axis].hi) for r in range(cut.rule.parts)]
            for cut in self.cuts
        }
        found = []
        for at in product(*map(range, self.mesh)):
            axes = list(whole.axes)
            for cut, pieces in parts.items():
                axes[cut.axis] = pieces[self._part(cut, at)]
            found.append(Region.of(Grid(tuple(axes))))
        return found

    def prove(self) -> None:
        """Every point of the domain lies in exactly one shard; else PartitionError, naming a point and the shards.

        Few shards are compared with one another (over the whole domain: what partitions it, partitions its part within
        ``where``); many are proved at once, by `prove_by_relation`.
        """
        if self.count <= FEW:
            prove_regions(self.shards(), self.domain)
        else:
            self.prove_by_relation()

    def prove_by_relation(self) -> None:
        """`prove` from one relation shard -> point, whose size does not depend on the number of shards."""
        tables = [(cut.rule, cut.axis) for cut in self.cuts if isinstance(cut.rule, Table)]
        ascending = all(table.ascends(*_span(self.domain, axis)) for table, axis in tables)
        if not ascending:
            prove_regions(self.shards(), self.domain)
        elif self.domain:
            self._prove_by_relation([(cut, cut.rule) for cut in self.cuts if not isinstance(cut.rule, Table)])

    def _prove_by_relation(self, cuts: Sequence[tuple[CutBy, Formula]]) -> None:
        """Ascending tables are left out: they put each coordinate into one part, whatever the other axes do."""
        from .indexset import IndexSet
        from .polyhedral import names_of, read_map, rows_text

        ndim, hull = self._hull.ndim, self._hull
        axes = [axis for cut, _ in cuts for axis in cut.mesh_axes]
        ranks, names = {axis: f"r{axis}" for axis in axes}, names_of(ndim)
        conditions = [f"0 <= {rank} < {self.mesh[axis]}" for axis, rank in ranks.items()]
        for cut, rule in cuts:
            part = "0"
            for axis in cut.mesh_axes:
                part = f"{self.mesh[axis]}*({part}) + {ranks[axis]}"
            conditions.append(rule.condition(names[cut.axis], part, hull.lo[cut.axis], hull.hi[cut.axis]))
        domain = IndexSet.of(self.dims or _names(self.domain), self.domain, self.where)
        relation = read_map(rows_text(tuple(ranks.values()), names, " and ".join(conditions) or "true"))
        prove_relation(relation.intersect_range(domain.points), domain)


def _region(domain: Domain) -> Region:
    if isinstance(domain, Region):
        return domain
    return domain.region() if isinstance(domain, Box) else Box.of_shape(domain).region()


def _names(region: Region) -> tuple[str, ...]:
    return tuple(f"i{k}" for k in range(region.grids[0].ndim)) if region else ()


def _span(region: Region, axis: int) -> tuple[int, int]:
    if not region:
        return 0, 0
    hull = region.hull()
    return hull.lo[axis], hull.hi[axis]


def _check_cut(cut: CutBy, mesh: Sequence[int], region: Region) -> None:
    size = prod(mesh[axis] for axis in cut.mesh_axes)
    if size != cut.rule.parts:
        raise UsageError(f"{cut.rule} has {cut.rule.parts} parts, its mesh axes {cut.mesh_axes} give {size}")
    if region and not 0 <= cut.axis < region.grids[0].ndim:
        raise UsageError(f"axis {cut.axis} is cut, but the domain has {region.grids[0].ndim} axes")
