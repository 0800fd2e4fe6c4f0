"""One operation without its names: what its points read, write and leave out, and shares of its reduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...expr import MONOIDS
from ...program import Block, Operation
from . import cells
from .algebra import Algebra
from .cells import Form, Runs
from .images import Images
from .listing import names_in
from .storage import grid


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
        self.number, self._algebra = number, algebra
        self._reads: dict[int, tuple[int, ...]] = {}
        self._written: dict[int, Written] = {}
        self._counts: dict[int, int] = {}
        self._images: dict[int, int] = {}
        self._reached: dict[int, int] = {}
        self.hulls: set[int] = set()
        self._projected = Images(op, shapes, algebra)
        whole = [cells.runs(dim.extent) for dim in op.dims]
        self.domain = algebra.whole([dim.extent for dim in op.dims])
        self._folded = {k: whole[k] for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims}
        self._uncut = {k: whole[k] for k, dim in enumerate(op.dims) if not dim.cut}
        # Elements fold one by one, but for records of a block, which lie along its uncut dimensions.
        packed = isinstance(op.body, Block) and op.monoid is not None and MONOIDS[op.monoid].packed
        single = {dim.name for dim in op.dims if packed and not dim.cut}
        extents = enumerate(zip(op.write, output, strict=True))
        self._records = {k: cells.runs(n) for k, (row, n) in extents if names_in(row) & single}

    def reads(self, points: int) -> tuple[int, ...]:
        """Per operand the elements that these points read."""
        if points not in self._reads:
            self._reads[points] = self._projected.reads(points)
        return self._reads[points]

    def count(self, points: int) -> int:
        """Points within the operation's `where`."""
        if points not in self._counts:
            self._counts[points] = self._projected.count(points) if points else 0
        return self._counts[points]

    def image(self, points: int) -> int:
        """The elements that these points write: a reduction writes its identity where nothing falls."""
        if points not in self._images:
            self._images[points], exact = self._projected.written(points)
            if not exact:
                self.hulls.add(points)
        return self._images[points]

    def reached(self, points: int) -> int:
        """The elements that these points, within `where`, contribute to (or more, where only a hull is known)."""
        if points not in self._reached:
            self._reached[points] = self._projected.reached(points)
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

    def _layout(self, region: int, whole: Mapping[int, Runs]) -> int:
        """The same tuples with the given axes made whole."""
        if not whole:
            return region
        tiles = self._algebra.form(region).tiles
        return self._algebra.stated(
            Form(tuple(tuple(whole.get(k, runs) for k, runs in enumerate(tile)) for tile in tiles))
        )

    def written(self, points: int) -> Written:
        if points not in self._written:
            image = self.image(points)
            self._written[points] = Written(image, self._algebra.minus(image, self.reached(self.left_out(points))))
        return self._written[points]

    def stored_alike(self, one: int, other: int) -> bool:
        """Dense buffers for two sets store the same intervals."""
        return one == other or grid(self._algebra.form(one)) == grid(self._algebra.form(other))

    def displaced(self, points: int, operand: int) -> tuple[int, ...] | None:
        """A point that reads an operand elsewhere than it writes."""
        return self._projected.displaced(points, operand)

    def point_of(self, points: int) -> tuple[int, ...] | None:
        """A point of the region that is within `where`."""
        return self._projected.point_of(points)
