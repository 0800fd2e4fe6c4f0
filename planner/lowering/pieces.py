"""The ways to cut what ranks compute of an operation into pieces along a parallel dimension.

Equal pieces, or first what a rank can compute from what it holds and the rest afterwards: inside and border of a halo
exchange, a rank's own block of a gathered operand. The rest starts next to what is held and goes round, so that ranks
that hold blocks of something ask different ranks for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...program import Operation
from ...space import Grid, IntSet, Region
from ...space.projection import operand_images
from ..strategy.strategies import Strategy, StrategyTable
from .decisions import Decisions, Piece, Pieces

# Stretches of one rank's shard of which it is asked whether they can be computed from what the rank holds.
QUESTIONS = 128

Spans = list[IntSet]
"""Indices of one dimension that a task computes, for each task of a piece on one rank."""


class Cutter:
    """Cuts the shards of one operation. ``held``: the layout in which each operand is, before it is moved."""

    def __init__(self, table: StrategyTable, decisions: Decisions, op: Operation) -> None:
        self.table, self.op, self.strategy = table, op, decisions.strategies[op.name]
        self.held = {name: decisions.made(table.program, name) for name in op.operands}
        self.shapes = {name: table.program.tensor(name).shape for name in op.operands}

    def equal(self, dim: str, count: int) -> Pieces | None:
        """As many pieces of equally many indices of a dimension on every rank that has any; None: there are fewer."""
        axis = self._axis(dim)
        rows = [_extent(region, axis) for region in self.strategy.shards]
        if any(row and row.size < count for row in rows):
            return None
        return tuple((self._task(axis, [_slice(row.runs, k, count) for row in rows]),) for k in range(count))

    def held_first(self, tensor: str, dim: str, count: int) -> Pieces | None:
        """First the indices of a dimension for which every rank holds what they read of a tensor, then the others in so
        many pieces, each task an interval. None: there are none of the one or the other, or a shard is not an interval.
        """
        axis = self._axis(dim)
        inner, outer = [], []
        for rank, region in enumerate(self.strategy.shards):
            row = _extent(region, axis)
            if len(row.runs) > 1 or any(run.step > 1 for run in row.runs):
                return None
            inside = self._inside(tensor, rank, axis, row.runs[0]) if row else range(0)
            inner.append(IntSet.of(inside))
            above, below = (row.hi, row.lo) if row else (0, 0)
            rest = (range(inside.stop, above), range(below, inside.start)) if inside else (range(below, above),)
            outer.append(tuple(run for run in rest if run))
        least = min((sum(map(len, runs)) for runs in outer if runs), default=0)
        if least < count or not any(inner):
            return None
        later = [[_slice(runs, k, count).runs for runs in outer] for k in range(count)]
        return ((self._task(axis, inner),), *(self._piece(axis, spans) for spans in later))

    def _piece(self, axis: int, spans: Sequence[Sequence[range]]) -> Piece:
        """A task for the first interval of every rank, one for the second, and so on."""
        deepest = max(map(len, spans))
        rows = [[IntSet.of(runs[k]) if k < len(runs) else IntSet() for runs in spans] for k in range(deepest)]
        return tuple(self._task(axis, row) for row in rows)

    def _task(self, axis: int, rows: Sequence[IntSet]) -> Strategy:
        """The points of every rank whose index on one axis is in a set."""
        regions = [_restricted(region, axis, row) for region, row in zip(self.strategy.shards, rows, strict=True)]
        return self.table.piece(self.op, self.strategy, regions)

    def _axis(self, dim: str) -> int:
        return [d.name for d in self.op.dims].index(dim)

    def _inside(self, tensor: str, rank: int, axis: int, row: range) -> range:
        """The longest stretch found of indices that read nothing of a tensor that the rank does not hold."""
        found: list[range] = []
        waiting, questions = [row], QUESTIONS
        while waiting and questions:
            run, questions = waiting.pop(), questions - 1
            read = self._read(tensor, rank, axis, run)
            held = read.meet_size(self._held(tensor, rank))
            if held == read.size:
                if found and found[-1].stop == run.start:
                    run = range(found.pop().start, run.stop)
                found.append(run)
            elif held and len(run) > 1:
                middle = (run.start + run.stop) // 2
                waiting += [range(middle, run.stop), range(run.start, middle)]
        return max(found, key=len, default=range(0))

    def _held(self, tensor: str, rank: int) -> Region:
        have = self.held[tensor]
        return Region() if have.parts is not None else have.regions[rank]

    def _read(self, tensor: str, rank: int, axis: int, run: range) -> Region:
        region = _restricted(self.strategy.shards[rank], axis, IntSet.of(run))
        return operand_images(self.op, self.shapes, region)[tensor].region


def _extent(region: Region, axis: int) -> IntSet:
    """All indices of an axis in a region."""
    return IntSet().union(*(grid.axes[axis] for grid in region.grids))


def _restricted(region: Region, axis: int, row: IntSet) -> Region:
    """The points of a region whose index on an axis is in a set."""
    grids = (Grid((*g.axes[:axis], g.axes[axis] & row, *g.axes[axis + 1 :])) for g in region.grids)
    return Region.of(*(grid for grid in grids if grid))


def _slice(runs: Sequence[range], k: int, count: int) -> IntSet:
    """Part k of as many equal parts of the elements of some runs, one run after another."""
    size = sum(map(len, runs))
    low, high = k * size // count, (k + 1) * size // count
    found, passed = [], 0
    for run in runs:
        found.append(run[max(0, low - passed) : max(0, high - passed)])
        passed += len(run)
    return IntSet.of(*(run for run in found if run))
