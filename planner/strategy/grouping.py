"""Groups of ranks: those on one coordinate of some mesh axes, on which a part of a program runs by itself.

All groups are alike, so what is decided for the mesh of the other axes holds on each: cuts are given their coordinate,
and layouts are lifted, empty on all other ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from ...program import Operation
from ...space import Region
from ..machine import Machine
from .layouts import Layout, Layouts
from .mesh import Cut, Mesh
from .strategies import Cuts, Strategy, StrategyTable


@dataclass(frozen=True)
class Grouping:
    """The groups that the coordinates of ``axes`` of a mesh name; ``inner`` is the mesh of one of them."""

    mesh: Mesh
    axes: tuple[int, ...]

    @cached_property
    def inner(self) -> Mesh:
        left = [axis for axis in range(len(self.mesh.shape)) if axis not in self.axes]
        if not left:
            return Mesh((1,), ("alone",))
        return Mesh(tuple(self.mesh.shape[k] for k in left), tuple(self.mesh.axes[k] for k in left))

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates of every group."""
        return tuple(product(*(range(self.mesh.shape[axis]) for axis in self.axes)))

    @cached_property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """Of every group, in the order of the ranks of the inner mesh."""
        return tuple(
            tuple(r for r, at in enumerate(self.mesh.coordinates) if tuple(at[axis] for axis in self.axes) == place)
            for place in self.places
        )

    def cuts(self, inner: Cuts, group: int) -> Cuts:
        """What cuts the inner mesh, on one group; nothing where no more is given."""
        given = iter(inner)
        at = dict(zip(self.axes, self.places[group], strict=True))
        return tuple(Cut.on(at[k]) if k in at else next(given, None) for k in range(len(self.mesh.shape)))

    def strategy(self, table: StrategyTable, op: Operation, inner: Cuts, group: int) -> Strategy:
        return table.strategy(op, self.cuts(inner, group))

    def lifted(self, layouts: Layouts, inner: Layout, groups: Iterable[int]) -> Layout:
        """A complete layout of the inner mesh on some groups, each a copy."""
        regions = [Region()] * self.mesh.size
        for group in groups:
            for rank, region in zip(self.ranks[group], inner.regions, strict=True):
                regions[rank] = region
        return layouts.of(inner.shape, regions)


def groupings(mesh: Mesh, machine: Machine) -> list[Grouping]:
    """Ways to take a mesh apart in groups that are alike, larger groups first.

    On several hosts the first axes alone name groups, so that all of them lie across hosts in the same way.
    """
    axes = range(len(mesh.shape))
    wide = [axis for axis in axes if mesh.shape[axis] > 1]
    some: list[Sequence[int]] = [wide[: k + 1] for k in range(len(wide))]
    if mesh.size <= machine.devices_per_host:
        some += [[axis] for axis in wide[1:]]
    found = [Grouping(mesh, tuple(chosen)) for chosen in some]
    return sorted(found, key=lambda grouping: (-grouping.inner.size, grouping.axes))
