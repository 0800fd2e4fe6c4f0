"""Which moments a graph notes, and what they tell of the tasks between them.

A moment beside what comes next costs the step 0.7 us where a task takes 20, and 2 where it takes one (H200,
2026-11-22). So tasks that are short share a moment, and what lies between two of them is theirs in the proportion in
which they took time when they were asked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...planner.format import Task, Transfer

# Seconds of a lane's tasks, asked for one by one, after which a moment is noted.
APART_S = 30e-6

Placed = tuple[Task, str]  # a task and its lane


def noted(tasks: Sequence[Placed], took: Sequence[float]) -> list[bool]:
    """Whether the end of each is a moment: of transfers, of the last of a lane, wherever lanes wait for one another,
    and as soon as those since the last moment took long enough.
    """
    waited = _waited(tasks)
    found, last, since = [False] * len(tasks), dict[str, int](), dict[str, float]()
    for k, (task, lane) in enumerate(tasks):
        for other in waited[k]:
            found[other] = True
        if waited[k] and lane in last:
            found[last[lane]] = True
        last[lane], since[lane] = k, since.get(lane, 0.0) + took[k]
        if isinstance(task, Transfer) or since[lane] >= APART_S:
            found[k], since[lane] = True, 0.0
    for k in last.values():
        found[k] = True
    return found


def spans(
    tasks: Sequence[Placed], took: Sequence[float], ends: Mapping[int, float], first: float
) -> list[tuple[float, float]]:
    """When each began and ended, of the moments by their places in ``tasks`` and the moment at which the graph began.

    A task begins when the one before it on its lane, and what it waits for, have ended.
    """
    waited, found = _waited(tasks), [(first, first)] * len(tasks)
    since: dict[str, list[int]] = {}
    reached: dict[str, float] = {}
    for k, (_, lane) in enumerate(tasks):
        group = since.setdefault(lane, [])
        if not group:
            reached[lane] = max([reached.get(lane, first), *(ends[other] for other in waited[k])])
        group.append(k)
        if k in ends:
            found_here = _shared(min(reached[lane], ends[k]), ends[k], [took[one] for one in group])
            for one, span in zip(group, found_here, strict=True):
                found[one] = span
            reached[lane], since[lane] = ends[k], []
    return found


def _shared(start: float, end: float, took: Sequence[float]) -> Iterator[tuple[float, float]]:
    """A stretch of time for several, by what they took elsewhere."""
    whole, before = sum(took), 0.0
    for k, one in enumerate(took):
        after = before + (one / whole if whole > 0 else 1 / len(took))
        last = end if k == len(took) - 1 else start + after * (end - start)
        yield start + before * (end - start), last
        before = after


def _waited(tasks: Sequence[Placed]) -> list[list[int]]:
    """For each, the tasks of other lanes that it waits for, which come before it."""
    places: dict[int, int] = {}
    found = []
    for k, (task, lane) in enumerate(tasks):
        before = [places[wait] for wait in task.waits if wait in places]
        found.append([other for other in before if tasks[other][1] != lane])
        places[task.id] = k
    return found
