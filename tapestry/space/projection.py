"""What an operation reads, writes and computes for given points of its index space.

The images come from the solver of `tapestry.space.image`; the usual rows (a sum of dimensions that no other row uses)
take a path of a few set operations. Results are remembered, so asking again for a shard costs a look-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Protocol

from ..expr.index import Affine, Bound
from ..expr.scalar import Read
from .cases import connected
from .counting import Count, Exact, count_grid, total
from .image import Image, Pieces, solve_rows
from .intset import IntSet
from .region import Box, Grid, Region
from .runs import add, clip, clip_linear, scale

__all__ = ["Image", "Projection", "count_points", "operand_images", "projection", "read_image", "write_image"]


class DimLike(Protocol):
    """A dimension of an index space: 0 <= name < extent."""

    @property
    def name(self) -> str: ...


class OperationLike(Protocol):
    """What this module asks of `tapestry.program.Operation` (which imports it, and so is not imported here)."""

    @property
    def dims(self) -> Sequence[DimLike]: ...
    @property
    def output(self) -> str: ...
    @property
    def write(self) -> tuple[Affine, ...]: ...
    @property
    def where(self) -> tuple[Bound, ...]: ...
    @property
    def reduce_dims(self) -> tuple[str, ...]: ...
    @property
    def reads(self) -> tuple[Read, ...]: ...


@dataclass(frozen=True)
class _Plain:
    """A row that shares its dimensions with nothing: const + sum of factor * dims[axis], kept within lo <= row < hi."""

    row: int
    terms: tuple[tuple[int, int], ...]
    const: int
    lo: int | None = None
    hi: int | None = None

    @staticmethod
    def of(position: int, row: Affine, limits: Sequence[Bound], axis: Mapping[str, int]) -> _Plain | None:
        """None where a floor, or a condition on anything but this very row, is in the way."""
        if not row.is_affine or any(bound.expr.terms != row.terms for bound in limits):
            return None
        lows = [bound.lo + row.const - bound.expr.const for bound in limits if bound.lo is not None]
        highs = [bound.hi + row.const - bound.expr.const for bound in limits if bound.hi is not None]
        terms = tuple((axis[str(name)], factor) for name, factor in row.terms)
        return _Plain(position, terms, row.const, max(lows, default=None), min(highs, default=None))

    @property
    def rows(self) -> tuple[int, ...]:
        return (self.row,)

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(axis for axis, _ in self.terms)

    def over(self, sets: tuple[IntSet, ...]) -> tuple[Pieces, bool]:
        """The values of its row, as one piece, for sets of its dimensions."""
        values, exact = _row_image(self, sets)
        return ((values,),), exact

    def image(self, axes: Sequence[IntSet]) -> tuple[IntSet, bool]:
        return _row_image(self, tuple(axes[axis] for axis, _ in self.terms))

    def values(self, axes: Sequence[IntSet]) -> tuple[IntSet, bool]:
        """Of the sets of its dimensions alone, in the order of the terms."""
        if not self.terms:
            return clip(IntSet.interval(self.const, self.const + 1), self.lo, self.hi), True
        values, exact = scale(axes[0], self.terms[0][1]), True
        for mine, (_, factor) in zip(axes[1:], self.terms[1:], strict=True):
            values, good = add(values, scale(mine, factor))
            exact = exact and good
        return clip(values.shift(self.const) if self.const else values, self.lo, self.hi), exact


@lru_cache(maxsize=65536)
def _row_image(row: _Plain, axes: tuple[IntSet, ...]) -> tuple[IntSet, bool]:
    """Shards of many ranks have few different sets along one dimension."""
    return row.values(axes)


@dataclass(frozen=True)
class _OneSided:
    """A row of one dimension within a condition that has one limit, as in causal attention.

    A value of the dimension meets it for some of the others', whatever their sets, if it does so for their least or
    greatest.
    """

    row: Affine
    bound: Bound

    def values(self, sets: Mapping[str, IntSet]) -> IntSet:
        (name, factor), limit = self.row.terms[0], self.bound
        if not all(sets.values()):
            return IntSet()
        factors = {str(dim): by for dim, by in limit.expr.terms}
        nearest = limit.expr.const
        for dim, by in factors.items():
            if dim != name:
                first, last = by * sets[dim].lo, by * (sets[dim].hi - 1)
                nearest += max(first, last) if limit.hi is None else min(first, last)
        kept = clip_linear(sets[str(name)], factors[str(name)], nearest, limit.lo, limit.hi)
        return scale(kept, factor).shift(self.row.const)


@dataclass(frozen=True)
class _Joint:
    """Rows and conditions that share dimensions, or hold floors."""

    rows: tuple[int, ...]
    exprs: tuple[Affine, ...]
    bounds: tuple[Bound, ...]
    names: tuple[str, ...]
    axes: tuple[int, ...]

    def over(self, sets: tuple[IntSet, ...]) -> tuple[Pieces, bool]:
        """The values of its rows, piece by piece, for sets of its dimensions."""
        if self.one_sided is None:
            return solve_rows(self.exprs, self.bounds, self.names, sets)
        values = self.one_sided.values(dict(zip(self.names, sets, strict=True)))
        return (((values,),) if values else ()), True

    @cached_property
    def one_sided(self) -> _OneSided | None:
        """The row by itself, where there is one only, of one dimension, within one condition with one limit."""
        if len(self.exprs) != 1 or len(self.bounds) != 1:
            return None
        (row,), (bound,) = self.exprs, self.bounds
        plain = row.is_affine and bound.expr.is_affine and len(row.terms) == 1
        known = plain and {*self.names} == bound.expr.dims and (bound.lo is None) != (bound.hi is None)
        return _OneSided(row, bound) if known else None

    def image(self, axes: Sequence[IntSet]) -> tuple[Pieces, bool]:
        return self.over(tuple(axes[k] for k in self.axes))


Part = _Plain | _Joint


@dataclass(frozen=True, eq=False)
class Projection:
    """Index rows over named dimensions within bounds, prepared for many images. Compared by identity."""

    ndim: int
    clips: tuple[tuple[int, int, Bound], ...]
    plain: tuple[_Plain, ...]
    joint: tuple[_Joint, ...]

    @staticmethod
    def of(names: Sequence[str], rows: Sequence[Affine], bounds: Sequence[Bound] = ()) -> Projection:
        """Prepare ``rows`` over dimensions ``names`` (the axes of every domain, in order) where all ``bounds`` hold."""
        axis = {name: k for k, name in enumerate(names)}
        single = [b for b in bounds if len(b.expr.terms) == 1 and isinstance(b.expr.terms[0][0], str)]
        clips = tuple((axis[str(b.expr.terms[0][0])], b.expr.terms[0][1], b) for b in single)
        others = [b for b in bounds if b not in single]
        plain, joint = [], []
        for group in connected([*(row.dims for row in rows), *(b.expr.dims for b in others)]):
            mine = [k for k in group if k < len(rows)]
            limits = tuple(others[k - len(rows)] for k in group if k >= len(rows))
            alone = _Plain.of(mine[0], rows[mine[0]], limits, axis) if len(mine) == 1 else None
            if alone is not None:
                plain.append(alone)
                continue
            exprs = tuple(rows[k] for k in mine)
            used = sorted({axis[name] for expr in [*exprs, *(b.expr for b in limits)] for name in expr.dims})
            joint.append(_Joint(tuple(mine), exprs, limits, tuple(names[k] for k in used), tuple(used)))
        return Projection(len(rows), clips, tuple(plain), tuple(joint))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Rows that have no dimension in common with others, together: the image of a product of sets is the product of
        theirs. Each says its ``rows``, the ``axes`` of the domain that they depend on, and, for a set of each, what
        they are (``over``).
        """
        return (*self.plain, *self.joint)

    def grids(self, domain: Grid) -> tuple[list[Grid], bool]:
        """Grids (they may overlap) whose union is the image of a non-empty grid, and whether that is exact."""
        axes = list(domain.axes)
        for axis, factor, bound in self.clips:
            axes[axis] = clip_linear(axes[axis], factor, bound.expr.const, bound.lo, bound.hi)
        if self.clips and not all(axes):
            return [], True
        rows, exact = [IntSet()] * self.ndim, True
        for plain in self.plain:
            rows[plain.row], good = plain.image(axes)
            exact = exact and good
        return self._joined(rows, axes, exact) if self.joint else ([Grid(tuple(rows))], exact)

    def _joined(self, rows: list[IntSet], axes: Sequence[IntSet], exact: bool) -> tuple[list[Grid], bool]:
        answers = [part.image(axes) for part in self.joint]
        grids = []
        for choice in product(*(pieces for pieces, _ in answers)):
            for part, piece in zip(self.joint, choice, strict=True):
                for row, values in zip(part.rows, piece, strict=True):
                    rows[row] = values
            grids.append(Grid(tuple(rows)))
        empty = any(not pieces for pieces, _ in answers)
        return grids, empty or (exact and all(good for _, good in answers))

    def image(self, domain: Region) -> Image:
        """The image of the points of a region that satisfy the bounds."""
        return _image(self, domain)


