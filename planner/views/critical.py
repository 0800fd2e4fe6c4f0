"""The critical path of a simulated run: tasks that each begin when the one before ends, from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..format import Compute, Document, Task, Transfer
from ..timeline import Run, Timeline


@dataclass(frozen=True)
class Step:
    """A task on the path, on the first rank of those that take the same times."""

    task: int
    rank: int
    start_s: float
    end_s: float


def critical_path(document: Document, timeline: Timeline) -> list[Step]:
    """In order of time. Of several tasks that end when one begins, the longest is taken.

    A task begins when one ends that it waits for or that is before it on its lane; a transfer when one does so on any
    rank that takes part; without overlap all lanes of a rank are one.
    """
    search = _Search(document, timeline)
    found: list[Step] = []
    at = search.last()
    while at is not None:
        run, k = at
        found.append(Step(run.task, timeline.classes[k][0], run.starts[k], run.ends[k]))
        at = search.before(run, k)
    return found[::-1]


class _Search:
    def __init__(self, document: Document, timeline: Timeline) -> None:
        self.tasks: dict[int, Task] = {task.id: task for task in document.tasks}
        self.timeline = timeline
        self.number = range(len(timeline.classes))
        self.ending: dict[tuple[int, float], list[Run]] = {}
        for run in timeline.runs:
            for k in self.number:
                if run.ends[k] > run.starts[k]:
                    self.ending.setdefault((k, run.ends[k]), []).append(run)

    def last(self) -> tuple[Run, int] | None:
        ends = [(run.ends[k], -k, run.task) for run in self.timeline.runs for k in self.number]
        if not ends or max(ends)[0] <= 0:
            return None
        end, negative, task = max(ends)
        return next(run for run in self.ending[-negative, end] if run.task == task), -negative

    def before(self, run: Run, k: int) -> tuple[Run, int] | None:
        """What ended when this began; what is waited for before what happened to end then."""
        start, task = run.starts[k], self.tasks[run.task]
        if start <= 0:
            return None
        classes = self.number if isinstance(task, Transfer) else (k,)
        found = [(one, j) for j in classes for one in self.ending.get((j, start), ()) if one is not run]
        return max(found, key=lambda at: self._weight(task, run, *at), default=None)

    def _weight(self, task: Task, run: Run, before: Run, k: int) -> tuple[bool, float, int]:
        meant = before.task in task.waits or before.lane == run.lane
        return meant, before.ends[k] - before.starts[k], -before.task


def shares(document: Document, path: Sequence[Step]) -> Iterator[tuple[str, float]]:
    """Seconds of the path by what takes them, the most first: operations computed, tensors moved."""
    names = {task.id: task.op if isinstance(task, Compute) else task.tensor for task in document.tasks}
    found: dict[str, float] = {}
    for step in path:
        name = names[step.task]
        found[name] = found.get(name, 0.0) + step.end_s - step.start_s
    yield from sorted(found.items(), key=lambda item: (-item[1], item[0]))
