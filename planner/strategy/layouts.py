"""The mesh, and what lies where on it: one region per rank, interned so that equal layouts are one object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from ...errors import UsageError
from ...space import Box, Grid, IntSet, Region

MAX_RANKS = 4096


@dataclass(frozen=True)
class Mesh:
    """A logical grid over the first ``size`` devices; rank r has row-major coordinates."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]

    @staticmethod
    def of(shape: Sequence[int] | Mapping[str, int], devices: int) -> Mesh:
        """(2, 4) names its axes mesh0, mesh1; {"data": 2, "model": 4} names them itself.

        UsageError if it does not fit the machine.
        """
        sizes = tuple(shape.values()) if isinstance(shape, Mapping) else tuple(shape)
        names = tuple(shape) if isinstance(shape, Mapping) else tuple(f"mesh{k}" for k in range(len(sizes)))
        if not sizes or any(type(n) is not int or n < 1 for n in sizes):
            raise UsageError(
                f"a mesh needs at least one axis of at least one device, got {sizes}", hint="for example mesh=(4,)"
            )
        if prod(sizes) > min(devices, MAX_RANKS):
            raise UsageError(
                f"a mesh of {'x'.join(map(str, sizes))} does not fit the machine",
                sides={"mesh": f"{prod(sizes)} devices", "machine": f"{devices} devices"},
                hint="use a smaller mesh or a larger machine",
            )
        return Mesh(sizes, names)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @cached_property
    def coordinates(self) -> tuple[tuple[int, ...], ...]:
        """Per rank its coordinate on each axis."""
        return tuple(product(*(range(n) for n in self.shape)))

    def shard_index(self, axes: Sequence[int]) -> tuple[int, list[int]]:
        """How many shards the given mesh axes make together, and per rank which one it has (row-major over them)."""
        numbers = []
        for point in self.coordinates:
            number = 0
            for axis in axes:
                number = number * self.shape[axis] + point[axis]
            numbers.append(number)
        return prod(self.shape[axis] for axis in axes), numbers


