"""Tasks that stand one after another on a lane and have nothing to do with each other, so that a device may do them at
once.

    mean   = .9 m + .1 g        waits: 3
    square = .9 s + .1 g g      waits: -        both are done where this one stands

No other lane waits for any but the last, none waits for more than the first, and what one writes no other touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..planner.format import Buffer, Compute, Resolved, Task
from .chains import Links
from .device import Bound, Device, Runner, Within


@dataclass(frozen=True)
class Done:
    """The tasks that a runner does, in the place of the last of them."""

    tasks: tuple[Compute, ...]
    run: Runner

    @cached_property
    def ids(self) -> frozenset[int]:
        return frozenset(task.id for task in self.tasks)

    @cached_property
    def waits(self) -> frozenset[int]:
        """What others of them do not do."""
        return frozenset(wait for task in self.tasks for wait in task.waits) - self.ids


def neighbours(
    tasks: Sequence[Task], bound: Mapping[int, Bound], plan: Resolved, device: Device
) -> Iterator[tuple[Done, ...]]:
    """Several runners each of a rank's bound tasks that the device may do at once."""
    links = Links.of(plan.document)
    lanes = {task.id: task.lane for task in plan.document.tasks}
    for lane in _by_lane(tasks).values():
        group: list[Done] = []
        for done in _done(lane, bound):
            if done is not None and group and _joins(group, done, links, lanes, plan, device):
                group.append(done)
                continue
            if len(group) > 1:
                yield tuple(group)
            group = [] if done is None else [done]
        if len(group) > 1:
            yield tuple(group)


def _by_lane(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    found = defaultdict[str, list[Task]](list)
    for task in tasks:
        found[task.lane].append(task)
    return found


def _done(lane: Sequence[Task], bound: Mapping[int, Bound]) -> Iterator[Done | None]:
    """The runners of a lane with their tasks; None for one that stands for itself."""
    within: list[Compute] = []
    for task in lane:
        run = bound[task.id].run if task.id in bound else None
        if not isinstance(task, Compute) or run is None or task.prior is not None:
            within.clear()
            yield None
        elif isinstance(run, Within):
            within.append(task)
        else:
            yield Done((*within, task), run)
            within.clear()


def _joins(
    group: Sequence[Done], done: Done, links: Links, lanes: Mapping[int, str], plan: Resolved, device: Device
) -> bool:
    """Whether a runner that comes next may be done with those of a group, all of them in its place."""
    ids = done.ids.union(*(one.ids for one in group))
    if not done.waits <= ids | group[0].waits:
        return False
    if any(lanes[wait] != task.lane for one in group for task in one.tasks for wait in links.waited[task.id] - ids):
        return False
    return all(_apart(one, done, plan) for one in group) and device.fit([*(one.run for one in group), done.run])


def _apart(one: Done, other: Done, plan: Resolved) -> bool:
    """Whether neither writes what the other reads or writes."""
    (reads, writes), (others_read, others_write) = _touched(one, plan), _touched(other, plan)
    return not _meet(writes, [*others_read, *others_write]) and not _meet(others_write, reads)


def _touched(done: Done, plan: Resolved) -> tuple[list[Buffer], list[Buffer]]:
    reads = [plan.buffers[name] for task in done.tasks for name in task.reads]
    return reads, [plan.buffers[task.write] for task in done.tasks]


def _meet(some: Sequence[Buffer], others: Sequence[Buffer]) -> bool:
    return any(a.meets(b) for a in some for b in others)
