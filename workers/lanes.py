"""The lanes of a rank on the host: one thread each, for devices whose tasks are ordinary calls; and tasks in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread
from time import perf_counter
from typing import Protocol

from .device import Bound, Replay
from .result import Event, name_of

# A thread that waits for a task of another lane looks this often whether the run has failed.
POLL_S = 0.1


class HostLanes(Replay):
    """Tasks of one rank, lanes side by side, each in order, waits kept. The first error stops all lanes."""

    def __init__(self, tasks: Sequence[Bound]) -> None:
        self.lanes: dict[str, list[Bound]] = {}
        for bound in tasks:
            self.lanes.setdefault(bound.task.lane, []).append(bound)

    def __call__(self, began: float) -> list[Event]:
        run = _Run(self.lanes, began)
        threads = [Thread(target=run.lane, args=(tasks,), daemon=True) for tasks in self.lanes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not run.errors:
                thread.join(POLL_S)
        if run.errors:
            raise run.errors[0]
        return run.events


class _Run:
    """One run of the lanes: what is finished, what was noted, what went wrong."""

    def __init__(self, lanes: dict[str, list[Bound]], began: float) -> None:
        self.began = began
        self.finished = {bound.task.id: Flag() for tasks in lanes.values() for bound in tasks}
        self.events: list[Event] = []
        self.errors: list[BaseException] = []

    def lane(self, tasks: Sequence[Bound]) -> None:
        try:
            for bound in tasks:
                if not self._ready(bound):
                    return
                start = perf_counter() - self.began
                with bound.place:
                    bound.run()
                end = perf_counter() - self.began
                self.events.append(event_of(bound, start, end))
                self.finished[bound.task.id].set()
        except BaseException as error:
            self.errors.append(error)

    def _ready(self, bound: Bound) -> bool:
        """Wait for what the task waits for; False if another lane failed meanwhile."""
        for wait in bound.task.waits:
            flag = self.finished.get(wait)
            while flag is not None and not flag.wait(POLL_S):
                if self.errors:
                    return False
        return True


class Clock(Protocol):
    """See `Device.mark` and `Device.synchronise`."""

    def mark(self) -> Callable[[], float]: ...

    def synchronise(self) -> None: ...


class InTurn(Replay):
    """Tasks of any ranks, one after another."""

    def __init__(self, clock: Clock, tasks: Sequence[Bound]) -> None:
        self.clock, self.tasks = clock, tasks
        self.timed = True

    def keep(self, *, timed: bool) -> bool:
        """They are asked for one by one all the same."""
        self.timed = timed
        return False

    def __call__(self, began: float) -> list[Event]:
        return self._noted(began) if self.timed else self._run()

    def _run(self) -> list[Event]:
        for bound in self.tasks:
            with bound.place:
                bound.run()
        return []

    def _noted(self, began: float) -> list[Event]:
        marks = [self.clock.mark()]
        for bound in self.tasks:
            with bound.place:
                bound.run()
            marks.append(self.clock.mark())
        self.clock.synchronise()
        times = [mark() - began for mark in marks]
        return [event_of(*one) for one in zip(self.tasks, times, times[1:], strict=False)]


def event_of(bound: Bound, start_s: float, end_s: float) -> Event:
    """A task that ran from one moment to another."""
    task, kernel = bound.task, ", ".join(bound.kernels)
    return Event(bound.place.rank, task.lane, task.id, name_of(task), start_s, end_s, kernel)
