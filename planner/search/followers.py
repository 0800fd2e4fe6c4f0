"""Plans in which groups of ranks have pieces of a batch, each for the whole program, and follow one another.

What a piece reads of others, as causal attention reads the keys of earlier tokens, comes from the group that has them.
That group is ahead: what it sends is there before it is asked for, so that slow links are hidden behind a group's own
work, which they are not where all ranks are at the same operation. Later pieces wait and read more, so pieces are not
equal: their ends are moved while the run gets shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ...convolution import convolution
from ...program import Operation, Program
from ...space import Grid, IntSet, Region
from ...space.cuts import Block
from ..lowering.decisions import Decisions, Piece
from ..lowering.order import listed
from ..sharding.model import PICO, TIE
from ..sharding.solving import Solution
from ..sharding.stages import extents
from ..strategy.carried import Carried
from ..strategy.grouping import groupings
from ..strategy.layouts import Layout
from ..strategy.mesh import Cut
from ..strategy.strategies import Strategy
from .batches import along_of, batch_of
from .candidates import best_candidate
from .effort import WORTH
from .found import Found
from .groups import GroupCosts, within
from .question import Question

# Groups that follow one another at most: each receives what all before it have.
MOST = 4
# Parts of a batch by which ends of pieces are moved.
GRAIN = 32
# How many times as long as the best plan equal pieces may take, of which ends are moved.
LONGER = 1.3
# Operations of programs at most, and in all listings of a number of groups together.
OPERATIONS, EFFORT = 3000, 16000


def followed(question: Question, best: Found, below: float) -> Found | None:
    """The shortest plan that takes less than ``below`` seconds with pieces of a batch on groups that follow one another
    over slow links, if there is one. ``best``: the best plan without groups.
    """
    machine, found = question.machine, None
    if question.objective != "time" or question.pins or not question.pieces or not machine.device.overlap:
        return None
    if (
        question.mesh.size <= machine.devices_per_host
        or machine.others
        or len(question.program.operations) > OPERATIONS
    ):
        return None
    dims = batch_of(question.program, best.candidate.decisions)
    along = along_of(question.program, dims)
    fine = along and extents(question.program, dims) >= GRAIN and _pieced(question.program, dims, along)
    for grouping in groupings(question.mesh, machine) if fine else ():
        if grouping.inner.size < machine.devices_per_host or question.clock.up:
            continue
        inner = within(question, grouping, question.capacity)
        if inner is None or inner.ends:
            continue
        costs = GroupCosts(question, grouping, best.candidate.decisions, inner)
        for groups in range(2, min(MOST, costs.count) + 1):
            other = Followers(costs, dims, along, groups).found(below)
            if other is None:
                break
            found, below = other, other.makespan_s
    return found


def _pieced(program: Program, dims: Mapping[str, str], along: Carried) -> bool:
    """Whether no operation folds a batch that has none of it apart: what it folds would be on all groups."""
    folding = {name for name, dim in along if dim in program.op_by_name[name].reduce_dims}
    return folding <= dims.keys()


@dataclass(frozen=True, eq=False)
class Followers:
    """A program on so many groups, whose pieces are still to be chosen."""

    costs: GroupCosts
    dims: Mapping[str, str]
    along: Carried
    count: int
    _known: dict[tuple[str, tuple[float, ...]], tuple[Strategy, tuple[Piece, ...]]] = field(default_factory=dict)
    _seconds: dict[tuple[int, ...], float] = field(default_factory=dict)

    @property
    def question(self) -> Question:
        return self.costs.question

    @cached_property
    def program(self) -> Program:
        return self.question.program

    def found(self, below: float) -> Found | None:
        """The shortest, from equal pieces on, as long as moved ends make it shorter by list scheduling."""
        ends = tuple(GRAIN * k // self.count for k in range(self.count + 1))
        left, seen = EFFORT // (self.count * len(self.program.operations)), {ends}
        best, seconds = ends, self.seconds(ends)
        improved = seconds < LONGER * below
        while improved and not self.question.clock.up:
            improved = False
            for other in _moved(best):
                if other in seen or left <= 0:
                    continue
                left -= 1
                seen.add(other)
                if (other_s := self.seconds(other)) < WORTH * seconds:
                    best, seconds, improved = other, other_s, True
                    break
        if seconds >= below / WORTH:
            return None
        best, least = self.shortest(best)
        made = self.lowered(best, least)
        return made if made.makespan_s < WORTH * below and made.candidate.peak <= self.question.capacity else None

    def shortest(self, ends: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """The ends of two pieces of which list scheduling says the shortest run, and its seconds; else these ends, and
        an equal share of the work, less than which no run takes.

        Ends are looked at outwards from those given. Once the group whose piece grows would compute for as long as the
        shortest run takes, all ends beyond take longer: a task over more points takes no less.
        """
        equal = sum(self.costs.seconds(op, 0) for op in self.program.operations) / self.count
        modelled = any(convolution(op, self.program) is not None for op in self.program.operations)
        if self.count > 2 or modelled or self.costs.inner.solution.status != "optimal":
            return ends, equal
        best, seconds = ends, self.seconds(ends)
        for step, group in ((1, 0), (-1, 1)):
            end = ends[1] + step
            while 0 < end < GRAIN and self._alone((0, end, GRAIN), group) < seconds:
                if self.question.clock.up:
                    return best, equal
                other = (0, end, GRAIN)
                if (other_s := self.seconds(other)) < seconds:
                    best, seconds = other, other_s
                end += step
        return best, seconds

    def lowered(self, ends: tuple[int, ...], least: float) -> Found:
        """The plan with such pieces, of which none of the kind takes less than so many seconds by list scheduling."""
        seconds = self.seconds(ends)
        candidate = best_candidate(self.question, self.decisions(ends), seconds)
        objective, bound = (round(each * TIE * PICO) for each in (seconds, min(least, seconds)))
        return Found(candidate, {}, Solution("optimal" if bound == objective else "feasible", {}, objective, bound))

    def seconds(self, ends: tuple[int, ...]) -> float:
        """Of the run by list scheduling, with pieces that end so many parts from the start."""
        if ends not in self._seconds:
            decisions = self.decisions(ends)
            self._seconds[ends] = listed(self.program, decisions, self.question.pricing, self.question.layouts).seconds
        return self._seconds[ends]

    def _alone(self, ends: tuple[int, ...], group: int) -> float:
        """Seconds that a group computes for, at least."""
        made = (self.made(op, ends) for op in self.program.operations)
        return sum(max(each.slowest for each in pieces[group]) for _, pieces in made if pieces)

    def decisions(self, ends: tuple[int, ...]) -> Decisions:
        """Spelled out: what is resident lies on all groups as on one, an input where it is read first."""
        made = {op.name: self.made(op, ends) for op in self.program.operations}
        strategies = {name: strategy for name, (strategy, _) in made.items()}
        homes, groups = {}, [*range(self.count)]
        for tensor in self.program.of_role("input", "param", "state", "const"):
            readers = self.program.consumers[tensor.name]
            homes[tensor.name] = self.costs.home(tensor, groups[:1] if tensor.role == "input" else groups)
            if tensor.role == "input" and readers:
                need = strategies[readers[0].name].needs[readers[0].operands.index(tensor.name)]
                homes[tensor.name] = need if need.one_copy else homes[tensor.name]
        return Decisions(homes, strategies, {}, {name: pieces for name, (_, pieces) in made.items() if pieces})

    def made(self, op: Operation, ends: tuple[int, ...]) -> tuple[Strategy, tuple[Piece, ...]]:
        """An operation on all groups, and its pieces; each has a copy of what is of no piece."""
        key = self.question.table.signature(op), ends
        if key not in self._known:
            pieces = [self._points(op, group, span) for group, span in enumerate(pairwise(ends))]
            whole = self.question.table.explicit(op, [Region.union(parts) for parts in zip(*pieces, strict=True)])
            cut = (Layout(whole.domain.shape, tuple(points)) for points in pieces if op.name in self.dims)
            self._known[key] = whole, tuple((self.question.table.piece(op, whole, points),) for points in cut)
        return self._known[key]

    def _points(self, op: Operation, group: int, span: tuple[int, int]) -> list[Region]:
        """Per rank what it computes of a piece: as the group is cut by itself, with shares of the piece alone."""
        grouping, cuts = self.costs.grouping, self.costs.inner.cuts[op.name]
        axis = [*op.extents].index(self.dims[op.name]) if op.name in self.dims else None
        dims = {cut.dim for cut in cuts if cut is not None and (op.name, cut.dim) in self.along}
        blocks = tuple(Cut(cut.dim) if cut is not None and cut.dim in dims else cut for cut in cuts)
        regions = grouping.strategy(self.question.table, op, blocks, group).shards
        if axis is None:
            return [*regions]
        extent = [*op.extents.values()][axis]
        piece = IntSet.interval(*(extent * end // GRAIN for end in span))
        order = sorted({region.grids[0].axes[axis] for region in regions if region}, key=lambda values: values.lo)
        shares = {values: Block(len(order)).part(k, piece.lo, piece.hi) for k, values in enumerate(order)}
        return [_on_axis(region, axis, shares) for region in regions]


def _on_axis(region: Region, axis: int, to: Mapping[IntSet, IntSet]) -> Region:
    """Other indices of an axis; a region of one grid, or of none."""
    if not region:
        return region
    axes = [*region.grids[0].axes]
    axes[axis] = to[axes[axis]]
    return Grid(tuple(axes)).region()


def _moved(ends: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Pieces of which one ends earlier or later."""
    for step in (-2, -1, 1, 2):
        for k in range(1, len(ends) - 1):
            other = (*ends[:k], ends[k] + step, *ends[k + 1 :])
            if all(a < b for a, b in pairwise(other)):
                yield other
