"""Plans with operations side by side on groups of ranks, where enough of them depend on none of the others.

The model of the solver adds up operations, as if all ranks worked on each. Here each operation is put on one of several
groups (`sharding.placement`), cut within it as the solver would cut it on a mesh of that size alone, and the plan is
kept where it simulates shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import TimeLimit
from ...program import Operation, Program, Tensor
from ...records import width_of
from ..clock import Clock
from ..lowering.decisions import Decisions
from ..sharding.assignment import OutOfTime
from ..sharding.bound import lower_bound
from ..sharding.model import PICO, TIE
from ..sharding.placement import ALL, Placement, Works, beside, least_seconds, placed
from ..sharding.solving import Solution
from ..strategy.grouping import Grouping, groupings
from ..strategy.layouts import Layout, Layouts
from ..strategy.least import lacks_parts
from ..strategy.mesh import Mesh
from ..strategy.strategies import Cuts, Strategy, StrategyTable
from .candidates import best_candidate, decide
from .effort import WORTH
from .found import Found
from .question import Question
from .search import Search, searched

# Operations times groups that are placed at most, and operations that are cut within groups: what a few seconds afford.
PLACED = 4000
CUT_WITHIN = 300


def side_by_side(question: Question, best: Found, below: float) -> Found | None:
    """The shortest plan that takes less than ``below`` seconds with operations on groups of ranks, if there is one.

    ``best`` is the best plan without; what gains nothing by a group is computed as it is there.
    """
    if question.objective != "time" or question.pins or len(question.program.operations) > PLACED // 2:
        return None
    found = None
    for grouping in groupings(question.mesh, question.machine):
        if not question.clock.up and len(grouping.places) * len(question.program.operations) <= PLACED:
            other = _grouped(question, best.candidate.decisions, grouping, below)
            if other is not None and other.makespan_s < WORTH * below:
                found, below = other, other.makespan_s
    return found


def _grouped(question: Question, everywhere: Decisions, grouping: Grouping, below: float) -> Found | None:
    """The plan with these groups; None where none can be that short, or it does not fit."""
    program = question.program
    if not _promising(program, Scaled(question, grouping, everywhere), below):
        return None
    few = len(program.operations) <= CUT_WITHIN or grouping.inner.size == 1
    inner = within(question, grouping, len(grouping.places) * question.capacity) if few else None
    if inner is None:
        return None
    costs = GroupCosts(question, grouping, everywhere, inner)
    if not _promising(program, costs, below):
        return None
    question.say("placing")
    apart = beside(program, costs)
    placement = placed(program, costs, apart)
    if placement.seconds >= WORTH * below:  # the run takes longer than list scheduling says, if anything
        return None
    return realised(question, costs, placement, least_seconds(program, costs, apart))


def on_one_group(question: Question, best: Found, below: float, known: int = 0) -> Found | None:
    """The shortest plan that takes less than ``below`` seconds with all of the program on one group of ranks, a host or
    more, and the others idle: within a host a mesh that was asked for is what is used. Where the bound lets no plan on
    so many ranks be that short, none is looked for. ``known``: so many ranks were looked at before.
    """
    if question.objective != "time" or question.pins:
        return None
    program, machine, found = question.program, question.machine, None
    for grouping in groupings(question.mesh, machine):
        least = max(machine.devices_per_host, known + 1)
        if question.clock.up or not least <= grouping.inner.size < question.mesh.size:
            continue
        if not machine.others and lower_bound(program, machine, grouping.inner.size).seconds >= WORTH * below:
            continue
        inner = within(question, grouping, question.capacity)
        if inner is not None:
            costs = GroupCosts(question, grouping, best.candidate.decisions, inner)
            other = left_to(question, costs, costs.quickest)
            if other is not None and other.makespan_s < WORTH * below:
                found, below = other, other.makespan_s
    return found


def left_to(question: Question, costs: GroupCosts, group: int) -> Found | None:
    """All of a program on one group, if it fits; how near that is to the best on such a group is the solver's word."""
    solution = costs.inner.solution
    decisions = costs.decisions({op.name: group for op in question.program.operations})
    candidate = best_candidate(question, decisions, solution.objective / (TIE * PICO))
    return Found(candidate, {}, solution) if candidate.peak <= question.capacity else None


def _promising(program: Program, costs: Works, below: float) -> bool:
    """Whether some operations are worth groups, and all may end in less time with them."""
    apart = beside(program, costs)
    return any(group != ALL for group in apart.values()) and least_seconds(program, costs, apart) < WORTH * below


