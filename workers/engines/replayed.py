"""The fixed order, found once: what a plan's tasks do, one after another, to be called again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...planner.format import Resolved, Task, Transfer
from ..device import Bound
from ..rank import Rank, place_of
from ..result import Event
from .order import Ordered


class Replayed(Ordered):
    """Nothing runs while the order is found; ``steps`` are what `Ordered` would have run, a transfer of several ranks
    under the first of them.
    """

    def __init__(self, resolved: Resolved, ranks: list[Rank]) -> None:
        super().__init__(resolved, ranks)
        self.steps: list[Bound] = []
        self.run_all()

    def compute(self, number: int, task: Task) -> None:
        self.steps.append(self.ranks[number].bound[task.id])
        self.finish(number, task, self.device.mark())

    def carry(self, task: Transfer) -> None:
        first = self.resolved.participants(task)[0]
        self.steps.append(Bound(task, place_of(self.resolved, task, first), self.carriers[task.id]))

    def of_all(self, events: Iterable[Event]) -> list[Event]:
        """What ran when on every rank: a transfer on all that take part."""
        members = {task.id: self.resolved.participants(task) for task in self.transfers()}
        found = [replace(event, rank=rank) for event in events for rank in members.get(event.task, (event.rank,))]
        return sorted(found, key=lambda event: event.start_s)
