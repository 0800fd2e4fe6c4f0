"""Lanes as streams: each in order, the waits of the plan as events between them; from some time on as one graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...planner.format import Transfer
from ..device import Bound, Replay, Runner
from ..faults import Deadlock
from ..lanes import event_of
from ..result import Event
from .moments import APART_S, noted, spans

if TYPE_CHECKING:
    from .cuda import CudaMachine


# Of streams on which ranks meet: their blocks begin before those of what is computed beside. CUDA knows none before it.
FIRST = -5


@dataclass(frozen=True)
class Asked:
    """A task on its stream: the moments before and after it, and what those of other streams wait for."""

    bound: Bound
    lane: str
    start: Any
    end: Any
    done: Any


class Lanes(Replay):
    """Tasks as they are asked for, lane beside lane, or all on one stream as they are given.

    Kept as a graph they are captured from those very streams, which fork from the machine's main stream and join it
    again. Moments in a graph are nodes of their own, beside what comes next, and not of every task (`moments`): before
    and after a task they cost it 7 us (H200, 2026-11-22).
    """

    def __init__(self, machine: CudaMachine, tasks: Sequence[Bound], *, side_by_side: bool) -> None:
        self.machine, cuda = machine, machine.cupy.cuda
        self.side_by_side = side_by_side
        self.tasks = [
            Asked(
                bound, bound.task.lane if side_by_side else "",
                cuda.Event(), cuda.Event(), cuda.Event(disable_timing=True),
            )
            for bound in (issued(tasks) if side_by_side else tasks)
        ]  # fmt: skip
        lanes = sorted({one.lane for one in self.tasks})
        first = {one.lane for one in self.tasks if isinstance(one.bound.task, Transfer)}
        self.streams, self.beside = (
            {lane: cuda.Stream(non_blocking=True, priority=FIRST if lane in first else 0) for lane in lanes}
            for _ in range(2)
        )
        self.by_id = {one.bound.task.id: one for one in self.tasks} if side_by_side else {}
        self.placed = [(one.bound.task, one.lane) for one in self.tasks]
        self.took = [APART_S] * len(self.tasks)
        self.noted: list[bool] = []
        self.begun = cuda.Event()
        self.graph: Runner | None = None
        self.timed = True

    def __call__(self, began: float) -> list[Event]:
        if self.graph is not None and not self.timed:
            self.graph()
            return []
        self.machine.synchronise()
        origin = self.machine.cupy.cuda.Event()
        origin.record(self.machine.main)
        origin.synchronize()
        offset = perf_counter() - began
        if self.graph is None:
            self._ask_all()
        else:
            self.graph()
        self.machine.synchronise()
        return self._events(origin, offset)

    def keep(self, *, timed: bool) -> bool:
        """As one CUDA graph, of as many tasks as there are."""
        if not self.tasks:
            return True
        self.noted = noted(self.placed, self.took)
        self.graph, self.timed = self.machine.captured(lambda: self._forked(timed)), timed
        return True

    def _ask_all(self) -> None:
        for one in self.tasks:
            stream = self.streams[one.lane]
            self._wait(one)
            one.start.record(stream)
            self._ask(one)
            one.end.record(stream)
            one.done.record(stream)

    def _forked(self, timed: bool) -> None:
        """All lanes, between what the main stream was asked for before and after."""
        main, event = self.machine.main, self.machine.cupy.cuda.Event
        streams = [*self.streams.values(), *(self.beside.values() if timed else ())]
        forked = event(disable_timing=True)
        forked.record(main)
        for stream in streams:
            stream.wait_event(forked)
        if timed:
            self.machine.record_in_graph(self.begun, streams[-1])
        for one, note in zip(self.tasks, self.noted, strict=True):
            self._wait(one)
            self._ask(one)
            one.done.record(self.streams[one.lane])
            if timed and note:
                self.beside[one.lane].wait_event(one.done)
                self.machine.record_in_graph(one.end, self.beside[one.lane])
        for stream in streams:
            joined = event(disable_timing=True)
            joined.record(stream)
            main.wait_event(joined)

    def _wait(self, one: Asked) -> None:
        for wait in one.bound.task.waits:
            if wait in self.by_id and self.by_id[wait].lane != one.lane:
                self.streams[one.lane].wait_event(self.by_id[wait].done)

    def _ask(self, one: Asked) -> None:
        with one.bound.place, self._current(self.streams[one.lane]):
            one.bound.run()

    def _events(self, origin: Any, offset: float) -> list[Event]:
        """What ran when, the moments found from that of the origin on."""

        def at(moment: Any) -> float:
            return offset + float(self.machine.cupy.cuda.get_elapsed_time(origin, moment)) / 1e3

        if self.graph is None:
            found = [(at(one.start), at(one.end)) for one in self.tasks]
            self.took = [end - start for start, end in found]
        else:
            ends = {k: at(one.end) for k, (one, note) in enumerate(zip(self.tasks, self.noted, strict=True)) if note}
            found = spans(self.placed, self.took, ends, at(self.begun))
        return [event_of(one.bound, *span) for one, span in zip(self.tasks, found, strict=True)]

    @contextmanager
    def _current(self, stream: Any) -> Iterator[None]:
        before, self.machine.stream = self.machine.stream, stream.ptr
        try:
            yield
        finally:
            self.machine.stream = before


def issued(tasks: Sequence[Bound]) -> list[Bound]:
    """The tasks in an order in which each comes after what it waits for, and after the one before it on its lane.

    The first that may come in the plan's order comes first, so that ranks ask for what joins them in the same order,
    but for transfers, which come right behind the last task that they wait for, as they run. The driver puts the parts
    of a graph into few queues, and what stands in one behind others waits for them: transfers that were asked for
    behind the products of a whole step began when these were done, 14 ms later than they could (H200, 2026-11-27).
    Raises Deadlock.
    """
    places = {bound.task.id: place for place, bound in enumerate(tasks)}
    known = set(places)
    lanes: dict[str, deque[tuple[int, Bound]]] = {}
    for place, bound in enumerate(tasks):
        lanes.setdefault(bound.task.lane, deque()).append((place, bound))
    found, done = list[Bound](), set[int]()
    while any(lanes.values()):
        heads = [lane[0] for lane in lanes.values() if lane]
        able = [(place, bound) for place, bound in heads if known.intersection(bound.task.waits) <= done]
        if not able:
            left = [bound.task for _, bound in sorted((e for lane in lanes.values() for e in lane), key=lambda e: e[0])]
            waits = {
                f"task {task.id}": f"waits for {sorted(known.intersection(task.waits) - done)}" for task in left[:8]
            }
            raise Deadlock(f"no task can start and {len(left)} have not run", sides=waits)
        _, ready = min(able, key=lambda each: _turn(each[0], each[1], places))
        lanes[ready.task.lane].popleft()
        found.append(ready)
        done.add(ready.task.id)
    return found


def _turn(place: int, bound: Bound, places: Mapping[int, int]) -> tuple[int, bool]:
    """Where a task stands among the others, by its place in the plan: a transfer behind the last that it waits for."""
    waits = [places[wait] for wait in bound.task.waits if wait in places]
    moved = isinstance(bound.task, Transfer) and bool(waits)
    return (max(waits), True) if moved else (place, False)