def realised(question: Question, costs: GroupCosts, placement: Placement, least: float) -> Found | None:
    """A placement as a plan, if it fits. ``least``: seconds below which no placement of the kind ends."""
    decisions = costs.decisions(placement.groups)
    candidate = best_candidate(question, decisions, placement.seconds)
    if candidate.peak > question.capacity:
        return None
    objective, bound = (round(seconds * TIE * PICO) for seconds in (placement.seconds, least))
    return Found(candidate, {}, Solution("feasible", {}, objective, min(bound, objective)))


@dataclass(eq=False)
class _Split:
    """A program on all ranks, some of it on groups instead. ``everywhere``: what is decided for all ranks."""

    question: Question
    grouping: Grouping
    everywhere: Decisions

    @property
    def count(self) -> int:
        return len(self.grouping.places)

    def crossing(self, tensor: str, reader: Operation, *, onto: bool) -> float:
        """See `placement.Works`: the fastest links bring what the busiest rank of a group lacks, however that is cut,
        or the busiest of all others.
        """
        need = self.everywhere.strategies[reader.name].needs[reader.operands.index(tensor)]
        groups = np.array(self.grouping.ranks)
        busiest = self._lacking(tensor, need, groups) if onto else _wanted(need, groups)
        (start, rate), width = self.question.pricing.quickest, width_of(self.question.program, tensor)
        least = max(0.0, float(busiest.min()))
        return start + least * min(width.complete, width.partial) / rate if least else 0.0

    def _lacking(self, tensor: str, need: Layout, groups: NDArray[np.int64]) -> NDArray[np.float64]:
        """Per group the elements that a rank of it lacks of all that is needed, if they share that out."""
        have, of = self.everywhere.made(self.question.program, tensor), np.zeros(groups.size, dtype=np.int64)
        of[groups] = np.arange(len(groups))[:, None]
        held = np.where(lacks_parts(have, tuple(of.tolist())), 0, have.sizes[groups].sum(axis=1))
        lacking: NDArray[np.float64] = (float(need.everything.size) - held) / groups.shape[1]
        return lacking


