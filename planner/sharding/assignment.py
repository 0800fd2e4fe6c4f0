"""The planner's model as an assignment problem for `planner.solvers.assign`, and its answer read back.

A representative node becomes a node, its options strategies. A tensor becomes a supply: its home is the source, the
layouts that consumers need are the items, and an item that a larger needed layout contains need not be moved. Memory is
a limited resource over the operations at which it is counted. The larger of A + B and B + C is the peak of a resource
of two instants, counted in halves, whose price is half of what T weighs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from ..clock import Clock
from ..solvers import assign
from ..solvers.assign import AssignmentProblem, ProblemBuilder, Supply, SupplyUse
from ..solvers.assign.places import Places, places_of
from ..strategy.layouts import relate
from ..strategy.rooms import Room
from .model import TIE, Costs, Flow, Model
from .nodes import SinkNode
from .priced import Priced

Ints = NDArray[np.int64]

UNLIMITED = assign.FORBIDDEN
# Pairs of layouts, of which none is priced before it may matter; where paths are looked for by pair.
MANY, MANY_BY_PAIR = 60_000, 2000
WRITING = 0.65  # share of the time after which a model is not written down further
_MEMORY = 0  # the first resource of every problem
_LARGEST = 2**57  # costs are counted in picoseconds, or in so many of them that all together stay below this


@dataclass(frozen=True, eq=False)
class Moved:
    """Flows that cost the same, as one supply to the readers numbered ``group``: a need per item, [home option, item]
    by room what moving it takes.

    ``priced``: what it costs, of the layouts numbered ``at`` by home option and ``asked`` by item. ``serves[i, j]``:
    whether the j-th of the group may use a copy made for item i.
    """

    flows: list[Flow]
    group: list[int]
    asks: tuple[Ints, ...]
    within: NDArray[np.bool_]
    priced: Priced
    at: Ints
    asked: Ints
    stored: list[Ints]
    serves: NDArray[np.bool_]

    @property
    def prices(self) -> Ints:
        """[home option, item]"""
        found: Ints = self.priced.prices[np.ix_(self.at, self.asked)]
        return found


class _Tables(NamedTuple):
    """Of all layouts that are asked for of a tensor: ``within[i, j]`` the i-th lies within the j-th, what moving it
    costs, by home option which layout that is, and by room [home option, layout] what a copy takes."""

    within: NDArray[np.bool_]
    priced: Priced
    at: Ints
    stored: list[Ints]


@dataclass(frozen=True, eq=False)
class _Exchanged:
    """Tensors of node ``new`` in the place of those of ``old``: [old option, layout] bytes, none where both are alike.

    ``asks``: the layout that each option of ``new`` leaves. ``intervals``: the counted instants of all of them.
    """

    old: int
    new: int
    asks: Ints
    stored: Ints
    intervals: tuple[tuple[int, int], ...]


class OutOfTime(Exception):
    """The time was up before the model was written down."""


class Translation:
    """A model written down once, as problems under different views of overlap and budgets. Raises OutOfTime.

    ``lazy``: more than ``many`` pairs of layouts have a price, and none that takes time to find is asked for before it
    may matter (`narrow`).
    """

    def __init__(self, model: Model, clock: Clock, many: int | None = None) -> None:
        self.model, self.clock = model, clock
        self.decided = sorted(set(model.tied_to))
        self.number = {node: k for k, node in enumerate(self.decided)}
        self.rooms: tuple[Room | None, ...] = model.rooms or (None,)
        self.spare = max((room.spare for room in model.rooms), default=0)
        self.work = {node: self._work(node) for node in self.decided}
        alike = model.alike()
        by_pair = model.traffic.by_pair
        most = many if many is not None else MANY_BY_PAIR if by_pair else MANY
        several = sum(_pairs(model, flows[0]) for flows in alike) > most
        self.lazy = model.objective == "time" and several and (model.traffic.near or by_pair)
        self.moved = [moved for flows in alike for moved in self._moved(flows)]
        self._least: tuple[int, Costs] | None = None  # with how many prices were known then

    @cached_property
    def held(self) -> list[dict[tuple[int, int, int], Ints]]:
        """By room the bytes of what lies there."""
        return [self._held(room) for room in self.rooms]

    @cached_property
    def exchanged(self) -> list[list[_Exchanged]]:
        """By room the tensors that take another's place."""
        return [self._exchanged(room) for room in self.rooms]

    @property
    def unit(self) -> int:
        """Picoseconds in which costs are counted."""
        if self.model.objective == "bytes":
            return 1
        most = sum(int(work.max()) for work in self.work.values())
        most += sum(int(m.prices.max(initial=0)) * len(m.asks) * len(m.flows) for m in self.moved)
        return 1 + 2 * (TIE + 1) * most // _LARGEST

    @cached_property
    def costs(self) -> Costs:
        """What choices cost by the model."""
        return Costs(self.model)

    @property
    def least_costs(self) -> Costs:
        """What they cost at least, by the prices that are known so far."""
        known = sum(int(moved.priced.known.sum()) for moved in self.moved)
        if self._least is None or self._least[0] != known:
            priced = {id(flow): moved.priced for moved in self.moved for flow in moved.flows}
            self._least = known, Costs(self.model, lambda flow, have, need: priced[id(flow)].least(have, need))
        return self._least[1]

    def _work(self, node: int) -> Ints:
        """Per option, of the node and all that are tied to it."""
        options = range(len(self.model.nodes[node].labels))
        times = self.model.weight[node]
        return np.array([times * self.model.work(node, k) for k in options], dtype=np.int64)

    def _moved(self, flows: list[Flow]) -> list[Moved]:
        """Readers none of whose needs lies within another's share no copy: a supply each."""
        model, flow = self.model, flows[0]
        options = [range(len(model.nodes[node].labels)) for node, _ in flow.readers]
        needs = [[model.need(reader, k) for k in mine] for reader, mine in zip(flow.readers, options, strict=True)]
        homes = model.homes(flow)
        asked = {need: i for i, need in enumerate(dict.fromkeys(need for mine in needs for need in mine))}
        asks = [np.array([asked[need] for need in mine], dtype=np.int64) for mine in needs]
        within = relate(list(asked), list(asked)).inside.astype(bool)
        different = {home: i for i, home in enumerate(dict.fromkeys(homes))}
        priced = Priced(model, list(different), list(asked), flow.width, lazy=self.lazy)
        at = np.array([different[home] for home in homes], dtype=np.int64)
        taken = [np.array([model.stored(n, flow.width, room) for n in asked], dtype=np.int64) for room in self.rooms]
        stored = [np.where(priced.free, 0, mine)[at] for mine in taken]
        tables = _Tables(within, priced, at, stored)
        return [self._together(flows, group, asks, tables) for group in _sharing(asks, within)]

    def _together(self, flows: list[Flow], group: list[int], asks: Sequence[Ints], tables: _Tables) -> Moved:
        if self.clock.spent(WRITING):
            raise OutOfTime
        asked = list(dict.fromkeys(i for j in group for i in asks[j].tolist()))
        number = np.zeros(len(tables.within), dtype=np.int64)
        number[asked] = np.arange(len(asked))
        serves = [tables.within[asks[j]][:, asked].any(axis=0) for j in group]
        return Moved(
            flows,
            group,
            tuple(number[asks[j]] for j in group),
            _strictly(tables.within[np.ix_(asked, asked)]),
            tables.priced,
            tables.at,
            np.array(asked, dtype=np.int64),
            [stored[:, asked] for stored in tables.stored],
            np.array(serves, dtype=bool).T,
        )

    def _held(self, room: Room | None) -> dict[tuple[int, int, int], Ints]:
        """(node, start, stop) -> bytes per option of the tensors that lie there, over the instants that are counted.

        While one may lie in another's place it is left to `_exchanged`.
        """
        held: dict[tuple[int, int, int], Ints] = {}
        for flow in self.model.flows:
            under = self.model.over.get(flow.tensor)
            alone = flow.first if under is None else max(flow.first, under.last + 1)
            homes = self.model.homes(flow)
            left = [self.model.left(flow, home) for home in homes]
            for first, last in pairwise((alone - 1, *sorted({*left}))):
                start, stop = self._counted(first + 1, last)
                if start < stop:
                    stays = zip(homes, left, strict=True)
                    stored = [
                        self.model.stored(home, flow.width, room) if last <= until else 0 for home, until in stays
                    ]
                    key = (self.number[flow.home], start, stop)
                    held[key] = held.get(key, 0) + np.array(stored, dtype=np.int64)
        for node in self.decided:
            options = range(len(self.model.nodes[node].labels))
            taken = np.array([self.model.workspace(node, k) for k in options], dtype=np.int64)
            if taken.any():
                start, stop = self._counted(*self._at(node))
                key = (self.number[node], start, stop)
                held[key] = held.get(key, 0) + taken
        return held

    def _at(self, node: int) -> tuple[int, int]:
        """The instant of an operation, twice."""
        name = self.model.nodes[node].name
        at = next(k for k, op in enumerate(self.model.program.operations) if op.name == name)
        return at, at

    def _exchanged(self, room: Room | None) -> list[_Exchanged]:
        """Tensors that take another's place under some options: those of tied nodes together."""
        spans: dict[tuple[int, int, Width], list[tuple[int, int]]] = {}
        for flow in self.model.flows:
            under = self.model.over.get(flow.tensor)
            if under is not None:
                start, stop = self._counted(flow.first, min(flow.last, under.last))
                spans.setdefault((under.home, flow.home, flow.width), []).extend(
                    [(start, stop)] if start < stop else []
                )
        return [self._exchange(*key, tuple(intervals), room) for key, intervals in spans.items() if intervals]

    def _exchange(
        self, old: int, new: int, width: Width, intervals: tuple[tuple[int, int], ...], room: Room | None
    ) -> _Exchanged:
        nodes = self.model.nodes[old], self.model.nodes[new]
        assert not isinstance(nodes[0], SinkNode)
        assert not isinstance(nodes[1], SinkNode)
        items = {layout: i for i, layout in enumerate(dict.fromkeys(nodes[1].homes))}
        sizes = {item: self.model.stored(item, width, room) for item in items}
        stored = [[0 if home is item else sizes[item] for item in items] for home in nodes[0].homes]
        asks = np.array([items[layout] for layout in nodes[1].homes], dtype=np.int64)
        return _Exchanged(self.number[old], self.number[new], asks, np.array(stored, dtype=np.int64), intervals)

    def _counted(self, first: int, last: int) -> tuple[int, int]:
        """The numbers [start, stop) of the counted instants within first..last."""
        return bisect_left(self.model.instants, first), bisect_right(self.model.instants, last)

    def allowed(self, without: Collection[tuple[int, int]]) -> list[list[int]]:
        """Of every decision its options but for those of ``without``, nodes with options that they may not take."""
        counts = ((node, len(self.model.nodes[node].labels)) for node in self.decided)
        return [[k for k in range(count) if (node, k) not in without] for node, count in counts]

    def problem(self, capacity: int, exposed: int = 2) -> AssignmentProblem:
        """The model within so many bytes on a rank; ``exposed`` halves of the transfers of values add to compute."""
        builder = ProblemBuilder()
        builder.add_resource(capacity + self.spare, "memory")
        timed, unit = self.model.objective == "time", self.unit
        spans = [builder.add_resource(UNLIMITED, "span", price=TIE // 2)] if timed else []
        for node in self.decided:
            work = self.work[node] // unit
            number = builder.add_node(work, self.model.nodes[node].name)
            for span in spans if work.any() else ():
                builder.use(number, span, 0, 1, 2 * work)
        self._hold(builder)
        for one, other, allowed in self.model.together if timed else ():
            builder.add_edge(self.number[one], self.number[other], np.zeros(allowed.shape, np.int64), ~allowed)
        for moved, copies in zip(self.moved, self._copies, strict=True):
            uses = [*copies]
            prices = len(moved.flows) * moved.prices // unit
            for span in spans if prices.any() else ():
                before = 0 if moved.flows[0].source else exposed
                uses.append(SupplyUse(span, ((0, 1),), before * prices))
                uses.append(SupplyUse(span, ((1, 2),), 2 * prices))
            builder.add_supply(self.supply(moved, prices, uses))
        return builder.build()

    def lean_problem(self) -> AssignmentProblem:
        """Nothing costs anything but the peak of memory, of which there is enough."""
        builder = ProblemBuilder()
        builder.add_resource(UNLIMITED, "memory", price=1)
        for node in self.decided:
            builder.add_node(0 * self.work[node], self.model.nodes[node].name)
        self._hold(builder)
        for moved, copies in zip(self.moved, self._copies, strict=True):
            builder.add_supply(self.supply(moved, 0 * moved.prices, copies))
        return builder.build()

    def _hold(self, builder: ProblemBuilder) -> None:
        """What lies there. The instants of one room follow those of another; what a room has less than the roomiest is
        taken in it from the start, so that one limit does for all.
        """
        for shift, room, held, exchanged in zip(self._shifts, self.rooms, self.held, self.exchanged, strict=True):
            for (node, start, stop), stored in held.items():
                builder.use(node, _MEMORY, start + shift, stop + shift, stored)
            for each in exchanged:
                count = each.stored.shape[1]
                intervals = tuple((start + shift, stop + shift) for start, stop in each.intervals)
                use = SupplyUse(_MEMORY, intervals, each.stored)
                free = np.zeros((count, count), dtype=bool)
                builder.add_supply(Supply(each.old, (each.new,), (each.asks,), free, 0 * each.stored, (use,)))
            less = self.spare - (0 if room is None else room.spare)
            if less and self.decided:
                everywhere = np.full(len(self.work[self.decided[0]]), less, dtype=np.int64)
                builder.use(0, _MEMORY, shift, shift + len(self.model.instants), everywhere)

    @property
    def _shifts(self) -> list[int]:
        """By room the number of its first instant."""
        return [k * (len(self.model.instants) + 1) for k in range(len(self.rooms))]

    def supply(self, moved: Moved, prices: Ints, uses: Sequence[SupplyUse] = ()) -> Supply:
        """Flows that cost the same, at such prices."""
        flow = moved.flows[0]
        readers = tuple(self.number[flow.readers[j][0]] for j in moved.group)
        return Supply(self.number[flow.home], readers, moved.asks, moved.within, prices, tuple(uses))

    @cached_property
    def _copies(self) -> list[list[SupplyUse]]:
        """The memory of moved copies: the same in all problems."""
        return [self._copied(moved) for moved in self.moved]

    def _copied(self, moved: Moved) -> list[SupplyUse]:
        """Each from the first to the last consumer that may use it."""
        of_readers: dict[tuple[bool, ...], list[int]] = {}
        for item, serves in enumerate(moved.serves.tolist()):
            of_readers.setdefault(tuple(serves), []).append(item)
        of_lifetime: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for readers, items in of_readers.items():
            served = [j for j, serves in zip(moved.group, readers, strict=True) if serves]
            at = ([flow.reader_at[j] for j in served] for flow in moved.flows)
            spans = (self._counted(*self.model.copied(flow, mine)) for flow, mine in zip(moved.flows, at, strict=True))
            alive = tuple((start, stop) for start, stop in spans if start < stop)
            of_lifetime.setdefault(alive, []).extend(items)
        uses = []
        for (shift, stored), (intervals, items) in product(
            zip(self._shifts, moved.stored, strict=True), of_lifetime.items()
        ):
            amounts = np.zeros_like(stored)
            amounts[:, items] = stored[:, items]
            if intervals and amounts.any():
                uses.append(SupplyUse(_MEMORY, tuple((a + shift, b + shift) for a, b in intervals), amounts))
        return uses

    def taken(self, choice: Mapping[int, int]) -> int:
        """The bytes that a choice takes on a rank at most, by the model; on one that has spare bytes so many less."""
        profile = self._places.profile([choice[node] for node in self.decided])
        return int(profile.max(initial=0)) - self.spare

    @cached_property
    def _places(self) -> Places:
        """Where the peak of memory may be."""
        return places_of(self.lean_problem())

    def choice(self, options: Sequence[int]) -> dict[int, int]:
        """Option per representative node; none where there are no options."""
        return dict(zip(self.decided, options, strict=True)) if options else {}


def _pairs(model: Model, flow: Flow) -> int:
    """How many pairs of layouts a tensor may lie in and be asked for in."""
    needs = {model.need(reader, k) for reader in flow.readers for k in range(len(model.nodes[reader[0]].labels))}
    return len(set(model.homes(flow))) * len(needs)


def _sharing(asks: Sequence[Ints], within: NDArray[np.bool_]) -> list[list[int]]:
    """Groups of readers, by number: two are in one where some need of the one lies within some need of the other."""
    groups: list[list[int]] = []
    for j, mine in enumerate(asks):
        nested: NDArray[np.bool_] = np.logical_or(within[mine].any(axis=0), within[:, mine].any(axis=1))
        near = [group for group in groups if any(nested[asks[k]].any() for k in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(k for group in near for k in group), j])
    return [sorted(group) for group in groups]


def _strictly(within: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which needed layout lies within which other one; of two that are equal the later within the earlier."""
    matrix = np.array(within)
    np.fill_diagonal(matrix, val=False)
    later = np.triu(np.ones(matrix.shape, dtype=bool))
    strict: NDArray[np.bool_] = matrix & ~(matrix.T & later)
    return strict
