"""The mesh, and what its axes cut: who has which shard of an index space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np

from ...errors import UsageError
from ...expr import Bound
from ...space import Box, IntSet, Region
from ...space.cuts import KINDS, CutKind, Rule
from ...space.partition import NamedCut, Partition
from .columns import Columns, column, few, of_those_there

MAX_RANKS = 4096


@dataclass(frozen=True)
class Mesh:
    """A logical grid over the first ``size`` devices; rank r has row-major coordinates.

    ``weights``: in what proportion ranks are to share work, where their devices differ; empty where they are alike.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    weights: tuple[int, ...] = ()

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
                hint=f"use a smaller mesh (of {MAX_RANKS} devices at most) or a larger machine",
            )
        return Mesh(sizes, names)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @cached_property
    def coordinates(self) -> tuple[tuple[int, ...], ...]:
        """Per rank its coordinate on each axis."""
        return tuple(product(*(range(n) for n in self.shape)))

    def weights_along(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The weights of the shards that the given mesh axes make together; empty where ranks are alike."""
        if not self.weights:
            return ()
        count, numbers = self.shard_index(axes)
        return tuple(
            sum(weight for weight, number in zip(self.weights, numbers, strict=True) if number == k)
            for k in range(count)
        )

    def shard_index(self, axes: Sequence[int]) -> tuple[int, list[int]]:
        """How many shards the given mesh axes make together, and per rank which one it has (row-major over them)."""
        numbers = np.zeros(self.size, dtype=np.int64)
        places = np.unravel_index(np.arange(self.size), self.shape)
        for axis in axes:
            numbers = numbers * self.shape[axis] + places[axis]
        return prod(self.shape[axis] for axis in axes), numbers.tolist()


@dataclass(frozen=True)
class Cut:
    """One mesh axis cuts dimension ``dim`` by a kind of `tapestry.space.cuts`.

    ``dim`` "@c": only coordinate c of the axis has anything, with c = 0 for SINGLE.
    """

    dim: str
    kind: CutKind = "block"

    def __str__(self) -> str:
        return self.dim + KINDS[self.kind].mark

    @property
    def chunks(self) -> int:
        """Elements that each part needs at least, so that none is empty."""
        return KINDS[self.kind].chunks

    @property
    def only(self) -> int | None:
        """The coordinate that alone has anything; None: it cuts a dimension."""
        return int(self.dim[1:]) if self.dim.startswith("@") else None

    @staticmethod
    def on(coordinate: int) -> Cut:
        """All on one coordinate of the axis."""
        return Cut(f"@{coordinate}")


SINGLE = "@0"


@dataclass(frozen=True)
class Shards:
    """A partition, and who has which shard: rank r has shard ``numbers[r]``, None nothing.

    Ranks with the same number have copies.
    """

    partition: Partition
    numbers: tuple[int | None, ...]

    @staticmethod
    def of(mesh: Mesh, extents: Mapping[str, int], cuts: Sequence[Cut | None], where: Sequence[Bound] = ()) -> Shards:
        """The box ``extents`` cut along mesh axes: several axes on one dimension cut it together.

        ``where``: conditions on the points at which there is work.
        """
        only = {axis: c.only for axis, c in enumerate(cuts) if c is not None and c.only is not None}
        used = [axis for axis, chosen in enumerate(cuts) if chosen is not None and axis not in only]
        axes_of: dict[Cut, list[int]] = {}
        for place, axis in enumerate(used):
            chosen = cuts[axis]
            assert chosen is not None
            axes_of.setdefault(chosen, []).append(place)
        dims = tuple(extents)
        named = [
            NamedCut(dims.index(c.dim), c.kind, tuple(axes), mesh.weights_along([used[k] for k in axes]))
            for c, axes in axes_of.items()
        ]
        sizes = [mesh.shape[axis] for axis in used]
        partition = Partition.by_kinds(tuple(extents.values()), sizes, named, dims, where)
        numbers = mesh.shard_index(used)[1]
        if not only:
            return Shards(partition, tuple(numbers))
        held = zip(mesh.coordinates, numbers, strict=True)
        there = [(all(place[axis] == c for axis, c in only.items()), number) for place, number in held]
        return Shards(partition, tuple(number if here else None for here, number in there))

    def columns(self, extents: Sequence[int]) -> Columns | None:
        """The same axis by axis, of a box with these extents; None where 64 bits may not do."""
        if not few(extents, len(self.numbers)):
            return None
        there = np.array([number is not None for number in self.numbers], dtype=bool)
        numbers = np.array([number or 0 for number in self.numbers], dtype=np.int64)
        at = np.unravel_index(numbers, self.partition.mesh) if self.partition.mesh else ()
        cut = [column([IntSet.interval(0, extent)], 0 * numbers) for extent in extents]
        for by in self.partition.cuts:
            part = 0 * numbers
            for axis in by.mesh_axes:
                part = part * self.partition.mesh[axis] + at[axis]
            cut[by.axis] = column(_parts(by.rule, extents[by.axis]), part)
        return of_those_there(tuple(cut), there & np.all([axis.sizes > 0 for axis in cut], axis=0))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Per rank its points."""
        pieces = self.partition.shards()
        return tuple(Region() if number is None else pieces[number] for number in self.numbers)


@lru_cache(maxsize=1024)
def _parts(rule: Rule, extent: int) -> tuple[IntSet, ...]:
    """All parts that a rule cuts an extent in."""
    return tuple(rule.part(number, 0, extent) for number in range(rule.parts))


def kind_of(cuts: Sequence[Cut | None]) -> CutKind:
    """The kind of a strategy in one word: the first that is not plain."""
    return next((chosen.kind for chosen in cuts if chosen is not None and chosen.kind != "block"), "block")


def choices_per_axis(options: Sequence[Cut | None], mesh: Mesh) -> Iterator[tuple[Cut | None, ...]]:
    """All ways to give each mesh axis an option, where a dimension is not cut in two different kinds."""
    for combination in product(options, repeat=len(mesh.shape)):
        seen: dict[str, str] = {}
        if all(c is None or seen.setdefault(c.dim, c.kind) == c.kind for c in combination):
            yield combination


def full_box(shape: Sequence[int]) -> Region:
    """The whole index box of a tensor."""
    return Box.of_shape(shape).region()
