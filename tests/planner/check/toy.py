"""A toy machine that runs int64 plans element by element, in any order that lanes and waits allow.

Every rank has one array of 8-byte cells per tier, poisoned before the run. It reads the format on its own and shares
no code with checker, planner or workers; it knows nothing of validity: whatever is in a cell is what is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapestry.expr import Call, Const, Read
from tapestry.planner.format.document import Compute, Document, Task, Transfer
from tapestry.program import Operation, Program

from .elements import Point, places, points

CELL = 8
Memory = list[dict[str, Any]]
Event = tuple[int, "int | None"]
FOLD: dict[str, Any] = {"sum": np.add, "max": np.maximum}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
}


class Broken(Exception):
    """The plan cannot be run at all: stuck, or an element without a place."""


@dataclass
class Toy:
    """A plan compiled to cell numbers. ``steps[event]`` does it to a memory, with a source of arbitrary choices."""

    document: Document
    program: Program

    def __post_init__(self) -> None:
        self.ranks = len(self.document.devices)
        self.buffers = {b.name: b for b in self.document.buffers}
        self.before = predecessors(self.document)
        self.steps = {event: self._compile(*event) for event in self.before}

    def run(self, order: list[Event], inputs: Mapping[str, Any], rng: random.Random) -> Memory:
        memory = self._fresh(inputs, rng)
        for event in order:
            self.steps[event](memory, rng)
        return memory

    def faults(self, memory: Memory, expected: Mapping[str, Any]) -> list[str]:
        """Outputs and states that are not what the reference says, on any rank that should hold them."""
        found = []
        starts = {b.tensor: b.initial for b in self.document.buffers if b.initial is not None}
        ends = [(name, buffer, self.buffers[buffer].layout) for name, buffer in self.document.outputs.items()]
        ends += [(name, buffer, starts[name] or "") for name, buffer in self.document.states.items()]
        for name, buffer, layout in ends:
            regions = self.document.layouts[layout].regions
            for rank, text in enumerate(regions):
                cells = self._cells(buffer, rank, list(points(text)))
                got = memory[rank][self.buffers[buffer].tier][cells]
                want = np.array([expected[name][point] for point in points(text)], dtype=np.int64)
                if not np.array_equal(got, want):
                    found.append(f"{name} on rank {rank}: {got.tolist()} is not {want.tolist()}")
            whole = {point for text in regions for point in points(text)}
            if len(whole) != expected[name].size:
                found.append(f"{name} has no place for all of it")
        return found

    def _fresh(self, inputs: Mapping[str, Any], rng: random.Random) -> Memory:
        sizes: dict[str, int] = {}
        for b in self.document.buffers:
            sizes[b.tier] = max(sizes.get(b.tier, 0), (b.offset + b.nbytes) // CELL)
        poison = np.random.default_rng(rng.getrandbits(32))
        memory = [
            {t: poison.integers(10**6, 10**9, n, dtype=np.int64) for t, n in sizes.items()} for _ in range(self.ranks)
        ]
        for b in self.document.buffers:
            if b.initial is not None:
                for rank, text in enumerate(self.document.layouts[b.initial].regions):
                    values = [inputs[b.tensor][point] for point in points(text)]
                    memory[rank][b.tier][self._cells(b.name, rank, list(points(text)))] = values
        return memory

    def _cells(self, buffer: str, rank: int, chosen: list[Point]) -> Any:
        b = self.buffers[buffer]
        place = places(self.document.layouts[b.layout].regions[rank])
        if any(point not in place for point in chosen):
            raise Broken(f"buffer {buffer} has no place for some of {chosen} on rank {rank}")
        if b.offset % CELL:
            raise Broken(f"buffer {buffer} is not aligned")
        return np.array([b.offset // CELL + place[point] for point in chosen], dtype=np.int64)

    def _compile(self, position: int, rank: int | None) -> Callable[[Memory, random.Random], None]:
        task = self.document.tasks[position]
        if isinstance(task, Compute):
            return self._computing(task, rank or 0)
        if isinstance(task, Transfer):
            return self._meeting(task)
        chosen = list(points(self.document.layouts[task.need].regions[rank or 0]))
        from_, to = (self._cells(name, rank or 0, chosen) for name in (task.source, task.target))
        source, target = self.buffers[task.source].tier, self.buffers[task.target].tier

        def move(memory: Memory, rng: random.Random) -> None:
            memory[rank or 0][target][to] = rng.getrandbits(40)
            memory[rank or 0][target][to] = memory[rank or 0][source][from_]

        return move

    def _computing(self, task: Compute, rank: int) -> Callable[[Memory, random.Random], None]:
        op = self.program.op_by_name[task.op]
        names = [dim.name for dim in op.dims]
        shard = [dict(zip(names, p, strict=True)) for p in points(self.document.layouts[task.shards].regions[rank])]
        touched = {tuple(row.evaluate(point) for row in op.write) for point in shard} if op.reduce_dims else set()
        shard = [point for point in shard if all(bound.holds(point) for bound in op.where)]
        given = dict(zip(op.operands, task.reads, strict=True))
        loads = {read: self._loads(read, given[read.tensor], rank, shard) for read in op.reads}
        written = [tuple(row.evaluate(point) for row in op.write) for point in shard]
        elements = sorted({*written, *touched})  # a reduction over nothing is its identity
        slot = np.array([elements.index(element) for element in written], dtype=np.int64)
        cells, tier = self._cells(task.write, rank, elements), self.buffers[task.write].tier
        prior = None if task.prior is None else (self.buffers[task.prior].tier, self._cells(task.prior, rank, elements))
        if task.over is not None and op.monoid is None:
            alone = [
                {read: self._loads(read, given[read.tensor], rank, [point]) for read in op.reads} for point in shard
            ]
            return _point_by_point(op, alone, rank, tier, cells[slot])

        def work(memory: Memory, rng: random.Random) -> None:
            if not elements:
                return
            before = None if prior is None else memory[rank][prior[0]][prior[1]].copy()
            memory[rank][tier][cells] = rng.getrandbits(40)  # a kernel may clear what it writes before it reads
            values = _value(op, loads, memory[rank], len(shard))
            result = np.zeros(len(elements), dtype=np.int64)
            if op.monoid is None:
                result[slot] = values
            else:
                result[:] = 0 if op.monoid == "sum" else np.iinfo(np.int64).min
                FOLD[op.monoid].at(result, slot, values)
                result = result if before is None else FOLD[op.monoid](before, result)
            memory[rank][tier][cells] = result

        return work

    def _loads(self, read: Read, buffer: str, rank: int, shard: list[dict[str, int]]) -> tuple[str, Any, Any, int]:
        inside = [k for k, point in enumerate(shard) if all(bound.holds(point) for bound in read.guard)]
        elements = [tuple(row.evaluate(shard[k]) for row in read.index) for k in inside]
        return (
            self.buffers[buffer].tier,
            np.array(inside, dtype=np.int64),
            self._cells(buffer, rank, elements),
            int(read.fill),
        )

    def _meeting(self, task: Transfer) -> Callable[[Memory, random.Random], None]:
        """One meeting of all ranks: what each needs is taken from any rank that has it, its own first."""
        have, need = self.document.layouts[task.have], self.document.layouts[task.need]
        ranks = participants(self.document, task)
        source, target = self.buffers[task.source].tier, self.buffers[task.target].tier
        there = {
            rank: {p: self._cells(task.source, rank, [p])[0] for p in points(have.regions[rank])} for rank in ranks
        }
        wanted = {
            rank: {p: self._cells(task.target, rank, [p])[0] for p in points(need.regions[rank])} for rank in ranks
        }
        asked = sorted({point for cells in wanted.values() for point in cells})
        holders = {point: [rank for rank in ranks if point in there[rank]] for point in asked}
        if any(not holders[point] for point in asked):
            raise Broken("nobody has what a transfer needs")

        def fold(point: Point, memory: Memory, rng: random.Random) -> int:
            chosen: dict[int, int] = {}
            for rank in rng.sample(holders[point], len(holders[point])):
                chosen.setdefault(have.parts[rank] if have.parts else 0, int(memory[rank][source][there[rank][point]]))
            values = [chosen[part] for part in sorted(chosen)]
            return int(FOLD[task.monoid].reduce(np.array(values, dtype=np.int64))) if task.monoid else values[0]

        def meet(memory: Memory, rng: random.Random) -> None:
            for rank in ranks:
                for point, cell in wanted[rank].items():
                    if not (task.source == task.target and point in there[rank]):
                        memory[rank][target][cell] = rng.getrandbits(40)  # messages may land before others leave
            folded = {point: fold(point, memory, rng) for point in asked}
            local = {
                (rank, point): memory[rank][source][there[rank][point]]
                for rank in ranks
                for point in wanted[rank]
                if have.parts is None and point in there[rank]
            }
            for rank in ranks:
                for point, cell in wanted[rank].items():
                    if not (task.source == task.target and point in there[rank]):
                        memory[rank][target][cell] = local.get((rank, point), folded[point])

        return meet


def _point_by_point(
    op: Operation, loads: list[dict[Read, tuple[str, Any, Any, int]]], rank: int, tier: str, cells: Any
) -> Callable[[Memory, random.Random], None]:
    """A task that writes over what it reads: in any order of the points, each of which reads before it writes."""

    def work(memory: Memory, rng: random.Random) -> None:
        for k in rng.sample(range(len(loads)), len(loads)):
            memory[rank][tier][cells[k]] = np.ravel(_value(op, loads[k], memory[rank], 1))[0]

    return work


def _value(op: Operation, loads: Mapping[Read, tuple[str, Any, Any, int]], memory: dict[str, Any], count: int) -> Any:
    def value(node: Any) -> Any:
        if isinstance(node, Const):
            return np.int64(node.value)
        if isinstance(node, Call):
            return FUNCTIONS[node.function](*map(value, node.args))
        tier, inside, cells, fill = loads[node]
        found = np.full(count, fill, dtype=np.int64)
        found[inside] = memory[tier][cells]
        return found

    return value(op.body)


def participants(document: Document, task: Task) -> tuple[int, ...]:
    return tuple(range(len(document.devices))) if task.ranks is None else task.ranks


def predecessors(document: Document) -> dict[Event, frozenset[Event]]:
    """Every event (a task on a rank, a transfer on all of its ranks) with the events that it has to wait for."""
    found: dict[Event, set[Event]] = {}
    for rank in range(len(document.devices)):
        lanes: dict[str, Event] = {}
        events: dict[int, Event] = {}
        for k, task in enumerate(document.tasks):
            if rank in participants(document, task):
                events[task.id] = (k, None) if isinstance(task, Transfer) else (k, rank)
        for task in document.tasks:
            if task.id in events:
                mine = found.setdefault(events[task.id], set())
                mine.update(events[wait] for wait in task.waits if wait in events)
                mine.update([lanes[task.lane]] if task.lane in lanes else [])
                lanes[task.lane] = events[task.id]
    return {event: frozenset(earlier) for event, earlier in found.items()}


def closure(before: Mapping[Event, frozenset[Event]]) -> frozenset[tuple[Event, Event]]:
    """All ordered pairs; Broken when something waits for itself."""
    known: dict[Event, frozenset[Event]] = {}
    for event in some_order(before, random.Random(0)):
        known[event] = frozenset().union(before[event], *(known[other] for other in before[event]))
    return frozenset((a, b) for b, earlier in known.items() for a in earlier)


def some_order(before: Mapping[Event, frozenset[Event]], rng: random.Random) -> list[Event]:
    """A seeded order, unfair in one of several ways: ranks, or tasks, or single events are favoured at random."""
    taste = [lambda e: e, lambda e: e[0], lambda e: e[1], lambda e: None][rng.randrange(4)]
    favour: dict[Any, float] = {}
    left = {event: len(earlier) for event, earlier in before.items()}
    after: dict[Event, list[Event]] = {event: [] for event in before}
    for event, earlier in before.items():
        for other in earlier:
            after[other].append(event)
    ready, order = [event for event, count in left.items() if not count], []
    while ready:
        ready.sort(key=lambda e: (favour.setdefault(taste(e), rng.random()), rng.random()))
        order.append(event := ready.pop())
        for other in after[event]:
            left[other] -= 1
            ready += [other] if not left[other] else []
    if len(order) != len(before):
        raise Broken(f"stuck after {len(order)} of {len(before)} events")
    return order


def all_orders(before: Mapping[Event, frozenset[Event]], limit: int) -> list[list[Event]] | None:
    """Every order, or None when there are more than ``limit``."""
    found: list[list[Event]] = []

    def extend(done: list[Event], left: set[Event]) -> Iterator[list[Event]]:
        if not left:
            yield list(done)
        for event in sorted(left, key=str):
            if not before[event] & left:
                yield from extend([*done, event], left - {event})

    for order in extend([], set(before)):
        found.append(order)
        if len(found) > limit:
            return None
    return found


def orders(before: Mapping[Event, frozenset[Event]], seeds: int = 200) -> list[list[Event]]:
    """All orders when there are at most ``seeds``, else that many seeded adversarial ones."""
    some_order(before, random.Random(0))
    found = all_orders(before, seeds)
    return found if found is not None else [some_order(before, random.Random(seed)) for seed in range(seeds)]
