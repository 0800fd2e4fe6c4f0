"""Points taken apart into boxes, those that fold into the same elements together.

grids     0:4 x (k in 0:8)  and  2:6 x (k in 8:16)
cells     0:2 (k in 0:8)    2:4 (k in 0:8, k in 8:16)    4:6 (k in 8:16)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from ...expr import Affine
from ...program import Operation
from ...space import Grid, IntSet, Region

Item = TypeVar("Item")
Runs = dict[str, range]


@dataclass(frozen=True)
class Cell:
    """One run for each kept dimension; for each fold into it one run of each folded dimension."""

    kept: Runs
    folds: tuple[Runs, ...]


def overlaid(layers: Sequence[tuple[Grid, Item]]) -> list[tuple[Grid, list[Item]]]:
    """Disjoint grids with the items of all layers that cover them, in the layers' order."""
    cells: list[tuple[Grid, list[Item]]] = []
    for grid, item in layers:
        found: list[tuple[Grid, list[Item]]] = []
        left = [grid]
        for cell, items in cells:
            common = cell & grid
            if not common:
                found.append((cell, items))
                continue
            found.append((common, [*items, item]))
            found += [(part, items) for part in cell.minus(grid)]
            left = [part for piece in left for part in piece.minus(cell)]
        cells = found + [(part, [item]) for part in left]
    return cells


def boxes(names: Sequence[str], axes: Sequence[IntSet]) -> Iterator[Runs]:
    """A grid as boxes: one run for each dimension."""
    for pick in product(*(axis.runs for axis in axes)):
        yield dict(zip(names, pick, strict=True))


def cells_of(op: Operation, points: Region) -> list[Cell]:
    """The boxes of a task's points."""
    names = [dim.name for dim in op.dims]
    kept = [name for name in names if name not in op.reduce_dims]
    folded = [name for name in names if name in op.reduce_dims]

    def part(grid: Grid, wanted: Sequence[str]) -> Grid:
        return Grid(tuple(axis for name, axis in zip(names, grid.axes, strict=True) if name in wanted))

    if op.monoid is None:
        return [Cell(runs, ({},)) for grid in points.grids for runs in boxes(names, grid.axes)]
    layers = [(part(grid, kept), part(grid, folded)) for grid in points.grids]
    found = []
    for cell, grids in overlaid(layers):
        folds = tuple(runs for grid in grids for runs in boxes(folded, grid.axes))
        found += [Cell(runs, folds) for runs in boxes(kept, cell.axes)]
    return found


def boxes_touched(op: Operation, points: Region, index: Sequence[Affine]) -> set[tuple[range, ...]] | None:
    """The elements of a tensor that points of an operation touch with an index of plain dimensions, as boxes."""
    found = set()
    for cell in cells_of(op, points):
        box = []
        for row in index:
            name = next(iter(row.dims), "")
            if row != Affine.dim(name) or name not in cell.kept:
                return None
            box.append(cell.kept[name])
        found.add(tuple(box))
    return found
