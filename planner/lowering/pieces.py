"""The ways to cut what ranks compute of an operation into pieces along a parallel dimension.

Equal pieces, or first what a rank can compute from what it holds and the rest afterwards: inside and border of a halo
exchange, a rank's own block of a gathered operand. The rest starts next to what is held and goes round, so that ranks
that hold blocks of something ask different ranks for them. Or first what others wait for: what is sent, and what that
is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...program import Operation
from ...space import Grid, IntSet, Region
from ...space.projection import operand_images, write_image
from ..strategy.columns import Ints, column, of_those_there
from ..strategy.layouts import Layout
from ..strategy.strategies import Strategy, StrategyTable
from .decisions import Decisions, Piece, Pieces
from .held import NOWHERE, alike

# Stretches of one rank's shard of which it is asked whether they can be computed from what the rank holds.
QUESTIONS = 128


class _Apart(NamedTuple):
    """Per rank a stretch of indices, and the runs of the others: those after it, then those before it."""

    inside: tuple[IntSet, ...]
    rest: tuple[tuple[range, ...], ...]


Shares = Callable[[int, Region], tuple[int, int]]
"""Of some points of a rank: how many of the elements in question are as wanted, of how many."""


class Cutter:
    """Cuts the shards of one operation. ``held``: the layout in which each operand is, before it is moved; ``wanted``:
    those in which its result is read.
    """

    def __init__(self, table: StrategyTable, decisions: Decisions, op: Operation) -> None:
        self.table, self.op, self.strategy = table, op, decisions.strategies[op.name]
        self.held = {name: decisions.made(table.program, name) for name in op.operands}
        self.wanted = decisions.wanted(table.program, op.output)
        self.shapes = {name: table.program.tensor(name).shape for name in op.operands}
        self._known: dict[tuple[str, str], _Apart | None] = {}
        self._read: dict[tuple[tuple[Layout, ...], str], _Apart | None] = {}
        self._made: dict[tuple[str, tuple[Layout, ...], str], _Apart | None] = {}

    def equal(self, dim: str, count: int) -> Pieces | None:
        """As many pieces of equally many indices of a dimension on every rank that has any; None: there are fewer."""
        axis, by_axes = self._axis(dim), self.strategy.domain.by_axes
        if by_axes is not None:
            sets = by_axes[axis].sets
            if any(values and values.size < count for values in sets):
                return None
            slices = ([_slice(values.runs, k, count) for values in sets] for k in range(count))
            return tuple((self._along(axis, mine, by_axes[axis].codes),) for mine in slices)
        rows = [_extent(region, axis) for region in self.strategy.shards]
        if any(row and row.size < count for row in rows):
            return None
        return tuple((self._task(axis, [_slice(row.runs, k, count) for row in rows]),) for k in range(count))

    def held_first(self, tensor: str, dim: str, count: int) -> Pieces | None:
        """First the indices of a dimension for which every rank holds what they read of a tensor, then the others in so
        many pieces, each task an interval. None: there are none of the one or the other, or a shard is not an interval.
        """
        found, axis = self._held(tensor, dim), self._axis(dim)
        least = min((sum(map(len, runs)) for runs in found.rest if runs), default=0) if found is not None else 0
        if found is None or least < count:
            return None
        later = [[_slice(runs, k, count).runs for runs in found.rest] for k in range(count)]
        return ((self._task(axis, found.inside),), *(self._piece(axis, spans) for spans in later))

    def made_first(self, tensor: str, made: Sequence[Layout], dim: str) -> Pieces | None:
        """First the indices of a dimension for which every rank has made what they read of a tensor, which is what it
        has in some layouts, then the others. None: there are none of the one or the other, or a shard is not an
        interval.
        """
        key = (tensor, tuple(made), dim)
        if key not in self._made:

            def shares(rank: int, points: Region) -> tuple[int, int]:
                read = operand_images(self.op, self.shapes, points)[tensor].region
                return read.meet_size(Region.union(each.region(rank) for each in made)), read.size

            self._made[key] = self._apart(dim, shares, tensor, made[0] if len(made) == 1 else None)
        found, axis = self._made[key], self._axis(dim)
        return None if found is None else ((self._task(axis, found.inside),), self._piece(axis, found.rest))

    def mostly_held(self, tensor: str, dim: str) -> bool:
        """Whether every rank can compute at least half of its indices from what it holds of a tensor: a halo."""
        found = self._held(tensor, dim)
        pairs = zip(found.inside, found.rest, strict=True) if found is not None else ()
        return found is not None and all(inside.size >= sum(map(len, rest)) for inside, rest in pairs)

    def sent_first(self, dim: str) -> Pieces | None:
        """First the indices of a dimension that make what other ranks read of the result, each task an interval, then
        the stretch between. None: there are none of the one or the other, or a shard is not an interval.
        """
        if ("", dim) not in self._known:
            self._known["", dim] = self._apart(dim, self._unsent)
        return self._rest_first(dim, self._known["", dim])

    def read_first(self, needs: Sequence[Layout], dim: str) -> Pieces | None:
        """The same with the indices that make what their own ranks need of the result in some layouts."""
        key = (tuple(needs), dim)
        if key not in self._read:

            def later(rank: int, points: Region) -> tuple[int, int]:
                written = write_image(self.op, points).region
                return written.size - written.meet_size(Region.union(need.region(rank) for need in needs)), written.size

            self._read[key] = self._apart(dim, later)
        return self._rest_first(dim, self._read[key])

    def _rest_first(self, dim: str, found: _Apart | None) -> Pieces | None:
        axis = self._axis(dim)
        return None if found is None else (self._piece(axis, found.rest), (self._task(axis, found.inside),))

    def _held(self, tensor: str, dim: str) -> _Apart | None:
        if (tensor, dim) not in self._known:
            have = self.held[tensor]

            def shares(rank: int, points: Region) -> tuple[int, int]:
                read = operand_images(self.op, self.shapes, points)[tensor].region
                return read.meet_size(have.regions[rank]), read.size

            self._known[tensor, dim] = None if have.parts is not None else self._apart(dim, shares, tensor, have)
        return self._known[tensor, dim]

    def _unsent(self, rank: int, points: Region) -> tuple[int, int]:
        written = write_image(self.op, points).region
        others = [region for need in self.wanted for r, region in enumerate(need.regions) if r != rank]
        return written.size - written.meet_size(Region.union(others)), written.size

    def _apart(self, dim: str, shares: Shares, tensor: str = "", held: Layout | None = None) -> _Apart | None:
        """The indices of a dimension at which all is as wanted, and the others; None as there are none of either.
        ``held``: the layout of a tensor that ranks are asked for, if it is one.
        """
        axis = self._axis(dim)
        numbers = alike(self.op, tensor, self.strategy.domain, held, axis) if held is not None else None
        found = {NOWHERE: range(0)}
        inner, outer = [], []
        for rank, region in enumerate(self.strategy.shards):
            row = _extent(region, axis)
            if len(row.runs) > 1 or any(run.step > 1 for run in row.runs):
                return None
            number = rank if numbers is None else numbers[rank]
            if number not in found:
                found[number] = self._longest(rank, axis, row.runs[0], shares) if row else range(0)
            inside = found[number]
            inner.append(IntSet.of(inside))
            above, below = (row.hi, row.lo) if row else (0, 0)
            rest = (range(inside.stop, above), range(below, inside.start)) if inside else (range(below, above),)
            outer.append(tuple(run for run in rest if run))
        return _Apart(tuple(inner), tuple(outer)) if any(inner) and any(outer) else None

    def _longest(self, rank: int, axis: int, row: range, shares: Shares) -> range:
        """The longest stretch found of indices at which all is as wanted."""
        found: list[range] = []
        waiting, questions = [row], QUESTIONS
        while waiting and questions:
            run, questions = waiting.pop(), questions - 1
            good, every = shares(rank, _restricted(self.strategy.shards[rank], axis, IntSet.of(run)))
            if good == every:
                if found and found[-1].stop == run.start:
                    run = range(found.pop().start, run.stop)
                found.append(run)
            elif good and len(run) > 1:
                middle = (run.start + run.stop) // 2
                waiting += [range(middle, run.stop), range(run.start, middle)]
        return max(found, key=len, default=range(0))

    def _piece(self, axis: int, spans: Sequence[Sequence[range]]) -> Piece:
        """A task for the first interval of every rank, one for the second, and so on."""
        deepest = max(map(len, spans))
        rows = [[IntSet.of(runs[k]) if k < len(runs) else IntSet() for runs in spans] for k in range(deepest)]
        return tuple(self._task(axis, row) for row in rows)

    def _task(self, axis: int, rows: Sequence[IntSet]) -> Strategy:
        """The points of every rank whose index on one axis is in a set."""
        by_axes = self.strategy.domain.by_axes
        if by_axes is not None:
            mine = by_axes[axis]
            numbers: dict[tuple[int, IntSet], int] = {}
            codes = [numbers.setdefault(pair, len(numbers)) for pair in zip(mine.codes.tolist(), rows, strict=True)]
            return self._along(axis, [mine.sets[code] & row for code, row in numbers], np.array(codes, dtype=np.int64))
        regions = [_restricted(region, axis, row) for region, row in zip(self.strategy.shards, rows, strict=True)]
        return self.table.piece(self.op, self.strategy, Layout(self.strategy.domain.shape, tuple(regions)))

    def _along(self, axis: int, sets: Sequence[IntSet], codes: Ints) -> Strategy:
        """The points of every rank with indices on one axis, of these sets the one of its code."""
        cut = [*(self.strategy.domain.by_axes or ())]
        cut[axis] = column(sets, codes)
        there = of_those_there(tuple(cut), np.all([one.sizes > 0 for one in cut], axis=0))
        return self.table.piece(self.op, self.strategy, Layout(self.strategy.domain.shape, None, None, there))

    def _axis(self, dim: str) -> int:
        return [d.name for d in self.op.dims].index(dim)


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