def _wanted(need: Layout, groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """By the group that has something all elements that the busiest rank sends, or one beyond the group receives."""
    own, ranks = need.sizes[groups].sum(axis=1), np.arange(groups.size)
    sent = (need.total - own) / groups.shape[1] if need.disjoint else np.zeros(len(groups))
    received = [need.sizes[~np.isin(ranks, mine)].max(initial=0) for mine in groups]
    return np.maximum(sent, received)


class Scaled(_Split):
    """What operations would take on groups at best: as much longer as there are fewer ranks, less their starts."""

    def seconds(self, op: Operation, group: int) -> float:
        seconds = self.everywhere.strategies[op.name].slowest
        start = self.question.machine.device.start_s(self.question.mesh.size)
        return seconds if group == ALL else seconds + (self.count - 1) * max(0.0, seconds - start)


def within(question: Question, grouping: Grouping, budget: int, whole: Mapping[str, str] | None = None) -> Inner | None:
    """How a group by itself is cut: not at all where it is one rank, else as the solver says. None: it says nothing.

    ``budget``: bytes on a rank for the whole program, of which each group has a part. ``whole``: of operations that a
    batch goes through in pieces the dimension that pieces are cut along, and ranks are not.
    """
    program, mesh = question.program, grouping.inner
    if mesh.size == 1:
        layouts, sources = Layouts(mesh), program.of_role("input", "param", "state", "const")
        homes = {tensor.name: layouts.replicated(tensor.shape) for tensor in sources}
        seconds = sum(
            question.table.strategy(op, (None,) * len(question.mesh.shape)).slowest for op in program.operations
        )
        objective = round(seconds * TIE * PICO)
        return Inner(
            {op.name: () for op in program.operations}, homes, {}, Solution("optimal", {}, objective, objective)
        )
    known, key = question.apart, (mesh.shape, budget, _kind(whole))
    if key not in known:
        clock = Clock(max(0.05, question.clock.left), secured=True)
        try:
            known[key] = _asked(by_itself(question, mesh, clock, whole), budget)
        except TimeLimit:
            return None
    return known[key]


def _kind(whole: Mapping[str, str] | None) -> int:
    """What groups are asked for: as they run at once, for a batch in pieces, for one that they leave whole."""
    return 0 if whole is None else 2 if whole else 1


def by_itself(question: Question, mesh: Mesh, clock: Clock, whole: Mapping[str, str] | None = None) -> Search:
    """The program on one group by itself, written down once for all groups of that shape: axes are named by nothing
    that is asked."""
    searches = question.searches
    key = mesh.shape, _kind(whole)
    if key in searches:
        searches[key].allow(clock)
    else:
        alone = question.on(mesh, clock)
        if whole is not None:
            table = StrategyTable(question.program, mesh, alone.book.works, alone.layouts, whole)
            alone = replace(alone, table=table)
        searches[key] = searched(alone, kept=whole is not None)
    return searches[key]


def _asked(search: Search, budget: int) -> Inner | None:
    """What the solver says of it within so many bytes."""
    try:
        solution = search.asked(budget)
    except OutOfTime:
        return None
    return inner_of(search, solution) if solution.choice else None


def inner_of(search: Search, solution: Solution) -> Inner:
    """A group's choice spelled out."""
    made = decide(search.model.nodes, search.model, solution.choice)
    cuts = {name: strategy.cuts for name, strategy in made.strategies.items()}
    return Inner(cuts, made.homes, made.ends, replace(solution, choice={}))


@dataclass(frozen=True, eq=False)
class Inner:
    """What was decided for one group by itself: cuts of operations, homes of sources, ends of partial outputs; and what
    the solver says of that, its choice left out."""

    cuts: Mapping[str, Cuts]
    homes: Mapping[str, Layout]
    ends: Mapping[str, Layout]
    solution: Solution

    def same(self, other: Inner) -> bool:
        """Whether the other one, made apart from this one, decides the same."""
        mine, theirs = (
            [(name, layout.regions) for each in (inner.homes, inner.ends) for name, layout in each.items()]
            for inner in (self, other)
        )
        return self.cuts == other.cuts and mine == theirs


@dataclass(eq=False)
class GroupCosts(_Split):
    """What operations take on groups, and what it takes to move between them."""

    inner: Inner

    @cached_property
    def program(self) -> Program:
        return self.question.program

    def strategy(self, op: Operation, group: int) -> Strategy:
        if group == ALL:
            return self.everywhere.strategies[op.name]
        return self.grouping.strategy(self.question.table, op, self.inner.cuts[op.name], group)

    def seconds(self, op: Operation, group: int) -> float:
        return self.strategy(op, group).slowest

    @property
    def quickest(self) -> int:
        """The group on which all operations take least: the first, where devices are alike."""
        if not self.question.machine.others:
            return 0
        return min(range(self.count), key=lambda group: sum(self.seconds(op, group) for op in self.program.operations))

    def moving(self, tensor: str, made: int, reader: Operation, group: int) -> float:
        return self.priced(tensor, made, self.strategy(reader, group).needs[reader.operands.index(tensor)])

    def priced(self, tensor: str, made: int, need: Layout) -> float:
        """Seconds of moving a tensor that is on one group to where it is needed."""
        have = self._made(tensor, made)
        if have.satisfies(need):
            return 0.0
        return self.question.pricing.move(have, need, width_of(self.program, tensor)).seconds

    def _made(self, tensor: str, group: int) -> Layout:
        producer = self.program.producer.get(tensor)
        if producer is None:
            return self.home(self.program.tensor(tensor), [group])
        return self.strategy(producer, group).writes

    def home(self, tensor: Tensor, groups: list[int]) -> Layout:
        """Where a source lies for the operations of some groups that read it."""
        if tensor.role == "const" or not groups:
            return self.everywhere.homes[tensor.name]
        layouts, inner = self.question.layouts, self.inner.homes[tensor.name]
        if ALL in groups and tensor.role == "input":
            return self.everywhere.homes[tensor.name]
        found = self.grouping.lifted(layouts, inner, [group for group in groups if group != ALL])
        if ALL not in groups:
            return found
        both = zip(found.regions, self.everywhere.homes[tensor.name].regions, strict=True)
        return layouts.of(tensor.shape, [one | other for one, other in both])

    def decisions(self, groups: Mapping[str, int]) -> Decisions:
        """Spelled out. An input lies where it is read first, what is resident on all groups that read it."""
        strategies = {op.name: self.strategy(op, groups[op.name]) for op in self.program.operations}
        homes = {}
        for tensor in self.program.of_role("input", "param", "state", "const"):
            readers = list(dict.fromkeys(groups[op.name] for op in self.program.consumers[tensor.name]))
            homes[tensor.name] = self.home(tensor, readers[:1] if tensor.role == "input" else readers)
        ends = {}
        last = dict.fromkeys([*self.program.outputs, *(value for _, value in self.program.states)])
        for name in [name for name in last if name in self.program.producer]:
            group = groups[self.program.producer[name].name]
            if group == ALL and name in self.everywhere.ends:
                ends[name] = self.everywhere.ends[name]
            elif group != ALL and name in self.inner.ends:
                ends[name] = self.grouping.lifted(self.question.layouts, self.inner.ends[name], [group])
        return Decisions(homes, strategies, ends)
