"""Exact set algebra over interned regions: equal regions are one number, and every question is answered once.

Repeated layers ask the same questions of the same regions, so that their proofs cost a dictionary lookup each. Number
0 is the empty region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...program import Block, Operation
from ...space import Grid, IntSet, Region
from ...space.projection import count_points, operand_images, projection, write_image
from .budget import Budget

EMPTY = 0


class Algebra:
    """Regions as small integers."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._regions: list[Region] = [Region()]
        self._weights: list[int] = [0]
        self._numbers: dict[Region, int] = {Region(): EMPTY}
        self._minus: dict[tuple[int, int], int] = {}
        self._meet: dict[tuple[int, int], int] = {}
        self._join: dict[frozenset[int], int] = {}

    def number(self, region: Region) -> int:
        found = self._numbers.setdefault(region, len(self._regions))
        if found == len(self._regions):
            self._regions.append(region)
            self._weights.append(sum(len(axis.runs) for grid in region.grids for axis in grid.axes))
            self.budget.spend(self._weights[found], "regions of many pieces")
        return found

    def _charge(self, a: int, b: int) -> None:
        self.budget.spend(1 + self._weights[a] * self._weights[b], "comparing regions of many pieces")

    def region(self, number: int) -> Region:
        return self._regions[number]

    def size(self, number: int) -> int:
        return self._regions[number].size

    def witness(self, number: int) -> tuple[int, ...] | None:
        return self._regions[number].witness()

    def minus(self, a: int, b: int) -> int:
        if a == b or not a:
            return EMPTY
        if not b:
            return a
        if (a, b) not in self._minus:
            self._charge(a, b)
            self._minus[a, b] = self.number(self._regions[a] - self._regions[b])
        return self._minus[a, b]

    def meet(self, a: int, b: int) -> int:
        if a == b or not a or not b:
            return a if a == b else EMPTY
        if (a, b) not in self._meet:
            self._charge(a, b)
            self._meet[a, b] = self._meet[b, a] = self.number(self._regions[a] & self._regions[b])
        return self._meet[a, b]

    def join(self, numbers: Iterable[int]) -> int:
        parts = frozenset(numbers) - {EMPTY}
        if len(parts) <= 1:
            return next(iter(parts), EMPTY)
        if parts not in self._join:
            grids = [grid for part in sorted(parts) for grid in self._regions[part].grids]
            self._join[parts] = self.number(self._union(sorted(grids, key=lambda grid: grid.hull().lo)))
        return self._join[parts]

    def _union(self, grids: list[Grid]) -> Region:
        """By halves of neighbours: shards that tile their space grow together, instead of meeting each all others."""
        if len(grids) <= 4:
            self.budget.spend(sum(len(axis.runs) for grid in grids for axis in grid.axes) ** 2, "joining regions")
            return Region.of(*grids)
        middle = len(grids) // 2
        one, other = self._union(grids[:middle]), self._union(grids[middle:])
        self.budget.spend(1 + len(one.grids) * len(other.grids), "joining regions of many pieces")
        return one | other

    def within(self, a: int, b: int) -> bool:
        return not self.minus(a, b)


@dataclass(frozen=True)
class Share:
    """Points of one operation (known by the number of its `Shape`) whose fold an element holds."""

    shape: int
    points: int


@dataclass(frozen=True)
class Written:
    """What a task writes at given points: ``image``, of which ``complete`` has its whole reduction."""

    image: int
    complete: int