def cut(extent: int, shard: int, parts: int, kind: str) -> IntSet:
    """Shard number ``shard`` of 0..extent-1 cut in ``parts``: [floor(rN/P), floor((r+1)N/P)), or for ``zigzag`` chunks
    r and 2P-1-r of 2P.

    >>> str(cut(10, 1, 4, "block")), str(cut(16, 1, 4, "zigzag"))
    ('2:5', '2:4|12:14')
    """
    if kind == "block":
        return IntSet.interval(shard * extent // parts, (shard + 1) * extent // parts)
    mirror = 2 * parts - 1 - shard
    chunks = (IntSet.interval(k * extent // (2 * parts), (k + 1) * extent // (2 * parts)) for k in (shard, mirror))
    return IntSet().union(*chunks)


@dataclass(frozen=True, eq=False)
class Layout:
    """A layout: per rank a region of one tensor, with part numbers where it is partial.

    Compared by identity: `Layouts` makes equal layouts one object.
    """

    shape: tuple[int, ...]
    regions: tuple[Region, ...]
    parts: tuple[int, ...] | None = None
    _meets: dict[tuple[int, ...], Region] = field(default_factory=dict, repr=False)
    _within: dict[Layout, bool] = field(default_factory=dict, repr=False)

    @cached_property
    def total(self) -> int:
        """Elements on all ranks together, copies counted."""
        return sum(region.size for region in self.regions)

    @cached_property
    def everything(self) -> Region:
        """All elements that some rank has."""
        return self.union(range(len(self.regions)))

    def union(self, ranks: Sequence[int] | range) -> Region:
        """All elements that some of these ranks have."""
        key = tuple(ranks)
        if key not in self._meets:
            regions = dict.fromkeys(self.regions[rank] for rank in key)
            self._meets[key] = Region.of(*(grid for region in regions for grid in region.grids))
        return self._meets[key]

    @cached_property
    def storage_size(self) -> int:
        """Elements of the largest storage grid of any rank: what a buffer for it takes."""
        grids = (region.storage() for region in dict.fromkeys(self.regions))
        return max((grid.size for grid in grids if grid is not None), default=0)

    @cached_property
    def disjoint(self) -> bool:
        """No element on two ranks."""
        return self.everything.size == self.total

    @cached_property
    def part_count(self) -> int:
        """Number of distinct contributions: 1 when complete."""
        if self.parts is None:
            return 1
        return len({part for part, region in zip(self.parts, self.regions, strict=True) if region})

    def within(self, other: Layout) -> bool:
        """Every rank's region is inside the other's (which is complete)."""
        if other not in self._within:
            self._within[other] = self is other or all(a <= b for a, b in zip(self.regions, other.regions, strict=True))
        return self._within[other]


class Layouts:
    """Interns layouts: equal regions and parts give the same `Layout`."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._known: dict[tuple[tuple[int, ...], tuple[Region, ...], tuple[int, ...] | None], Layout] = {}

    def of(self, shape: tuple[int, ...], regions: Sequence[Region], parts: Sequence[int] | None = None) -> Layout:
        key = (shape, tuple(regions), None if parts is None else tuple(parts))
        return self._known.setdefault(key, Layout(*key))

    def cut(self, shape: tuple[int, ...], cuts: Sequence[Cut | None]) -> Layout:
        """A tensor cut along its axes: per mesh axis an axis of the tensor, or None: a copy each.

        ``Cut.dim`` is the axis's number as text.
        """
        names = tuple(str(axis) for axis in range(len(shape)))
        return self.of(shape, shards(self.mesh, dict(zip(names, shape, strict=True)), cuts))

    def replicated(self, shape: tuple[int, ...]) -> Layout:
        return self.cut(shape, (None,) * len(self.mesh.shape))


@dataclass(frozen=True)
class Cut:
    """One mesh axis cuts dimension ``dim``; kind is block or zigzag.

    ``dim`` SINGLE: only coordinate 0 of the axis has anything.
    """

    dim: str
    kind: str = "block"

    def __str__(self) -> str:
        return self.dim if self.kind == "block" else f"{self.dim}~"


SINGLE = "@0"


def shards(mesh: Mesh, extents: Mapping[str, int], cuts: Sequence[Cut | None]) -> list[Region]:
    """Per rank the points of the box ``extents`` that the cuts give it.

    Several mesh axes on one dimension cut it together.
    """
    axes_of: dict[str, list[int]] = {}
    kind_of: dict[str, str] = {}
    for axis, chosen in enumerate(cuts):
        if chosen is not None:
            axes_of.setdefault(chosen.dim, []).append(axis)
            kind_of[chosen.dim] = chosen.kind
    numbers = {dim: mesh.shard_index(axes) for dim, axes in axes_of.items()}
    alone = numbers.pop(SINGLE, (1, [0] * mesh.size))[1]
    whole = {dim: IntSet.interval(0, extent) for dim, extent in extents.items()}
    pieces = {
        (dim, shard): cut(extents[dim], shard, count, kind_of[dim])
        for dim, (count, _) in numbers.items()
        for shard in range(count)
    }
    found: dict[tuple[int, ...], Region] = {}
    result = []
    for rank in range(mesh.size):
        key = (alone[rank] and 1, *(numbers[dim][1][rank] for dim in numbers))
        if key not in found:
            found[key] = (
                Region()
                if key[0]
                else _product(whole, {d: pieces[d, k] for d, k in zip(numbers, key[1:], strict=True)})
            )
        result.append(found[key])
    return result


def _product(whole: Mapping[str, IntSet], chosen: Mapping[str, IntSet]) -> Region:
    return Region.of(Grid(tuple(chosen.get(dim, everything) for dim, everything in whole.items())))


def kinds(cuts: Sequence[Cut | None]) -> str:
    """The kind of a strategy in one word."""
    return "zigzag" if any(c is not None and c.kind == "zigzag" for c in cuts) else "block"


def choices_per_axis(options: Sequence[Cut | None], mesh: Mesh) -> Iterator[tuple[Cut | None, ...]]:
    """All ways to give each mesh axis an option, where a dimension is not cut in two different kinds."""
    for combination in product(options, repeat=len(mesh.shape)):
        seen: dict[str, str] = {}
        if all(c is None or seen.setdefault(c.dim, c.kind) == c.kind for c in combination):
            yield combination


def full_box(shape: Sequence[int]) -> Region:
    """The whole index box of a tensor."""
    return Box.of_shape(shape).region()
