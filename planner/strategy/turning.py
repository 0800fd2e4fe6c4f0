"""Which strategies can be taken in turns: those whose ranks share blocks of an operand along a reduction.

    out[i] = fold over k of f(a[i, k], b[k])    i cut over 4 ranks, each of which needs all of b
    turn s of rank r: block (r - s) mod 4 of k, which rank r - 1 had in the turn before

Where several operands are shared along different mesh axes, as in a product on a grid, blocks are counted along all of
them, and an operand that fewer ranks share stays for several turns. Nothing here knows attention or products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import lcm

from ...program import Operation
from ...records import record_bytes, width_of
from ...space import Grid, Region
from ...space.cuts import KINDS
from .layouts import Layout, united
from .mesh import kind_of
from .strategies import Strategy, StrategyTable
from .traffic import Move, Traffic
from .turns import Stages, Turns

ALIGN = 256


def in_turns(
    op: Operation, strategy: Strategy, table: StrategyTable, traffic: Traffic, most: int | None = None
) -> tuple[Strategy, ...]:
    """The same shards in turns along a dimension of the reduction, where ranks then hold less of some operand.

    ``most``: no more turns than that.
    """
    key = strategy, most
    if key not in table.turned:
        table.turned[key] = tuple(_turned(op, strategy, table, traffic, most))
    return table.turned[key]


def _turned(
    op: Operation, strategy: Strategy, table: StrategyTable, traffic: Traffic, most: int | None
) -> Iterator[Strategy]:
    if op.scan is not None or op.data_dependent or not strategy.exact:
        return
    for dim in op.dims:
        if dim.name in op.reduce_dims and dim.cut:
            shared = _shared(op, strategy, table, dim.name)
            turning = _Turning(op, strategy, table, traffic, dim.name, shared) if shared else None
            few = turning is not None and (most is None or turning.count <= most)
            turned = turning.strategy() if turning is not None and few else None
            if turned is not None:
                yield turned


def _shared(op: Operation, strategy: Strategy, table: StrategyTable, dim: str) -> dict[int, tuple[int, ...]]:
    """By operand that is read along the dimension the mesh axes along which all ranks need the same of it."""
    found = {}
    for k, name in enumerate(op.operands):
        names = {dim for read in op.reads if read.tensor == name for row in read.index for dim in row.dims}
        axes = [
            a for a, cut in enumerate(strategy.cuts) if cut is not None and cut.dim not in (*names, *op.reduce_dims)
        ]
        if dim in names and table.mesh.shard_index(axes)[0] > 1:
            found[k] = tuple(axes)
    return found


class _Turning:
    """One strategy, taken in turns along one dimension."""

    def __init__(
        self, op: Operation, strategy: Strategy, table: StrategyTable, traffic: Traffic, dim: str,
        shared: dict[int, tuple[int, ...]],
    ) -> None:  # fmt: skip
        self.op, self.whole, self.table, self.traffic, self.shared = op, strategy, table, traffic, shared
        self.axis = [d.name for d in op.dims].index(dim)
        self.counts = {k: table.mesh.shard_index(axes)[0] for k, axes in shared.items()}
        self.count = lcm(*self.counts.values())
        self.rule = KINDS["zigzag" if kind_of(strategy.cuts) == "zigzag" else "block"].rule(self.count, 0, None, ())
        self.record = table.program.records.get(op.output) if strategy.writes.parts is None else None

    def strategy(self) -> Strategy | None:
        """None where a rank has too little for so many turns, or what a turn reads is nowhere."""
        if not all(self._divides(region) for region in self.whole.shards):
            return None
        last = self.count - 1
        each = tuple(
            self.table.turn(
                self.op, self.whole, self._points(turn), onto=turn > 0, partial=self.record is None or turn < last
            )
            for turn in range(self.count)
        )
        if self.record is not None and each[-1].writes is not self.whole.writes:
            return None  # some result would not be finished
        stages = {k: self._stages(k, [turn.needs[k] for turn in each]) for k in self.shared}
        found = {k: stage for k, stage in stages.items() if stage is not None}
        if len(found) < len(stages):
            return None
        needs = tuple(found[k].layouts[0] if k in found else need for k, need in enumerate(self.whole.needs))
        turns = Turns(each, found, self._workspace(found), self._moved(found))
        return replace(self.whole, needs=needs, seconds=self._seconds(turns), turns=turns)

    def _divides(self, region: Region) -> bool:
        """Every turn has some of a rank's points, in one stretch of the dimension."""
        stretches = [grid.axes[self.axis].runs for grid in region.grids]
        return all(len(runs) == 1 and runs[0].step == 1 and len(runs[0]) >= 2 * self.count for runs in stretches)

    def _points(self, turn: int) -> tuple[Region, ...]:
        return tuple(self._part(region, rank, turn) for rank, region in enumerate(self.whole.shards))

    def _part(self, region: Region, rank: int, turn: int) -> Region:
        grids, axis = [], self.axis
        for grid in region.grids:
            mine = grid.axes[axis]
            block = self.rule.part((self._first[rank] - turn) % self.count, mine.lo, mine.hi)
            grids.append(Grid((*grid.axes[:axis], mine & block, *grid.axes[axis + 1 :])))
        return Region.of(*grids)

    @cached_property
    def _first(self) -> list[int]:
        """The block that each rank begins with."""
        numbers = [
            [number * (self.count // count) for number in self.table.mesh.shard_index(axes)[1]]
            for axes, count in {self.shared[k]: self.counts[k] for k in self.shared}.items()
        ]
        return [sum(mine) for mine in zip(*numbers, strict=True)]

    def _stages(self, operand: int, exact: list[Layout]) -> Stages | None:
        """What is there of an operand in every turn, where each can come from the one before, or from the first."""
        period = self.count // self.counts[operand]
        layouts = tuple(united(exact[k : k + period], self.table.layouts) for k in range(0, self.count, period))
        held = [layout.everything for layout in layouts]
        for passed in (True, False):
            if all(held[k] <= held[k - 1 if passed else 0] for k in range(1, len(held))):
                return Stages(period, layouts, passed)
        return None

    def _stored(self, operand: int, layout: Layout) -> int:
        size = layout.storage_size * self.table.program.tensor(self.op.operands[operand]).itemsize
        return -(-size // ALIGN) * ALIGN

    def _workspace(self, stages: dict[int, Stages]) -> int:
        """Two stages of every operand at a time, but for the first, which is what the strategy needs."""
        taken = 0 if self.record is None else self.whole.writes.storage_size * record_bytes(self.record)
        for k, found in stages.items():
            sizes = [self._stored(k, layout) for layout in found.layouts]
            if found.passed:
                taken += max(a + b for a, b in pairwise(sizes)) - sizes[0]
            else:
                taken += max(a + b for a, b in pairwise([*sizes[1:], 0]))
        return taken

    def _moved(self, stages: dict[int, Stages]) -> int:
        return sum(move.nbytes for k, found in stages.items() for move in self._moves(k, found))

    def _moves(self, operand: int, stages: Stages) -> list[Move]:
        """The transfers to every stage but the first."""
        width = width_of(self.table.program, self.op.operands[operand])
        layouts = stages.layouts
        return [self.traffic.move(layouts[stages.source(k)], layouts[k], width) for k in range(1, len(layouts))]

    def _seconds(self, turns: Turns) -> tuple[float, ...]:
        """Per rank: its own turns, and what the slowest waits for transfers that take longer than a turn."""
        moves = {k: [0.0, *(move.seconds for move in self._moves(k, found))] for k, found in turns.stages.items()}
        came = ended = waited = 0.0
        for number, turn in enumerate(turns.each):
            arriving = [moves[k][number // s.period] for k, s in turns.stages.items() if number % s.period == 0]
            came += sum(arriving)
            waited += max(0.0, came - ended) if number else 0.0
            ended = max(ended, came) + turn.slowest
        own = [sum(turn.seconds[rank] for turn in turns.each) for rank in range(len(self.whole.shards))]
        return tuple(seconds + waited if seconds else 0.0 for seconds in own)
