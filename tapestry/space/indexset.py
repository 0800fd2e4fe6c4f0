"""Index sets in general: any finite set that conditions on named dimensions describe, over isl.

For proofs and rewrites. The planner's inner loops use `Region`; an `IndexSet` answers what regions cannot (triangles,
bands, images that are no grids).
Importing this module does not load isl; making the first set does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..expr.index import Affine, Bound
from . import polyhedral as isl
from .region import Box, Grid, Region

if TYPE_CHECKING:
    import islpy

    from .counting import Count


@dataclass(frozen=True, eq=False)
class IndexSet:
    """A set of integer points with named dimensions. `dims` names the axes of `points`, an isl set without parameters.

    Two sets that meet in an operation must have the same dimensions in the same order. ``<=`` is inclusion; `same` is
    equality of the points.

    >>> t, s = Affine.dim("t"), Affine.dim("s")
    >>> causal = IndexSet.where({"t": 4, "s": 4}, [Bound(s - t, None, 1)])
    >>> causal.count().value, (0, 1) in causal
    (10, False)
    """

    dims: tuple[str, ...]
    points: islpy.Set

    @staticmethod
    def of(dims: Sequence[str], region: Region | Grid | Box, bounds: Iterable[Bound] = ()) -> IndexSet:
        """The points of a region, its axes named ``dims``, at which all bounds hold."""
        region, bounds = (region if isinstance(region, Region) else region.region()), tuple(bounds)
        names = isl.names_of(len(dims))
        if any(grid.ndim != len(dims) for grid in region.grids):
            raise UsageError(f"{len(dims)} dimensions named, but the region has {region.grids[0].ndim}")
        alias = dict(zip(dims, names, strict=True))
        unknown = sorted({name for bound in bounds for name in bound.expr.dims} - set(dims))
        if unknown:
            raise UsageError(f"condition on unknown dimension {unknown[0]!r}", hint=f"known: {', '.join(dims)}")
        conditions = [f"({isl.region_text(region, names)})", *(isl.bound_text(bound, alias) for bound in bounds)]
        return IndexSet(tuple(dims), isl.read_set(isl.set_text(names, " and ".join(conditions))))

    @staticmethod
    def where(extents: Mapping[str, int], bounds: Iterable[Bound] = ()) -> IndexSet:
        """All points with 0 <= dimension < extent at which all bounds hold."""
        return IndexSet.of(tuple(extents), Box.of_shape(tuple(extents.values())), tuple(bounds))

    @staticmethod
    def parse(text: str) -> IndexSet:
        """Read isl's notation, ``{ [t, s] : 0 <= s <= t < 4 }``.

        Raises UsageError for text that is no set, for parameters (extents must be bound) and for unbounded sets.
        """
        import islpy

        try:
            points = isl.read_set(text)
        except islpy.Error as error:
            raise UsageError("not a set in isl's notation", sides={"text": text}) from error
        if points.dim(islpy.dim_type.param):
            raise UsageError("an index set has no parameters", sides={"text": text}, hint="bind all extents (--set)")
        if not points.is_bounded():
            raise UsageError("an index set is finite", sides={"text": text}, hint="bound every dimension on both sides")
        count = points.dim(islpy.dim_type.set)
        dims = tuple(points.get_dim_name(islpy.dim_type.set, k) or f"i{k}" for k in range(count))
        return IndexSet(dims, points)

    def __str__(self) -> str:
        """isl's notation with the dimensions' own names; `parse` reads it back where the names are no words of isl."""
        import islpy

        named = self.points
        for k, name in enumerate(self.dims):
            named = named.set_dim_name(islpy.dim_type.set, k, name)
        return str(named)

    def _peer(self, other: IndexSet) -> islpy.Set:
        if self.dims != other.dims:
            raise UsageError("index sets differ in dimensions", sides={"left": self.dims, "right": other.dims})
        return other.points

    def __and__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.dims, self.points.intersect(self._peer(other)))

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.dims, self.points.union(self._peer(other)))

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.dims, self.points.subtract(self._peer(other)))

    def __le__(self, other: IndexSet) -> bool:
        return bool(self.points.is_subset(self._peer(other)))

    def same(self, other: IndexSet) -> bool:
        """The same points."""
        return bool(self.points.is_equal(self._peer(other)))

    def __bool__(self) -> bool:
        """Not empty."""
        return not self.points.is_empty()

    def __contains__(self, point: Sequence[int]) -> bool:
        if len(point) != len(self.dims):
            return False
        names = isl.names_of(len(point))
        condition = " and ".join(f"{name} = {value}" for name, value in zip(names, point, strict=True)) or "true"
        return bool(isl.read_set(isl.set_text(names, condition)).is_subset(self.points))

    def witness(self) -> tuple[int, ...] | None:
        """The least point (first in the order of the dimensions), or None when empty."""
        return isl.point_of(self.points)

    def hull(self) -> Box:
        """The smallest box around it. ValueError when empty."""
        bounds = isl.hull_of(self.points) if self else None
        if bounds is None:
            raise ValueError("an empty index set has no hull")
        return Box(tuple(lo for lo, _ in bounds), tuple(hi for _, hi in bounds))

    def region(self) -> Region | None:
        """The same points as a region, or None where isl's disjoint pieces are not all grids."""
        grids: list[Grid] = []
        for piece in self._pieces():
            grid = isl.grid_of(piece)
            if grid is None:
                return None
            grids.append(grid)
        return Region.of(*grids)

    def _pieces(self) -> list[islpy.Set]:
        if self.points.is_empty():
            return []
        whole = self.points.coalesce()
        if isl.grid_of(whole) is not None:
            return [whole]
        return [piece.to_set() for piece in whole.make_disjoint().get_basic_sets() if not piece.is_empty()]

    def count(self) -> Count:
        """How many points, from the counting service: exact, or a bound that says so."""
        from .counting import count

        return count(self)


def image_set(dims: Sequence[str], rows: Sequence[Affine], domain: IndexSet, bounds: Iterable[Bound] = ()) -> IndexSet:
    """The exact image of a domain under quasi-affine rows where all bounds hold; its dimensions are r0, r1, ..."""
    relation = isl.read_map(relation_text(dims, rows, bounds))
    return IndexSet(isl.names_of(len(rows), "r"), domain.points.apply(relation))


def relation_text(dims: Sequence[str], rows: Sequence[Affine], bounds: Iterable[Bound] = ()) -> str:
    """Rows and bounds over named dimensions as an isl relation."""
    names = isl.names_of(len(dims))
    alias = dict(zip(dims, names, strict=True))
    pieces = []
    for plain, held in _table_cases(tuple(rows), tuple(bounds)):
        condition = " and ".join(isl.bound_text(bound, alias) for bound in held) or "true"
        pieces.append(isl.rows_text(names, (isl.affine_text(row, alias) for row in plain), condition))
    return isl.union_text(pieces)


def _table_cases(
    rows: tuple[Affine, ...], bounds: tuple[Bound, ...]
) -> Iterator[tuple[tuple[Affine, ...], tuple[Bound, ...]]]:
    """Rows without tables, for every combination of values of these, where they have them."""
    table = next((table for row in rows for table in row.tables), None)
    if table is None:
        yield rows, bounds
        return
    for lo, hi, value in table.runs:
        here = (Bound(table.inner, lo, hi), *(Bound(b.expr.fixed(table, value), b.lo, b.hi) for b in bounds))
        yield from _table_cases(tuple(row.fixed(table, value) for row in rows), here)
