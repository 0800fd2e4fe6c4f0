"""The lanes of a rank on the host: one thread each, for devices whose tasks are ordinary calls."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event as Flag
from threading import Thread
from time import perf_counter

from .device import Bound
from .result import Event, name_of

# A thread that waits for a task of another lane looks this often whether the run has failed.
POLL_S = 0.1


class HostLanes:
    """Tasks of one rank, lanes side by side, each in order, waits kept. The first error stops all lanes."""

    def __init__(self, tasks: Sequence[Bound]) -> None:
        self.lanes: dict[str, list[Bound]] = {}
        for bound in tasks:
            self.lanes.setdefault(bound.task.lane, []).append(bound)

    def __call__(self, began: float) -> list[Event]:
        """Run them once. Events count from ``began``."""
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
                task = bound.task
                self.events.append(Event(bound.place.rank, task.lane, task.id, name_of(task), start, end))
                self.finished[task.id].set()
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
