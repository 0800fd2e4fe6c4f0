"""What the tasks of a plan took, from the events of its steps: one figure a task, and what lies between tasks.

In an engine that runs all ranks in one process, ranks take turns: what a rank waits while the others compute is part
of what its tasks take, so that a task takes on every rank what it takes on all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..format import Resolved, Transfer
from ..format.events import Event
from ..measured import Step
from ..replay import in_turn


@dataclass(frozen=True)
class TaskTimes:
    """Seconds of compute and copies by (task, rank), of transfers by task, and of a step; ``gap``: of a step, what is
    in no task, for each of the ``most`` tasks that a rank has. With it the tasks, one after another, take as long as
    the steps did (the middle ones).
    """

    tasks: Mapping[tuple[int, int], float]
    transfers: Mapping[int, float]
    wall_s: float
    most: int
    gap: float


def task_times(plan: Resolved, steps: Sequence[Step], *, turns: bool) -> TaskTimes:
    """The means of the middle half of the steps: means, because a task that is interrupted now and then takes its share
    of that, and means add up; of the middle half by their length, because a step that was disturbed says nothing. The
    first step, which is cold, counts only where it is alone. ``turns``: ranks take turns.
    """
    counted = _middle(steps[1:] if len(steps) > 1 else steps)
    spans: dict[int, list[dict[int, Event]]] = {}
    for step in counted:
        by_task: dict[int, dict[int, Event]] = {}
        for event in step.events:
            by_task.setdefault(event.task, {})[event.rank] = event
        for number, events in by_task.items():
            spans.setdefault(number, []).append(events)
    tasks: dict[tuple[int, int], float] = {}
    transfers: dict[int, float] = {}
    for task in plan.document.tasks:
        seen = spans.get(task.id, [])
        if isinstance(task, Transfer):
            transfers[task.id] = fmean(map(_meeting, seen)) if seen else 0.0
            continue
        alone = {rank: _mean([events[rank] for events in seen if rank in events]) for rank in plan.participants(task)}
        tasks |= {(task.id, rank): sum(alone.values()) if turns else took for rank, took in alone.items()}
    replayed = _replayed(plan, tasks, transfers)
    most = max(sum(rank in plan.participants(task) for task in plan.document.tasks) for rank in range(plan.size))
    wall = fmean(step.wall_s for step in counted)
    return TaskTimes(tasks, transfers, wall, most, max(0.0, wall - replayed) / max(1, most))


def _middle(steps: Sequence[Step]) -> Sequence[Step]:
    """Without the quarter that took longest and the quarter that took least."""
    quarter = len(steps) // 4
    return sorted(steps, key=lambda step: step.wall_s)[quarter : len(steps) - quarter]


def _mean(events: Sequence[Event]) -> float:
    return fmean(event.end_s - event.start_s for event in events) if events else 0.0


def _meeting(events: Mapping[int, Event]) -> float:
    """From when the last rank came to when the last one left."""
    return max(event.end_s for event in events.values()) - max(event.start_s for event in events.values())


def _replayed(plan: Resolved, tasks: Mapping[tuple[int, int], float], transfers: Mapping[int, float]) -> float:
    """Seconds of the tasks one after another on each rank."""
    clock = [0.0] * plan.size
    for task in in_turn(plan.document.tasks):
        members = plan.participants(task)
        if isinstance(task, Transfer):
            end = max((clock[rank] for rank in members), default=0.0) + transfers[task.id]
        for rank in members:
            clock[rank] = end if isinstance(task, Transfer) else clock[rank] + tasks[task.id, rank]
    return max(clock, default=0.0)
