"""Replays of plans whose transfers meet on links that several devices have together: each has its part of the link.

A stream that by itself shares a link among n receivers, and meets others there, so that they are m in all, takes m / n
times as long for as long as that lasts. From one instant to the next, rank by rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..format.document import Task, Transfer
from .budget import Budget

Vector = Any  # seconds, per rank
ROUNDED = 1e-12  # the share of a step by which floating-point numbers are off


@dataclass(frozen=True)
class Stream:
    """Of a transfer over the links of one scope: seconds that nobody else lengthens, then seconds over links that
    devices share, with how many receive over which share.
    """

    alone: float
    shared: float
    users: Mapping[Hashable, int]


@dataclass
class _Running:
    """A task under way on some ranks: seconds left of each part, and over which shares of links it is."""

    task: int
    ranks: tuple[int, ...]
    parts: list[tuple[float, Mapping[Hashable, int]]]


class Replay:
    """Tasks from one instant to the next. ``streams``: by the place of a transfer in the list; there are no deadlocks.

    ``ends``: per task when it ends on its ranks.
    """

    def __init__(
        self, tasks: Sequence[Task], takes: Sequence[Vector], streams: Mapping[int, Sequence[Stream]], ranks: int
    ) -> None:
        self.tasks, self.takes, self.streams = tasks, takes, streams
        places = {task.id: k for k, task in enumerate(tasks)}
        self.waits = [[places[wait] for wait in task.waits] for task in tasks]
        self.members = [tuple(range(ranks)) if task.ranks is None else tuple(task.ranks) for task in tasks]
        self.queues: dict[tuple[str, int], deque[int]] = {}
        for k, task in enumerate(tasks):
            for rank in self.members[k]:
                self.queues.setdefault((task.lane, rank), deque()).append(k)
        self.ends: list[dict[int, float]] = [{} for _ in tasks]
        self.running: list[_Running] = []
        self.busy: set[tuple[str, int]] = set()

    def run(self, budget: Budget) -> list[dict[int, float]]:
        now = 0.0
        self._begin()
        while self.running:
            budget.spend(len(self.queues) + len(self.running), "transfers that divide links")
            there = Counter[Hashable]()
            for each in self.running:
                there.update(each.parts[0][1])
            left = [(each, _slower(each.parts[0][1], there)) for each in self.running]
            step = min(each.parts[0][0] * by for each, by in left)
            now += step
            for each, by in left:
                seconds, users = each.parts[0]
                if seconds * by > step * (1 + ROUNDED):
                    each.parts[0] = seconds - step / by, users
                elif len(each.parts) > 1:
                    del each.parts[0]
                else:
                    self._end(each, now)
            self._begin()
        return self.ends

    def _begin(self) -> None:
        """All tasks that may start now."""
        for (_, rank), queue in self.queues.items():
            if queue and self._ready(queue[0], rank):
                k = queue[0]
                together = self.members[k] if isinstance(self.tasks[k], Transfer) else (rank,)
                if all(self._ready(k, other) for other in together):
                    self.busy.update((self.tasks[k].lane, other) for other in together)
                    parts = _parts(self.streams.get(k), float(self.takes[k][rank]))
                    self.running.append(_Running(k, together, parts))

    def _ready(self, k: int, rank: int) -> bool:
        lane = self.tasks[k].lane, rank
        if lane in self.busy or not self.queues[lane] or self.queues[lane][0] != k:
            return False
        return all(rank in self.ends[wait] or rank not in self.members[wait] for wait in self.waits[k])

    def _end(self, ended: _Running, now: float) -> None:
        self.running.remove(ended)
        for rank in ended.ranks:
            lane = self.tasks[ended.task].lane, rank
            self.ends[ended.task][rank] = now
            self.busy.discard(lane)
            self.queues[lane].popleft()


def _parts(streams: Sequence[Stream] | None, seconds: float) -> list[tuple[float, Mapping[Hashable, int]]]:
    if streams is None:
        return [(seconds, {})]
    return [part for each in streams for part in ((each.alone, {}), (each.shared, each.users))]


def _slower(users: Mapping[Hashable, int], there: Mapping[Hashable, int]) -> float:
    return max(there[share] for share in users) / max(users.values()) if users else 1.0
