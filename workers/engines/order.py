"""The fixed order: ranks in turn, each as far as it gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import perf_counter

from ...planner.format import Resolved, Task, Transfer
from ..device import Runner
from ..faults import Deadlock
from ..rank import Rank
from ..result import Event, name_of
from ..transport.in_process import InProcess
from ..transport.movement import Movement

Mark = Callable[[], float]


class Ordered:
    """Deterministic: ranks in turn, each as far as it gets; a transfer runs when its last participant arrives."""

    def __init__(self, resolved: Resolved, ranks: list[Rank]) -> None:
        self.resolved, self.ranks = resolved, ranks
        self.queues = [_queues(rank) for rank in ranks]
        self.own = [{task.id for task in rank.tasks} for rank in ranks]
        self.done: list[set[int]] = [set() for _ in ranks]
        self.arrived: dict[int, set[int]] = {}
        self.marks: list[tuple[int, Task, Mark, Mark]] = []
        self.device = ranks[0].device
        self.transport = InProcess(self.device)
        self.carriers = self.bound_transfers()
        self.left = sum(len(rank.tasks) for rank in ranks)
        self.began = perf_counter()

    def bound_transfers(self) -> dict[int, Runner]:
        """Every transfer of the plan, bound to the memories of all ranks, by its number."""
        return {task.id: self.transport.bind(self.movement(task)) for task in self.transfers()}

    def transfers(self) -> list[Transfer]:
        return [task for task in self.resolved.document.tasks if isinstance(task, Transfer)]

    def movement(self, task: Transfer) -> Movement:
        return Movement.of(self.resolved, task, {rank.number: rank.memory for rank in self.ranks})

    @property
    def bytes_moved(self) -> int:
        """What ranks received from other ranks so far."""
        return self.transport.bytes_moved

    @cached_property
    def events(self) -> list[Event]:
        """What ran when, once all is done."""
        return [
            Event(
                number, task.lane, task.id, name_of(task), start() - self.began, end() - self.began,
                self._kernel(number, task),
            )
            for number, task, start, end in self.marks
        ]  # fmt: skip

    def _kernel(self, number: int, task: Task) -> str:
        bound = self.ranks[number].bound.get(task.id)
        return "" if bound is None else ", ".join(bound.kernels)

    def elapsed(self) -> float:
        return max((event.end_s for event in self.events), default=0.0)

    def run_all(self) -> None:
        self.began = perf_counter()
        while self.left:
            before = self.left, sum(map(len, self.arrived.values()))
            for number in range(len(self.ranks)):
                self._advance(number)
            if before == (self.left, sum(map(len, self.arrived.values()))):
                raise self.stuck()

    def head(self, number: int, lane: str) -> Task | None:
        """The next task of a lane if it may start."""
        queue = self.queues[number][lane]
        if not queue:
            return None
        waits = self.own[number].intersection(queue[-1].waits)
        return queue[-1] if waits <= self.done[number] else None

    def _advance(self, number: int) -> None:
        moved = True
        while moved:
            moved = False
            for lane in self.queues[number]:
                task = self.head(number, lane)
                if task is None:
                    continue
                if not isinstance(task, Transfer):
                    self.compute(number, task)
                    moved = True
                elif number not in self.arrived.setdefault(task.id, set()):
                    self.arrived[task.id].add(number)
                    moved = self._meet(task)

    def compute(self, number: int, task: Task) -> None:
        assert not isinstance(task, Transfer)
        start = self.device.mark()
        self.ranks[number].run(task)
        self.finish(number, task, start)

    def finish(self, number: int, task: Task, start: Mark) -> None:
        self.queues[number][task.lane].pop()
        self.done[number].add(task.id)
        self.left -= 1
        self.marks.append((number, task, start, self.device.mark()))

    def _meet(self, task: Transfer) -> bool:
        members = self.resolved.participants(task)
        if not self.arrived[task.id].issuperset(members):
            return False
        start = self.device.mark()
        self.carry(task)
        for number in members:
            self.finish(number, task, start)
        return True

    def carry(self, task: Transfer) -> None:
        """A transfer that all its ranks have come to."""
        self.carriers[task.id]()

    def stuck(self) -> Deadlock:
        """Names the task at the head of every lane that cannot start, and what it waits for."""
        sides = {}
        for number, queues in enumerate(self.queues):
            for lane, queue in queues.items():
                if queue:
                    task = queue[-1]
                    missing = sorted(self.own[number].intersection(task.waits) - self.done[number])
                    why = f"waits for {', '.join(map(str, missing))}" if missing else "waits for its other ranks"
                    sides[f"rank {number} {lane}"] = f"task {task.id} ({name_of(task)}) {why}"
        return Deadlock(f"no task can start and {self.left} have not run", sides=sides)


def _queues(rank: Rank) -> dict[str, list[Task]]:
    """The tasks of every lane, the next one last."""
    queues: dict[str, list[Task]] = {}
    for task in reversed(rank.tasks):
        queues.setdefault(task.lane, []).append(task)
    return queues
