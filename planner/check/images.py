"""What the points of one operation read, write and reach: answered by the first engine, proved by the second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...expr import Affine, Bound
from ...program import Operation
from ...space.projection import Image, count_points, operand_images, projection, write_image
from . import lattice
from .algebra import Algebra
from .alternatives import cases
from .cells import Form, Tile, length
from .listing import TooMany
from .reach import Reach, difference


class Images:
    """An operation's projections. Images are numbers of the algebra; only a hull may hold more than is reached."""

    def __init__(self, op: Operation, shapes: Mapping[str, tuple[int, ...]], algebra: Algebra) -> None:
        self._op, self._shapes, self._algebra = op, dict(shapes), algebra
        self._names = tuple(dim.name for dim in op.dims)
        self._reads = {
            name: [part for r in op.reads if r.tensor == name for part in self._reach(r.index, (*op.where, *r.guard))]
            for name in op.operands
        }
        self._write = self._reach(op.write, () if op.reduce_dims else op.where)
        self._within = self._reach(op.write, op.where)

    def _reach(self, rows: Sequence[Affine], conditions: Sequence[Bound]) -> list[Reach]:
        """Rows where conditions hold, a part for each of their cases."""
        spend = self._algebra.budget.spend
        return [Reach(self._names, mine, held, spend) for mine, held in cases(rows, conditions)]

    def reads(self, points: int) -> tuple[int, ...]:
        """Per operand the elements that these points read."""
        found = operand_images(self._op, self._shapes, self._algebra.region(points))
        return tuple(
            self._proved(found[name], self._reads[name], points, f"reads of {name}") for name in self._op.operands
        )

    def written(self, points: int) -> tuple[int, bool]:
        """The elements that these points write, and whether that is exact."""
        found = write_image(self._op, self._algebra.region(points))
        return self._proved(found, self._write, points, "writes"), found.exact

    def reached(self, points: int) -> int:
        """The elements that these points, within `where`, contribute to (or more, where only a hull is known)."""
        found = projection(self._names, self._op.write, self._op.where).image(self._algebra.region(points))
        return self._proved(found, self._within, points, "contributes to")

    def _proved(self, image: Image, reaches: Sequence[Reach], points: int, verb: str) -> int:
        chosen, number = self._algebra.form(points), self._algebra.number(image.region)
        what = partial("what {} {} at {}".format, self._op.name, verb, self._algebra.region(points))
        try:
            truth = Form(tuple(tile for reach in reaches for tile in reach.image(chosen).tiles))
        except TooMany:
            rows = [(reach.names, reach.rows, reach.conditions) for reach in reaches]
            self._algebra.believe(lattice.reaches(rows, chosen, self._algebra.form(number), image.exact), what, number)
            return number
        if image.exact:
            return self._algebra.equal(image.region, truth, what)
        return self._algebra.covers(image.region, truth, what)

    def count(self, points: int) -> int:
        """Points within the operation's `where`."""
        mine = sum(map(self._many, self._algebra.form(points).tiles))
        found = count_points(self._op, self._algebra.region(points))
        right = found.value == mine if found.exact else found.value >= mine
        self._algebra.believe(
            right, partial("{} as the number of points of {}".format, found.value, self._op.name), points
        )
        return mine

    def point_of(self, points: int) -> tuple[int, ...] | None:
        """A point within `where`."""
        return self._one_of(points, lambda tile: bool(self._many(tile)))

    def displaced(self, points: int, operand: int) -> tuple[int, ...] | None:
        """A point that reads an operand elsewhere than it writes. What a guard leaves out is not read."""
        op, rows = self._op, []
        for read in op.reads:
            if read.tensor != op.operands[operand]:
                continue
            if len(read.index) != len(op.write):
                return self.point_of(points)
            apart = tuple(map(difference, read.index, op.write))
            if any(row.terms or row.const for row in apart):
                rows += self._reach(apart, (*op.where, *read.guard))
        return self._one_of(points, lambda tile: not all(_nowhere_else(reach, tile) for reach in rows))

    def _one_of(self, points: int, there: Callable[[Tile], bool]) -> tuple[int, ...] | None:
        """A point of those that a tile may be said to have, found by halving."""
        for tile in self._algebra.form(points).tiles:
            if there(tile):
                while max(map(length, tile), default=1) > 1:
                    low, high = _halves(tile)
                    tile = low if there(low) else high
                return tuple(runs[0].start for runs in tile)
        return None

    def _many(self, tile: Tile) -> int:
        return sum(self._many_of(part, Form((tile,))) for part in self._within)

    def _many_of(self, part: Reach, points: Form) -> int:
        try:
            return part.count(points)
        except TooMany:
            return lattice.points_within(self._names, part.conditions, points)


def _nowhere_else(reach: Reach, tile: Tile) -> bool:
    """The rows are zero at every point of a tile."""
    points = Form((tile,))
    try:
        return all(
            run == range(1) for found in reach.image(points).tiles if all(found) for runs in found for run in runs
        )
    except TooMany:
        zero = Form((((range(1),),) * len(reach.rows),))
        return lattice.reaches([(reach.names, reach.rows, reach.conditions)], points, zero, exact=False)


def _halves(tile: Tile) -> tuple[Tile, Tile]:
    """Two tiles that make up one of two tuples or more."""
    k = max(range(len(tile)), key=lambda axis: length(tile[axis]))
    first, *others = tile[k]
    if others:
        low, high = (first,), tuple(others)
    else:
        middle = first.start + length((first,)) // 2 * first.step
        low, high = (range(first.start, middle - first.step + 1, first.step),), (range(middle, first.stop, first.step),)
    return (*tile[:k], low, *tile[k + 1 :]), (*tile[:k], high, *tile[k + 1 :])
