"""Shards of a contraction that are boxes of equal work, though not of equal sides: where no grid is near a cube's.

A rank receives the faces of its box, which are least if it is a cube. Five ranks have no grid but rows of slabs, and
sixteen none but 2 x 2 x 4. So the points are cut along one dimension in layers, these along another in columns and
these along a third in rows, each as thick as there are ranks in it: two layers of 8 ranks, each in columns of 3, 3
and 2. That moves 4.2 % more than cubes would, were there such, and the grid 9.7 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from math import prod

from ...expr import Affine
from ...program import Operation
from ...space import Box, Region
from ...space.cuts import in_proportion
from ...space.proofs import prove_regions

# Ranks at most, the longest dimensions that are cut, and boxes of one operation that are offered.
MOST_RANKS, LONGEST, OFFERED = 64, 4, 3

Columns = tuple[int, ...]
"""Ranks in each column of a layer."""


@dataclass(frozen=True)
class Boxes:
    """Layers along the first of three dimensions, columns along the second, rows along the third. ``moved``: bytes that
    all ranks together read and write.
    """

    dims: tuple[str, str, str]
    layers: tuple[Columns, ...]
    moved: float

    def shards(self, extents: Mapping[str, int]) -> list[Region] | None:
        """The box of every rank, proved to be a partition; None where a dimension is too short for that."""
        layer, column, row = self.dims
        found = []
        for high, columns in zip(_parts(extents[layer], [*map(sum, self.layers)]), self.layers, strict=True):
            for wide, ranks in zip(_parts(extents[column], columns), columns, strict=True):
                for deep in _parts(extents[row], (1,) * ranks):
                    spans = {**{name: (0, extent) for name, extent in extents.items()}, layer: high, column: wide}
                    low, top = zip(*{**spans, row: deep}.values(), strict=True)
                    found.append(Box(low, top).region())
        prove_regions(found, Box.of_shape(tuple(extents.values())))
        return found if all(found) else None


def boxes(op: Operation, ranks: int, widths: Mapping[str, int], share: float) -> list[Boxes]:
    """The boxes of a contraction that move least, the best for every number of layers, of those that have ranks receive
    less than this share of what they do on the best grid. ``widths``: bytes of an element, by tensor.
    """
    tensors = _tensors(op) if ranks <= MOST_RANKS else {}
    able = sorted((dim for dim in op.dims if dim.cut and dim.extent > 1), key=lambda dim: -dim.extent)[:LONGEST]
    best: dict[int, Boxes] = {}
    grid, resting = float("inf"), sum(widths[name] * _size(op, dims) for name, dims in tensors.items())
    for dims in permutations([dim.name for dim in able] if tensors else [], 3):
        faces = _Faces(op, dims, [(names, float(widths[name])) for name, names in tensors.items()], ranks)
        grid = min([grid, *faces.grids()])
        for count in range(1, ranks + 1):
            found = faces.layered(count)
            if count not in best or found.moved < best[count].moved:
                best[count] = found
    few = [found for found in best.values() if found.moved - resting < share * (grid - resting)]
    return sorted(few, key=lambda found: found.moved)[:OFFERED]


def _tensors(op: Operation) -> dict[str, frozenset[str]]:
    """The dimensions along which a contraction reads and writes each tensor; none of anything else."""
    rows = {op.output: op.write, **{read.tensor: read.index for read in op.reads}}
    single = {Affine.dim(dim.name) for dim in op.dims}
    plain = all(row in single for index in rows.values() for row in index)
    if op.factors is None or op.where or len(op.reads) != 2 or len(rows) != 3 or not plain:
        return {}
    return {name: frozenset(dim for row in index for dim in row.dims) for name, index in rows.items()}


def _size(op: Operation, dims: frozenset[str]) -> int:
    return prod(op.extents[name] for name in dims)


class _Faces:
    """What boxes of a contraction along three dimensions in this order move."""

    def __init__(
        self, op: Operation, dims: Sequence[str], tensors: Sequence[tuple[frozenset[str], float]], ranks: int
    ) -> None:
        layer, column, row = dims
        self.dims, self.ranks = (layer, column, row), ranks
        self.tensors = [(width * _size(op, names), *(name in names for name in dims)) for names, width in tensors]

    def _moved(self, high: float, wide: float, deep: float) -> float:
        """What one box with such shares of the three extents does."""
        return sum(
            nbytes * (high if along else 1) * (wide if across else 1) * (deep if down else 1)
            for nbytes, along, across, down in self.tensors
        )

    def _layer(self, ranks: int) -> tuple[float, Columns]:
        """The best columns of a layer of so many ranks."""
        return min(
            (sum(n * self._moved(ranks / self.ranks, n / ranks, 1 / n) for n in columns), columns)
            for columns in (_evenly(ranks, count) for count in range(1, ranks + 1))
        )

    def layered(self, count: int) -> Boxes:
        """The best boxes in so many layers."""
        sizes = _evenly(self.ranks, count)
        layers = {size: self._layer(size) for size in dict.fromkeys(sizes)}
        return Boxes(self.dims, tuple(layers[size][1] for size in sizes), sum(layers[size][0] for size in sizes))

    def grids(self) -> list[float]:
        """What each grid of equal boxes moves."""
        sides = [n for n in range(1, self.ranks + 1) if self.ranks % n == 0]
        two = ((high, wide) for high in sides for wide in sides if self.ranks % (high * wide) == 0)
        return [self.ranks * self._moved(1 / high, 1 / wide, high * wide / self.ranks) for high, wide in two]


@lru_cache(maxsize=4096)
def _evenly(count: int, parts: int) -> tuple[int, ...]:
    """So many in parts that differ by one at most, the larger first."""
    each, more = divmod(count, parts)
    return (each + 1,) * more + (each,) * (parts - more)


def _parts(extent: int, weights: Sequence[int]) -> list[tuple[int, int]]:
    """The parts of an extent in proportion to weights."""
    return [*pairwise(in_proportion(0, extent, weights, lambda index: index).cuts)]
