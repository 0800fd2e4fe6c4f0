"""Tasks on their lanes: when each of them starts and ends, by what it takes and what it waits for.

Ranks on which all tasks take the same time are one class, and go through them as one. On a machine without overlap all
lanes of a rank are one, on which tasks come as `in_turn` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from .contention import Divided, Streams, meet

Vector = Any  # seconds, per class of ranks
Ends = Mapping[int, Vector]
"""Task -> when it ends; 0 where it does not run."""


class Turn(NamedTuple):
    """A task as its lane has it. ``ranks``: those that take part (None: all). ``meets``: all of them start together."""

    id: int
    lane: str
    waits: tuple[int, ...]
    ranks: tuple[int, ...] | None
    meets: bool


class Waiting(Protocol):
    """A task, as far as its order goes."""

    @property
    def id(self) -> int: ...

    @property
    def lane(self) -> str: ...

    @property
    def waits(self) -> tuple[int, ...]: ...


W = TypeVar("W", bound=Waiting)


def in_turn(tasks: Sequence[W]) -> list[W]:
    """The tasks one after another: always the first of the list that waits for none, on its lane or by its waits, that
    has not come yet. Tasks that wait for one another for ever come last, in the order of the list.
    """
    place = {task.id: k for k, task in enumerate(tasks)}
    last: dict[str, int] = {}
    left, after = [0] * len(tasks), [list[int]() for _ in tasks]
    for k, task in enumerate(tasks):
        earlier = {place[wait] for wait in task.waits} | ({last[task.lane]} if task.lane in last else set())
        last[task.lane], left[k] = k, len(earlier)
        for other in earlier:
            after[other].append(k)
    ready = [k for k, count in enumerate(left) if not count]
    found: dict[int, W] = {}
    while ready:
        k = heappop(ready)
        found[k] = tasks[k]
        for later in after[k]:
            left[later] -= 1
            if not left[later]:
                heappush(ready, later)
    return [*found.values(), *(task for k, task in enumerate(tasks) if k not in found)]


class Replay:
    """Tasks with what they take, for the classes of ranks on which that is the same.

    ``takes``: seconds of each task, one number or one for each of ``size`` ranks; ``streams``: of those that stream
    over links that devices have together, by their place in the list; ``overlap``: whether a rank has several lanes.
    """

    def __init__(
        self, turns: Sequence[Turn], takes: Sequence[Any], streams: Streams, size: int, *, overlap: bool
    ) -> None:
        self.turns = turns if overlap else [turn._replace(lane="") for turn in turns]
        masks: dict[tuple[int, ...] | None, Any] = {None: None}
        for turn in turns:
            if turn.ranks not in masks:
                masks[turn.ranks] = _mask(turn.ranks or (), size)
        members = [masks[turn.ranks] for turn in turns]
        self.classes = _classes(size, [*takes, *(mask for mask in members if mask is not None)])
        first = np.array([ranks[0] for ranks in self.classes])
        fewer = {id(column): column[first] for column in [*takes, *members] if _varies(column)}
        self.takes = [fewer.get(id(seconds), seconds) for seconds in takes]
        self.members = [fewer.get(id(mask)) for mask in members]
        self.streams = streams

    def run(self, before: Ends) -> tuple[list[Vector], dict[int, Vector], tuple[int, int] | None]:
        """Per task its starts, by number its ends, and a task with one that it waits for further down the list.

        ``before``: when tasks end that have not been come to yet, as the pass before found it.
        """
        nothing = np.zeros(len(self.classes))
        lanes: dict[str, Vector] = {}
        starts, ends, late = [], dict[int, Vector](), None
        for turn, seconds, members in zip(self.turns, self.takes, self.members, strict=True):
            start = lanes.get(turn.lane, nothing)
            for wait in turn.waits:
                if wait in ends:
                    start = np.maximum(start, ends[wait])
                else:
                    start, late = np.maximum(start, before.get(wait, nothing)), (turn.id, wait)
            if turn.meets:
                start = np.full_like(nothing, start.max(where=True if members is None else members, initial=0.0))
            end = start + seconds
            if members is not None:
                start, end = np.where(members, start, 0.0), np.where(members, end, 0.0)
                lanes[turn.lane] = np.where(members, end, lanes.get(turn.lane, nothing))
            else:
                lanes[turn.lane] = end
            starts.append(start)
            ends[turn.id] = end
        return starts, ends, late

    def divided(self, starts: list[Vector], ends: dict[int, Vector]) -> tuple[list[Vector], dict[int, Vector]]:
        """The starts and ends, where transfers meet on links that devices share as they are when they divide them."""
        if not self.streams or not meet(self.streams, starts, [ends[turn.id] for turn in self.turns]):
            return starts, ends
        starts, last = Divided(self.turns, self.takes, self.members, self.streams, len(self.classes)).run()
        return starts, {turn.id: end for turn, end in zip(self.turns, last, strict=True)}


def _mask(ranks: Sequence[int], size: int) -> Any:
    mask = np.zeros(size, dtype=bool)
    mask[list(ranks)] = True
    return mask


def _varies(column: Any) -> bool:
    """Whether it has a value for each rank, and not one for all of them."""
    return isinstance(column, np.ndarray) and column.ndim > 0


def _classes(size: int, columns: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """The ranks in classes on which each column has one value; what has one value everywhere tells none apart."""
    label = np.zeros(size, dtype=np.int64)
    for column in {id(column): column for column in columns if _varies(column)}.values():
        values, code = np.unique(column, return_inverse=True)
        if len(values) > 1:
            label = np.unique(label * len(values) + code, return_inverse=True)[1]
    found: dict[int, list[int]] = {}
    for rank, number in enumerate(label.tolist()):
        found.setdefault(number, []).append(rank)
    return tuple(tuple(ranks) for ranks in found.values())
