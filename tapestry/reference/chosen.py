"""Folds of which few points count, when there are too many to list: only the points that may count are evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..program import Block, Operation
from ..space import Grid, IntSet
from .expressions import Reader
from .monoids import UFUNCS, Fold, State
from .points import Points, elements, slabs
from .values import Array

LISTED = 2**22
"""Points of a shard that are all evaluated, whatever counts among them."""


@dataclass(frozen=True)
class ChosenPoints(Points):
    """Points of which some coordinates depend on the others: ``chosen``, arrays that broadcast to the points."""

    chosen: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def index(self) -> dict[str, Array]:
        return {**Points(self.names, self.axes).index, **self.chosen}


def counts_few(op: Operation, fold: Fold, grid: Grid) -> bool:
    """Whether the fold of a grid goes to the points that count alone."""
    return bool(op.selections) and fold.name in UFUNCS and grid.size > LISTED


def fold_chosen(op: Operation, fold: Fold, grid: Grid, total: State, reader: Reader) -> None:
    """Fold the points that may count into the places that they write, one after another."""
    names = [dim.name for dim in op.dims]
    chosen = {one.dim: one.value for one in op.selections}
    one = IntSet.interval(0, 1)
    rows = Grid(tuple(one if name in chosen else axis for name, axis in zip(names, grid.axes, strict=True)))
    for points in slabs(names, rows, [frozenset(names)], LISTED):
        found = {}
        for name, value in chosen.items():
            known = elements(grid.axes[names.index(name)])
            asked = np.nan_to_num(reader.value(value, points).array).astype(np.int64)
            found[name] = known[np.clip(np.searchsorted(known, asked), 0, len(known) - 1)]
        there = ChosenPoints(points.names, points.axes, found)
        assert not isinstance(op.body, Block)
        found_there = reader.value(op.body, there)
        moved = found_there._replace(array=reader.rounding.terms(found_there.array, fold.share))
        [state], [nothing] = fold.lift(moved, np.zeros((1,) * len(names), np.int64)), fold.identity(())
        state = np.where(there.inside(op.where), state, nothing)
        rows_written = [np.broadcast_to(there.value(row), there.shape) for row in op.write]
        at = (
            np.ravel_multi_index(tuple(rows_written), total[0].shape)
            if rows_written
            else np.zeros(there.shape, np.int64)
        )
        UFUNCS[fold.name].at(total[0].reshape(-1), at.ravel(), np.broadcast_to(state, there.shape).ravel())
