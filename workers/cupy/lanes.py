"""The lanes of a rank as streams: each in order, the waits of the plan as events between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...planner.format import Transfer
from ..device import Bound
from ..faults import Deadlock
from ..result import Event, name_of

if TYPE_CHECKING:
    from .cuda import CudaMachine


class Lanes:
    """The tasks of one rank. Each run asks for all of them, lane beside lane, then waits for the last."""

    def __init__(self, machine: CudaMachine, tasks: Sequence[Bound]) -> None:
        self.machine, self.tasks = machine, issued(tasks)
        cuda = machine.cupy.cuda
        self.streams: dict[str, Any] = {bound.task.lane: cuda.Stream(non_blocking=True) for bound in self.tasks}
        self.starts = {bound.task.id: cuda.Event() for bound in self.tasks}
        self.ends = {bound.task.id: cuda.Event() for bound in self.tasks}

    def __call__(self, began: float) -> list[Event]:
        """Run them once. Events count from ``began``."""
        self.machine.synchronise()
        origin = self.machine.cupy.cuda.Event()
        origin.record(self.machine.main)
        origin.synchronize()
        offset = perf_counter() - began
        for bound in self.tasks:
            self._ask(bound)
        self.machine.synchronise()
        return [self._event(bound, origin, offset) for bound in self.tasks]

    def _ask(self, bound: Bound) -> None:
        """Put a task on its stream, behind what it waits for."""
        stream, task = self.streams[bound.task.lane], bound.task
        for wait in task.waits:
            if wait in self.ends:
                stream.wait_event(self.ends[wait])
        self.starts[task.id].record(stream)
        with bound.place, self._current(stream, foreign=isinstance(task, Transfer)):
            bound.run()
        self.ends[task.id].record(stream)

    @contextmanager
    def _current(self, stream: Any, *, foreign: bool) -> Iterator[None]:
        """The stream is the machine's, and torch's where its library moves the data."""
        before, self.machine.stream = self.machine.stream, stream.ptr
        torch: Any = sys.modules.get("torch") if foreign else None
        try:
            if torch is None or not torch.cuda.is_available():
                yield
            else:
                with torch.cuda.stream(self.machine.torch_stream()):
                    yield
        finally:
            self.machine.stream = before

    def _event(self, bound: Bound, origin: Any, offset: float) -> Event:
        elapsed = self.machine.cupy.cuda.get_elapsed_time
        task = bound.task
        start, end = (offset + elapsed(origin, at[task.id]) / 1e3 for at in (self.starts, self.ends))
        return Event(bound.place.rank, task.lane, task.id, name_of(task), start, end)


def issued(tasks: Sequence[Bound]) -> list[Bound]:
    """The tasks in an order in which each comes after what it waits for, and after the one before it on its lane.

    The first that may come in the plan's order comes first, so that ranks ask for what joins them in the same order.
    Raises Deadlock.
    """
    known = {bound.task.id for bound in tasks}
    before: dict[int, set[int]] = {}
    last: dict[str, int] = {}
    for bound in tasks:
        task = bound.task
        before[task.id] = known.intersection(task.waits) | ({last[task.lane]} if task.lane in last else set())
        last[task.lane] = task.id
    left, found, done = list(tasks), list[Bound](), set[int]()
    while left:
        ready = next((bound for bound in left if before[bound.task.id] <= done), None)
        if ready is None:
            waits = {f"task {b.task.id}": f"waits for {sorted(before[b.task.id] - done)}" for b in left[:8]}
            raise Deadlock(f"no task can start and {len(left)} have not run", sides=waits)
        left.remove(ready)
        found.append(ready)
        done.add(ready.task.id)
    return found