@lru_cache(maxsize=65536)
def _image(projection: Projection, domain: Region) -> Image:
    answers = [projection.grids(grid) for grid in domain.grids]
    found = [grid for grids, _ in answers for grid in grids if grid]
    region = Region((found[0],)) if len(found) == 1 else Region.of(*found)
    return Image(region, all(exact for _, exact in answers))


@lru_cache(maxsize=16384)
def projection(names: tuple[str, ...], rows: tuple[Affine, ...], bounds: tuple[Bound, ...] = ()) -> Projection:
    """The one `Projection` of these rows and bounds."""
    return Projection.of(names, rows, tuple(dict.fromkeys(bounds)))


@dataclass(frozen=True)
class _Prepared:
    """The projections of one operation."""

    op: OperationLike
    reads: dict[Read, Projection]
    write: Projection


_PREPARED: dict[int, _Prepared] = {}


def _prepared(op: OperationLike) -> _Prepared:
    """By identity: hashing an operation costs more than an image. Holding ``op`` keeps its id from being reused."""
    found = _PREPARED.get(id(op))
    if found is None or found.op is not op:
        names = tuple(dim.name for dim in op.dims)
        reads = {read: projection(names, read.index, (*op.where, *read.guard)) for read in op.reads}
        # A fold over nothing is its identity, so a reduction writes whether or not `where` leaves it anything to fold.
        found = _Prepared(op, reads, projection(names, op.write, () if op.reduce_dims else op.where))
        if len(_PREPARED) > 8192:
            _PREPARED.clear()
        _PREPARED[id(op)] = found
    return found