class Shape:
    """One operation without its names: what its points read, write and leave out. All answers are memoised.

    Images are exact, or noted in ``hulls``: a hull of a read may only cost a false alarm, a hull of a write proves
    nothing.
    """

    def __init__(
        self,
        number: int,
        op: Operation,
        shapes: Mapping[str, tuple[int, ...]],
        output: tuple[int, ...],
        algebra: Algebra,
    ) -> None:
        self.number, self._op, self._shapes, self._algebra = number, op, dict(shapes), algebra
        self._reads: dict[int, tuple[int, ...]] = {}
        self._written: dict[int, Written] = {}
        self._counts: dict[int, int] = {}
        self._images: dict[int, int] = {}
        self._reached: dict[int, int] = {}
        self.hulls: set[int] = set()
        whole = tuple(IntSet.interval(0, dim.extent) for dim in op.dims)
        self.domain = algebra.number(Region.of(Grid(whole)))
        self._folded = {k: whole[k] for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims}
        self._uncut = {k: whole[k] for k, dim in enumerate(op.dims) if not dim.cut}
        # Elements of a scalar body fold one by one; the value of a block goes on along its uncut dimensions.
        single = {dim.name for dim in op.dims if not dim.cut and isinstance(op.body, Block)}
        extents = enumerate(zip(op.write, output, strict=True))
        self._records = {k: IntSet.interval(0, n) for k, (row, n) in extents if row.dims & single}

    def reads(self, points: int) -> tuple[int, ...]:
        """Per operand the elements that these points read."""
        if points not in self._reads:
            images = operand_images(self._op, self._shapes, self._algebra.region(points))
            self._reads[points] = tuple(self._algebra.number(images[name].region) for name in self._op.operands)
        return self._reads[points]

    def count(self, points: int) -> int:
        """Points within the operation's `where`."""
        if points not in self._counts:
            self._counts[points] = count_points(self._op, self._algebra.region(points)).value if points else 0
        return self._counts[points]

    def image(self, points: int) -> int:
        """The elements that these points write: a reduction writes its identity where nothing falls."""
        if points not in self._images:
            image = write_image(self._op, self._algebra.region(points))
            self._images[points] = self._algebra.number(image.region)
            if not image.exact:
                self.hulls.add(points)
        return self._images[points]

    def reached(self, points: int) -> int:
        """The elements that these points, within `where`, contribute to (or more, where only a hull is known)."""
        if points not in self._reached:
            names = tuple(dim.name for dim in self._op.dims)
            image = projection(names, self._op.write, self._op.where).image(self._algebra.region(points))
            self._reached[points] = self._algebra.number(image.region)
        return self._reached[points]

    def left_out(self, points: int) -> int:
        """The points that share an element with some of these and are not among them."""
        return self._algebra.minus(self._layout(points, self._folded), points)

    def uncut(self, points: int) -> bool:
        """Dimensions that may not be cut are whole."""
        return self._algebra.within(self._layout(points, self._uncut), points)

    def whole_records(self, elements: int) -> bool:
        """Elements that are one value together (along an uncut dimension, as a softmax state is) are all there."""
        return self._algebra.within(self._layout(elements, self._records), elements)

    def _layout(self, region: int, whole: Mapping[int, IntSet]) -> int:
        """The same tuples with the given axes made whole."""
        if not whole:
            return region
        grids = self._algebra.region(region).grids
        wide = (Grid(tuple(whole.get(k, axis) for k, axis in enumerate(grid.axes))) for grid in grids)
        return self._algebra.number(Region.of(*wide))

    def written(self, points: int) -> Written:
        if points not in self._written:
            image = self.image(points)
            self._written[points] = Written(image, self._algebra.minus(image, self.reached(self.left_out(points))))
        return self._written[points]

    def point_of(self, points: int) -> tuple[int, ...] | None:
        """A point of the region that is within `where`, found by halving."""
        region = self._algebra.region(points)
        while region.size > 1:
            halves = _halves(region)
            counts = [count_points(self._op, half).value for half in halves]
            if not any(counts):
                return None
            region = halves[0] if counts[0] else halves[1]
        return region.witness()


def _halves(region: Region) -> tuple[Region, Region]:
    """Two smaller regions that make up one of two points or more."""
    if len(region.grids) > 1:
        return Region(region.grids[:1]), Region(region.grids[1:])
    grid = region.grids[0]
    k = max(range(grid.ndim), key=lambda axis: grid.axes[axis].size)
    axis = grid.axes[k]
    middle = (axis.lo + axis.hi) // 2
    low = axis & IntSet.interval(axis.lo, middle)
    parts = (Region.of(Grid((*grid.axes[:k], half, *grid.axes[k + 1 :]))) for half in (low, axis - low))
    first, second = parts
    return first, second
