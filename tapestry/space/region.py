"""Sets of index tuples: boxes, grids (products of integer sets) and regions (disjoint unions of grids).

What a shard reads or writes is a `Region`. Intersection, difference, union, inclusion and size are exact; nothing is
enumerated, so extents beyond 2**31 cost the same as small ones. A 0-d box or grid has exactly one point, the empty
tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .intset import IntSet, parse_intset


@dataclass(frozen=True)
class Box:
    """The integer points with lo[k] <= x[k] < hi[k] on every axis; empty if any hi[k] <= lo[k].

    >>> Box((0, 0), (4, 3)).size, Box((), ()).size
    (12, 1)
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.lo) != len(self.hi):
            raise ValueError(f"a box needs as many lower as upper bounds, got {self.lo} and {self.hi}")

    @staticmethod
    def of_shape(shape: Sequence[int]) -> Box:
        """The box from the origin with the given extents."""
        return Box((0,) * len(shape), tuple(shape))

    @property
    def ndim(self) -> int:
        return len(self.lo)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(0, h - low) for low, h in zip(self.lo, self.hi, strict=True))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __contains__(self, point: Sequence[int]) -> bool:
        return len(point) == self.ndim and all(a <= x < b for a, x, b in zip(self.lo, point, self.hi, strict=True))

    def __and__(self, other: Box) -> Box:
        return Box(tuple(map(max, self.lo, other.lo)), tuple(map(min, self.hi, other.hi)))

    def __le__(self, other: Box) -> bool:
        return not self.size or self & other == self

    def shift(self, by: Sequence[int]) -> Box:
        return Box(_plus(self.lo, by), _plus(self.hi, by))

    def grid(self) -> Grid:
        return Grid(tuple(IntSet.interval(a, b) for a, b in zip(self.lo, self.hi, strict=True)))

    def region(self) -> Region:
        return Region.of(self.grid())

    def __str__(self) -> str:
        return "[" + ", ".join(f"{a}:{b}" for a, b in zip(self.lo, self.hi, strict=True)) + "]"


def _plus(point: Sequence[int], by: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + d for x, d in zip(point, by, strict=True))


