"""The order of operations by list scheduling: what waits for a transfer lets others go first.

Ranks that compute the same operations have one compute lane and one lane of transfers together: one for all ranks where
no operation leaves a rank idle. Among the tasks whose producers are scheduled, the one that can start first goes next;
on a tie that of the first piece, then the one after which most is to be transferred, then the one that is soonest
followed by a transfer, then the one with the longest way to the end. So pieces of a batch go through one after another,
each as far as it gets: a group of ranks that has passed one on takes the next. And what is sent is made before what is
not: a lane of compute takes as long in any order, and transfers under it are hidden (Jackson's rule for jobs that are
delivered by others: those that take longest first; and of those that take as long Johnson's for two machines: what is
made soonest first, so that the second machine begins early).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

from ...program import Program
from ...records import width_of
from ...space import Region
from ..sharding.model import maximal
from ..strategy.layouts import Layout, Layouts
from ..strategy.traffic import Traffic
from .decisions import Decisions, Listing, Unit, units_of
from .sides import told_apart

Moved = list[tuple[Layout, float]]
"""The layouts that something is moved to, with seconds, or with when it is there."""


@dataclass(eq=False)
class _Lanes:
    """When each lane is free, by class of ranks, and when each layout of what each task made is there."""

    compute: list[float]
    comm: list[float]
    made: dict[int, float] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    waiting: list[_Transfer] = field(default_factory=list)

    def start(self, transfer: _Transfer) -> float:
        """When it can start."""
        return max(self.made[transfer.writer], *(self.comm[side] for side in transfer.sides))


@dataclass(frozen=True, eq=False)
class _Transfer:
    """What a task leaves, to be moved to a layout on the lanes of some classes of ranks."""

    writer: int
    need: Layout
    seconds: float
    sides: list[int]


class _Ready:
    """Tasks whose operands are all made, and which of them can start first.

    Tasks on the same classes of ranks are free at the same time, which only moves on: so each is once among those whose
    operands are not there yet, in the order in which they will be, and then among the others, in order of ``rank``.
    """

    def __init__(self, on: Sequence[Sequence[int]], rank: Sequence[int]) -> None:
        self.on, self.rank = [tuple(sides) for sides in on], rank
        self.task = {place: k for k, place in enumerate(rank)}
        self.left: set[int] = set()
        self.timed: set[int] = set()  # those of which it is known when they are there
        self.now: dict[tuple[int, ...], list[int]] = {sides: [] for sides in self.on}
        self.later: dict[tuple[int, ...], list[tuple[float, int]]] = {sides: [] for sides in self.on}

    def put(self, k: int, at: float) -> None:
        """``at``: when its operands are there; infinite while it is not known when they are moved."""
        self.left.add(k)
        if at < inf and k not in self.timed:
            self.timed.add(k)
            heappush(self.later[self.on[k]], (at, self.rank[k]))

    def first(self, compute: Sequence[float]) -> tuple[float, int]:
        """When the first one starts, and which: of those that start together the first by rank."""
        found = []
        for sides, later in self.later.items():
            free, now = max(compute[side] for side in sides), self.now[sides]
            while later and later[0][0] <= free:
                heappush(now, heappop(later)[1])
            found += [(free, now[0])] if now else later[:1]
        start, place = min(found, default=(inf, -1))
        return start, self.task.get(place, -1)

    def take(self, k: int) -> None:
        """Leave out the first one."""
        self.left.remove(k)
        if now := self.now[self.on[k]]:
            heappop(now)
        else:
            heappop(self.later[self.on[k]])


class _Lister:
    """Tasks are numbered in program order; inputs, which are there before the run, have numbers below zero."""

    def __init__(self, program: Program, decisions: Decisions, traffic: Traffic, layouts: Layouts) -> None:
        self.program, self.decisions, self.traffic, self.layouts = program, decisions, traffic, layouts
        self.units = units_of(program, decisions)
        self.by_op: dict[str, list[int]] = {}
        for k, unit in enumerate(self.units):
            self.by_op.setdefault(unit.op.name, []).append(k)
        self.inputs = {-1 - k: tensor.name for k, tensor in enumerate(program.of_role("input"))}
        self.writers = {name: [k] for k, name in self.inputs.items()}
        self.writers |= {op.output: self.by_op[op.name] for op in program.operations}
        self._parts: dict[tuple[Layout, Layout], Layout] = {}
        self._met: dict[tuple[Region, Region], bool] = {}
        self.readers = {k: self._readers(k) for k in (*self.inputs, *range(len(self.units)))}
        self.moves = {k: self._moves(k) for k in (*self.inputs, *range(len(self.units)))}
        self.moved, self.level, self.lead = self._after()
        size = len(self.units[0].strategy.shards) if self.units else 1
        self.sides = told_apart((unit.strategy.ranks for unit in self.units), size)

    def _on(self, *ranks: tuple[int, ...] | None) -> list[int]:
        """The numbers of the classes that some of these sets of ranks (None: all) reach."""
        everyone = any(some is None for some in ranks)
        some = {rank for few in ranks if few is not None for rank in few}
        return [k for k, members in enumerate(self.sides) if everyone or not members.isdisjoint(some)]

    def _tensor(self, writer: int) -> str:
        return self.inputs[writer] if writer < 0 else self.units[writer].op.output

    def _left(self, writer: int) -> Layout:
        """What a task leaves."""
        return self.decisions.homes[self.inputs[writer]] if writer < 0 else self.units[writer].strategy.writes

    def _readers(self, writer: int) -> list[int]:
        """The tasks that read something of what another one leaves."""
        tensor, there = self._tensor(writer), self._left(writer).everything
        readers = [k for op in self.program.consumers[tensor] for k in self.by_op[op.name]]
        if len(self.writers[tensor]) == 1:
            return readers
        return [k for k in readers if self._meet(self._need(k, tensor).everything, there)]

    def _meet(self, one: Region, other: Region) -> bool:
        if (one, other) not in self._met:
            self._met[one, other] = one.meet_size(other) > 0
        return self._met[one, other]

    def _need(self, reader: int, tensor: str) -> Layout:
        unit = self.units[reader]
        return unit.strategy.needs[unit.op.operands.index(tensor)]

    def _piece(self, reader: int) -> int:
        """The number of the piece; beyond all others where an operation is computed at once."""
        unit = self.units[reader]
        return unit.piece if len(self.by_op[unit.op.name]) > 1 else len(self.units)

    def _part(self, need: Layout, writer: int) -> Layout:
        """What of a needed layout a task leaves, all of it where one task makes the tensor."""
        if len(self.writers[self._tensor(writer)]) == 1:
            return need
        key = need, self._left(writer)
        if key not in self._parts:
            there = key[1].everything
            self._parts[key] = self.layouts.of(need.shape, [region & there for region in need.regions])
        return self._parts[key]

    def _moves(self, writer: int) -> Moved:
        """The layouts that what a task leaves is moved to, with seconds."""
        tensor, have = self._tensor(writer), self._left(writer)
        whole, width = self.decisions.made(self.program, tensor), width_of(self.program, tensor)
        needs = dict.fromkeys(self._need(k, tensor) for k in self.readers[writer])
        parts = [self._part(need, writer) for need in needs if not whole.satisfies(need)]
        return [(need, self.traffic.move(have, need, width).seconds) for need in maximal(parts)]

    def _after(self) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
        """Seconds from the start of each task to the end of the program: of transfers alone, and of all that there is,
        each along its longest way; and to the first transfer of the longest way of transfers, of compute alone.
        """
        moved: dict[int, float] = {}
        level: dict[int, float] = {}
        lead: dict[int, float] = {}
        for k in reversed(range(len(self.units))):
            readers, own = self.readers[k], max((seconds for _, seconds in self.moves[k]), default=0.0)
            furthest = max((moved[reader] for reader in readers), default=0.0)
            moved[k] = own + furthest
            level[k] = self.units[k].strategy.slowest + own + max((level[reader] for reader in readers), default=0.0)
            until = min((lead[reader] for reader in readers if moved[reader] == furthest), default=0.0)
            lead[k] = self.units[k].strategy.slowest + (0.0 if own else until)
        return moved, level, lead

    def order(self) -> Listing:
        lanes = _Lanes([0.0] * len(self.sides), [0.0] * len(self.sides))
        on = [self._on(unit.strategy.ranks) for unit in self.units]
        for number in self.inputs:
            self._produce(number, 0.0, lanes)
        before: list[list[tuple[str, int]]] = [[] for _ in self.units]
        for writer, readers in self.readers.items():
            for reader in readers:
                before[reader].append((self._tensor(writer), writer))
        waiting = [sum(writer >= 0 for _, writer in writers) for writers in before]
        ready = _Ready(on, self._ranks())
        for k, count in enumerate(waiting):
            if not count:
                ready.put(k, self._available(k, before[k], lanes))
        found: list[int] = []
        sent: dict[tuple[str, int], list[tuple[Layout, int]]] = {}
        place = dict.fromkeys(self.inputs, -1)
        latest = [0] * len(self.sides)  # by class of ranks where the last of its transfers is
        while ready.left:
            start, chosen = ready.first(lanes.compute)
            if (transfer := self._next(lanes)) is not None and lanes.start(transfer) <= start:
                self._move(transfer, lanes)
                made = self._tensor(transfer.writer), place[transfer.writer]
                at = max(made[1] + 1, *(latest[side] for side in transfer.sides))
                for side in transfer.sides:
                    latest[side] = at
                sent.setdefault(made, []).append((transfer.need, at))
                readers = [reader for reader in self.readers[transfer.writer] if reader in ready.left]
            else:
                ready.take(chosen)
                place[chosen] = len(found)
                found.append(chosen)
                end = start + self.units[chosen].strategy.slowest
                for side in on[chosen]:
                    lanes.compute[side] = end
                self._produce(chosen, end, lanes)
                readers = self.readers[chosen]
                for reader in readers:
                    waiting[reader] -= sum(writer == chosen for _, writer in before[reader])
            for k in readers:
                if not waiting[k]:
                    ready.put(k, self._available(k, before[k], lanes))
        while (transfer := self._next(lanes)) is not None:
            self._move(transfer, lanes)
        return Listing(tuple(self.units[k] for k in found), max([*lanes.compute, *lanes.comm]), sent)

    def _ranks(self) -> list[int]:
        """By task which of those that can start together goes first."""
        found = [0] * len(self.units)
        first = sorted(range(len(found)), key=self._before)
        for place, k in enumerate(first):
            found[k] = place
        return found

    def _before(self, k: int) -> tuple[float, ...]:
        lead = self.lead[k] if self.moved[k] else 0.0
        return self._piece(k), -self.moved[k], lead, -self.level[k], k

    def _next(self, lanes: _Lanes) -> _Transfer | None:
        """The transfer that can start first, on a tie that of the first piece."""
        return min(lanes.waiting, key=lambda each: (lanes.start(each), self._order(each.writer)), default=None)

    def _order(self, writer: int) -> tuple[int, int]:
        return (-1 if writer < 0 else self._piece(writer), writer)

    def _produce(self, writer: int, at: float, lanes: _Lanes) -> None:
        """What is moved takes its turn on the lanes at once where all ranks have the same ones. Where they do not, a
        lane would wait for another with what that one is not free for, so that transfers have turns like tasks.
        """
        lanes.made[writer] = at
        lanes.moved[writer] = []
        for need, seconds in self.moves[writer]:
            transfer = _Transfer(writer, need, seconds, self._on(self._left(writer).ranks, need.ranks))
            lanes.waiting.append(transfer)
            if len(self.sides) == 1:
                self._move(transfer, lanes)

    def _move(self, transfer: _Transfer, lanes: _Lanes) -> None:
        end = lanes.start(transfer) + transfer.seconds
        for side in transfer.sides:
            lanes.comm[side] = end
        lanes.waiting.remove(transfer)
        lanes.moved[transfer.writer].append((transfer.need, end))

    def _available(self, reader: int, writers: Sequence[tuple[str, int]], lanes: _Lanes) -> float:
        """When all operands are there; resident ones always are (they are gathered ahead)."""
        latest = 0.0
        for name, writer in writers:
            need = self._need(reader, name)
            end = lanes.made[writer]
            if not self.decisions.made(self.program, name).satisfies(need):
                part = self._part(need, writer)
                if any(each.writer == writer and part.within(each.need) for each in lanes.waiting):
                    return inf
                end = next((at for layout, at in lanes.moved[writer] if part.within(layout)), end)
            latest = max(latest, end)
        return latest


def listed(program: Program, decisions: Decisions, traffic: Traffic, layouts: Layouts) -> Listing:
    """The tasks that compute, in list-scheduled order."""
    return _Lister(program, decisions, traffic, layouts).order()


def in_order_of(program: Program, units: Sequence[Unit]) -> Program:
    """The same program with its operations in the order of their first tasks."""
    return replace(program, operations=tuple(dict.fromkeys(unit.op for unit in units)))
