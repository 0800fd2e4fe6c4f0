"""The fixed order, found once: what a plan's tasks do, one runner after another, to be called again and again."""

from __future__ import annotations

from ...planner.format import Resolved, Task, Transfer
from ..device import Runner
from ..faults import Place
from ..rank import Rank, place_of
from .order import Ordered


class Replayed(Ordered):
    """Nothing runs while the order is found; ``steps`` are what `Ordered` would have run."""

    def __init__(self, resolved: Resolved, ranks: list[Rank]) -> None:
        super().__init__(resolved, ranks)
        self.steps: list[tuple[Place, Runner]] = []
        self.run_all()

    def compute(self, number: int, task: Task) -> None:
        bound = self.ranks[number].bound[task.id]
        self.steps.append((bound.place, bound.run))
        self.finish(number, task, self.device.mark())

    def carry(self, task: Transfer) -> None:
        first = self.resolved.participants(task)[0]
        self.steps.append((place_of(self.resolved, task, first), self.carriers[task.id]))