@dataclass(frozen=True)
class Grid:
    """The product of one `IntSet` per axis."""

    axes: tuple[IntSet, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.axes)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @cached_property
    def size(self) -> int:
        return prod(axis.size for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis: the shape of a compact buffer that holds the grid."""
        return tuple(axis.size for axis in self.axes)

    def __bool__(self) -> bool:
        return all(self.axes)

    def __contains__(self, point: Sequence[int]) -> bool:
        return len(point) == self.ndim and all(x in axis for x, axis in zip(point, self.axes, strict=True))

    def __and__(self, other: Grid) -> Grid:
        return Grid(tuple(a & b for a, b in zip(self.axes, other.axes, strict=True)))

    def __le__(self, other: Grid) -> bool:
        return not self or all(a <= b for a, b in zip(self.axes, other.axes, strict=True))

    def minus(self, other: Grid) -> list[Grid]:
        """Disjoint grids that make up this grid without ``other``: one slab per axis at most."""
        common = self & other
        if not common:
            return [self] if self else []
        parts: list[Grid] = []
        done: tuple[IntSet, ...] = ()
        for k, (mine, theirs) in enumerate(zip(self.axes, common.axes, strict=True)):
            outside = mine - theirs
            if outside:
                parts.append(Grid((*done, outside, *self.axes[k + 1 :])))
            done = (*done, theirs)
        return parts

    def hull(self) -> Box:
        """The smallest box around it. ValueError when empty."""
        return Box(tuple(axis.lo for axis in self.axes), tuple(axis.hi for axis in self.axes))

    def boxes(self) -> list[Box]:
        """The grid as boxes, in row-major order of their corners. Strided runs give a box an element."""
        found = [Box((), ())]
        for axis in self.axes:
            spans = [(r.start, r.stop) for r in axis.runs if r.step == 1]
            spans += [(x, x + 1) for r in axis.runs if r.step != 1 for x in r]
            found = [Box((*box.lo, a), (*box.hi, b)) for box in found for a, b in sorted(spans)]
        return found

    def cover(self) -> Grid:
        """The same grid with the gaps of strided runs filled."""
        return Grid(tuple(axis.cover() for axis in self.axes))

    def shift(self, by: Sequence[int]) -> Grid:
        return Grid(tuple(axis.shift(d) for axis, d in zip(self.axes, by, strict=True)))

    def region(self) -> Region:
        return Region.of(self)

    def __str__(self) -> str:
        return ",".join(str(axis) for axis in self.axes) if self.axes else "()"


def _joined(a: Grid, b: Grid) -> Grid | None:
    """One grid for two disjoint ones that differ on a single axis, or None."""
    differing = [k for k, (x, y) in enumerate(zip(a.axes, b.axes, strict=True)) if x != y]
    if len(differing) != 1:
        return None
    k = differing[0]
    return Grid((*a.axes[:k], a.axes[k] | b.axes[k], *a.axes[k + 1 :]))


def _coalesce(grids: list[Grid]) -> list[Grid]:
    """Join disjoint grids while any two differ on one axis only."""
    done: list[Grid] = []
    queue = list(grids)
    while queue:
        grid = queue.pop()
        for k, other in enumerate(done):
            joined = _joined(grid, other)
            if joined is not None:
                del done[k]
                queue.append(joined)
                break
        else:
            done.append(grid)
    return done


@dataclass(frozen=True)
class Region:
    """A disjoint union of grids of one dimension. Equality is of the written form; `same` compares the sets.

    >>> r = Box((0, 0), (4, 4)).region() - Box((1, 1), (3, 3)).region()
    >>> r.size, r.contains((1, 0)), r.contains((2, 2))
    (12, True, False)
    """

    grids: tuple[Grid, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.grids)

    @staticmethod
    def of(*grids: Grid) -> Region:
        """The union of any grids, overlapping or not."""
        apart: list[Grid] = []
        for grid in grids:
            pieces = [grid] if grid else []
            for other in apart:
                pieces = [part for piece in pieces for part in piece.minus(other)]
            apart += pieces
        if len(apart) > 1:
            apart = sorted(_coalesce(apart), key=lambda g: g.hull().lo)
        return Region(tuple(apart))

    @staticmethod
    def union(regions: Iterable[Region]) -> Region:
        """The union of many regions, by halves of neighbours: those that tile their space grow together."""
        grids = [grid for region in dict.fromkeys(regions) for grid in region.grids]
        return _united(sorted(grids, key=lambda grid: grid.hull().lo))

    @cached_property
    def size(self) -> int:
        return sum(grid.size for grid in self.grids)

    def __bool__(self) -> bool:
        return bool(self.grids)

    def contains(self, point: Sequence[int]) -> bool:
        return any(point in grid for grid in self.grids)

    def __and__(self, other: Region) -> Region:
        if self is other:
            return self
        return _region([a & b for a in self.grids for b in other.grids])

    def __sub__(self, other: Region) -> Region:
        left = list(self.grids)
        for grid in other.grids:
            left = [part for piece in left for part in piece.minus(grid)]
        return _region(left)

    def __or__(self, other: Region) -> Region:
        if self is other or not other:
            return self
        return Region.of(*self.grids, *other.grids) if self else other

    def __le__(self, other: Region) -> bool:
        """Subset, by exact counting."""
        return self is other or self.meet_size(other) == self.size

    def meet_size(self, other: Region) -> int:
        """Size of the intersection without building it."""
        pairs = ((a.axes, b.axes) for a in self.grids for b in other.grids)
        return sum(prod((x & y).size for x, y in zip(mine, theirs, strict=True)) for mine, theirs in pairs)

    def same(self, other: Region) -> bool:
        """The same set of points, however written."""
        return self == other or (self.size == other.size and self <= other)

    def hull(self) -> Box:
        """The smallest box around it. ValueError when empty."""
        hulls = [grid.hull() for grid in self.grids]
        if not hulls:
            raise ValueError("an empty region has no hull")
        return Box(
            tuple(min(h.lo[k] for h in hulls) for k in range(hulls[0].ndim)),
            tuple(max(h.hi[k] for h in hulls) for k in range(hulls[0].ndim)),
        )

    def storage(self) -> Grid | None:
        """The smallest grid of intervals that a dense buffer for this region holds (None when empty).

        Strided gaps and the corners of unions are stored, though they are not valid: what is *moved* is always the
        region.
        """
        if not self.grids:
            return None
        per_axis = zip(*(grid.axes for grid in self.grids), strict=True)
        return Grid(tuple(axes[0].union(*axes[1:]).cover() for axes in per_axis))

    def witness(self) -> tuple[int, ...] | None:
        """The least corner of the first grid, or None when empty."""
        return tuple(axis.lo for axis in self.grids[0].axes) if self.grids else None

    def __str__(self) -> str:
        """Grids joined by `` + ``, axes by ``,``, runs by ``|``; ``empty`` when empty. `parse_region` reads it back."""
        return self._text

    @cached_property
    def _text(self) -> str:
        """Plans are written down again and again while one is looked for."""
        return " + ".join(str(grid) for grid in self.grids) or "empty"


def _united(grids: list[Grid]) -> Region:
    if len(grids) <= 4:
        return Region.of(*grids)
    middle = len(grids) // 2
    return _united(grids[:middle]) | _united(grids[middle:])


def _region(pieces: Iterable[Grid]) -> Region:
    grids = [grid for grid in pieces if grid]
    if len(grids) > 1:
        grids = sorted(_coalesce(grids), key=lambda g: g.hull().lo)
    return Region(tuple(grids))


def _parse_grid(text: str) -> Grid:
    return Grid(() if text.strip() == "()" else tuple(parse_intset(axis) for axis in text.split(",")))


def parse_region(text: str) -> Region:
    """Read what ``str(Region)`` writes; ValueError for anything else, overlapping grids included.

    >>> parse_region("0:4,0:8|12:16").size
    48
    """
    if text == "empty":
        return Region()
    grids = [_parse_grid(part) for part in text.split(" + ")]
    if len({grid.ndim for grid in grids}) > 1:
        raise ValueError(f"grids of {text!r} differ in dimension")
    result = Region.of(*grids)
    if result.size != sum(grid.size for grid in grids):
        raise ValueError(f"grids of {text!r} overlap")
    return result
