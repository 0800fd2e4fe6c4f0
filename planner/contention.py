"""Transfers of several tasks that are under way at once over a link that devices have together: they divide it.

A transfer by itself has the link as its own receivers leave it. While others receive over the same share of the link,
it is slower by as much as there are more receivers. Who meets whom hangs on when everything starts, so such a run is
gone through from event to event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .strategy.traffic import Move, Stream, Traffic

if TYPE_CHECKING:
    from .replay import Turn

Streams = Mapping[int, Sequence[Stream]]
"""By the place in the list of a transfer that streams over a link that devices have together: what it takes, level by
level."""
Vector = Any  # seconds, per class of ranks


def streams_of(moves: Mapping[int, Move], traffic: Traffic) -> Streams:
    """Of transfers by their places in the list those that stream over links that devices have together."""
    if not traffic.shared:
        return {}
    found = {k: tuple(traffic.streams(move)) for k, move in moves.items()}
    return {k: levels for k, levels in found.items() if any(level.users for level in levels)}


def meet(streams: Streams, starts: Sequence[Vector], ends: Sequence[Vector]) -> bool:
    """Whether some of these transfers are under way at once over one share of a link. ``starts`` and ``ends``: of all
    tasks of the list, 0 for ranks that take no part.
    """
    spans: dict[object, list[tuple[float, float]]] = {}
    for k, levels in streams.items():
        span = float(starts[k].max()), float(ends[k].max())
        for share in {share for level in levels for share in level.users}:
            spans.setdefault(share, []).append(span)
    return any(late < end for each in spans.values() for (_, end), (late, _) in pairwise(sorted(each)))


@dataclass(frozen=True)
class _Step:
    """One task on the classes of ranks on which it is one event: a transfer on all of its own, else one class."""

    task: int
    classes: tuple[int, ...]


@dataclass
class _Underway:
    """A transfer that was started: its levels still to come, and the seconds that are left of its stream."""

    levels: list[Stream]
    left_s: float = 0.0


class Divided:
    """A run in which transfers divide the links that they share. The tasks must not wait for one another for ever.

    ``takes``: seconds of each task, of all classes of ranks or each; ``members``: the classes that take part, None for
    all; each lane of a class takes its tasks in their order.
    """

    def __init__(
        self,
        tasks: Sequence[Turn],
        takes: Sequence[Vector],
        members: Sequence[Vector | None],
        streams: Streams,
        count: int,
    ) -> None:
        self.streams, self.takes, self.count = streams, takes, count
        self.steps: list[_Step] = []
        at: list[dict[int, int]] = []  # per task and class its step
        for k, (task, mask) in enumerate(zip(tasks, members, strict=True)):
            mine = range(count) if mask is None else np.flatnonzero(mask).tolist()
            together = [tuple(mine)] if task.meets else [(one,) for one in mine]
            at.append({one: len(self.steps) + n for n, classes in enumerate(together) for one in classes})
            self.steps += [_Step(k, classes) for classes in together]
        self.after: list[list[int]] = [[] for _ in self.steps]
        self.waiting = [0] * len(self.steps)
        self._order(tasks, at)
        self.now = 0.0
        self.starts, self.ends = ([np.zeros(count) for _ in tasks] for _ in range(2))
        self.due: list[tuple[float, int]] = []  # when steps end, or the part of a level that shares nothing
        self.underway: dict[int, _Underway] = {}
        self.streaming: dict[int, _Underway] = {}

    def _order(self, tasks: Sequence[Turn], at: Sequence[Mapping[int, int]]) -> None:
        place = {task.id: k for k, task in enumerate(tasks)}
        last: dict[tuple[str, int], int] = {}
        for k, task in enumerate(tasks):
            earlier: dict[int, set[int]] = {step: set() for step in at[k].values()}
            for one, step in at[k].items():
                earlier[step] |= {at[place[wait]][one] for wait in task.waits if one in at[place[wait]]}
                if (task.lane, one) in last:
                    earlier[step].add(last[task.lane, one])
                last[task.lane, one] = step
            for step, before in earlier.items():
                self.waiting[step] = len(before)
                for other in before:
                    self.after[other].append(step)

    def run(self) -> tuple[list[Vector], list[Vector]]:
        """Per task its starts and its ends."""
        for step, count in enumerate(self.waiting):
            if not count:
                self._start(step)
        while self.due or self.streaming:
            slowed = self._slowed()
            first = min(self.streaming, key=lambda step: self.streaming[step].left_s * slowed[step], default=None)
            end = self.now + self.streaming[first].left_s * slowed[first] if first is not None else np.inf
            by_itself = bool(self.due) and self.due[0][0] <= end
            self._pass(min(end, self.due[0][0]) if self.due else end, slowed)
            if by_itself:
                _, step = heappop(self.due)
                self._stream(step) if step in self.underway else self._end(step)
            elif first is not None:
                del self.streaming[first]
                self._next(first)
        return self.starts, self.ends

    def _slowed(self) -> dict[int, float]:
        """How many times as long as by itself each stream takes now."""
        there = Counter[object]()
        for underway in self.streaming.values():
            there.update(underway.levels[0].users)
        return {
            step: max(there[share] for share in users) / max(users.values())
            for step, underway in self.streaming.items()
            for users in [underway.levels[0].users]
        }

    def _pass(self, now: float, slowed: Mapping[int, float]) -> None:
        for step, underway in self.streaming.items():
            underway.left_s = max(0.0, underway.left_s - (now - self.now) / slowed[step])
        self.now = now

    def _start(self, step: int) -> None:
        task, classes = self.steps[step].task, list(self.steps[step].classes)
        self.starts[task][classes] = self.now
        if task in self.streams:
            self.underway[step] = _Underway([*self.streams[task]])
            self._level(step)
        else:
            seconds = self.takes[task]
            heappush(self.due, (self.now + float(seconds if np.ndim(seconds) == 0 else seconds[classes[0]]), step))

    def _level(self, step: int) -> None:
        heappush(self.due, (self.now + self.underway[step].levels[0].alone_s, step))

    def _stream(self, step: int) -> None:
        underway = self.underway[step]
        underway.left_s = underway.levels[0].shared_s
        if underway.levels[0].users:
            self.streaming[step] = underway
        else:
            self._next(step)

    def _next(self, step: int) -> None:
        self.underway[step].levels.pop(0)
        if self.underway[step].levels:
            self._level(step)
        else:
            self._end(step)

    def _end(self, step: int) -> None:
        self.ends[self.steps[step].task][list(self.steps[step].classes)] = self.now
        for later in self.after[step]:
            self.waiting[later] -= 1
            if not self.waiting[later]:
                self._start(later)
