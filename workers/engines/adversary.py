"""The adversarial order: at every moment any task or message step that the lanes and waits allow may be next."""

from __future__ import annotations

from functools import partial
from random import Random

from ...planner.format import Resolved, Task, Transfer
from ..device import Runner
from ..rank import Rank
from ..transport.piecewise import Action, Piecewise
from .order import Mark, Ordered


class Shuffled(Ordered):
    """Random choices from a seed. Tasks that the plan does not order meet in every order, given seeds enough."""

    def __init__(self, resolved: Resolved, ranks: list[Rank], seed: int) -> None:
        super().__init__(resolved, ranks)
        self.random = Random(seed)
        self.active: dict[int, tuple[Transfer, Piecewise, set[int], Mark]] = {}

    def bound_transfers(self) -> dict[int, Runner]:
        """None: transfers are taken apart, and each step is bound when it happens."""
        return {}

    def run_all(self) -> None:
        """One random step after another until nothing is left."""
        while self.left:
            steps = self._steps()
            if not steps:
                raise self.stuck()
            self.random.choice(steps)()
            self._leave()

    def _steps(self) -> list[Action]:
        steps: list[Action] = []
        meeting: dict[int, tuple[Transfer, int]] = {}
        for number in range(len(self.ranks)):
            for lane in self.queues[number]:
                task = self.head(number, lane)
                if isinstance(task, Transfer):
                    meeting[task.id] = (task, meeting.get(task.id, (task, 0))[1] + 1)
                elif task is not None:
                    steps.append(partial(self._compute, number, task))
        for task, arrived in meeting.values():
            if task.id not in self.active and arrived == len(self.resolved.participants(task)):
                steps.append(partial(self._begin, task))
        for _, piecewise, _, _ in self.active.values():
            steps += piecewise.actions()
        return steps

    def _compute(self, number: int, task: Task) -> None:
        self.compute(number, task)

    def _begin(self, task: Transfer) -> None:
        piecewise = Piecewise(self.device, self.movement(task))
        self.active[task.id] = (task, piecewise, set(self.resolved.participants(task)), self.device.mark())

    def _leave(self) -> None:
        """Let ranks go that are done with a transfer."""
        for task, piecewise, inside, start in list(self.active.values()):
            for number in sorted(inside):
                if piecewise.left_by(number):
                    inside.remove(number)
                    self.finish(number, task, start)
            if not inside:
                self.transport.received.update(piecewise.received)
                del self.active[task.id]