def read_projections(op: OperationLike) -> Mapping[Read, Projection]:
    """What every read of an operation makes of its points."""
    return _prepared(op).reads


def write_projection(op: OperationLike) -> Projection:
    """What its write makes of its points."""
    return _prepared(op).write


def read_image(read: Read, op: OperationLike, domain: Region, shape: Sequence[int] | None = None) -> Image:
    """Elements of ``read.tensor`` that the points of ``domain`` (axes in the order of ``op.dims``) touch.

    Only points within ``op.where`` and the guard of the read count. An exact image is never clipped: it may leave the
    tensor, and then the program is wrong. A hull is cut to ``shape`` where one is given: what sticks out is its doing.
    """
    prepared = _prepared(op)
    found = prepared.reads.get(read)
    if found is None:
        found = projection(tuple(dim.name for dim in op.dims), read.index, (*op.where, *read.guard))
    return _within(found.image(domain), shape)


def _within(image: Image, shape: Sequence[int] | None) -> Image:
    if image.exact or shape is None or not image.region:
        return image
    box = Box.of_shape(shape)
    return image if image.region.hull() <= box else Image(image.region & box.region(), False)


def operand_images(op: OperationLike, shapes: Mapping[str, tuple[int, ...]], domain: Region) -> dict[str, Image]:
    """Per tensor that ``op`` reads, the union of its reads' images. Exact where all reads are."""
    found: dict[str, Image] = {}
    for read, prepared in _prepared(op).reads.items():
        image = _within(prepared.image(domain), shapes.get(read.tensor))
        before = found.get(read.tensor)
        found[read.tensor] = image if before is None else before | image
    return found


def write_image(op: OperationLike, domain: Region) -> Image:
    """Elements of ``op.output`` that the points of ``domain`` write: within ``op.where``, unless the operation reduces.

    A reduction over an empty set is the monoid's identity, so ``where`` does not keep it from writing.
    """
    return _prepared(op).write.image(domain)


def everywhere(extents: Mapping[str, int], kept: Sequence[str], bounds: Sequence[Bound]) -> bool:
    """Whether some point of the box meets the bounds at every place of the kept dimensions, as far as that is known.

    Of causal attention: whether every query sees a key.
    """
    rows = tuple(map(Affine.dim, kept))
    found = projection(tuple(extents), rows, tuple(bounds)).image(Box.of_shape(tuple(extents.values())).region())
    return found.exact and found.region.size == prod(extents[name] for name in kept)


def count_points(op: OperationLike, domain: Region) -> Count:
    """How many points of ``domain`` lie within ``op.where``: the work of a shard."""
    if not op.where:
        return Exact(domain.size)
    names = tuple(dim.name for dim in op.dims)
    return total(count_grid(names, op.where, grid) for grid in domain.grids)
