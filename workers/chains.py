"""Compute tasks that a device may do as one: neighbours on a lane, of which nobody else waits for any but the last.

    t = a b        waits: 3        done where the last stands
    y = t + r      waits: -

What only the others of a chain read need not be stored. A task that folds onto partial results is in no chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..planner.format import Compute, Document, Task

# Tasks of a chain: as many as a norm or a softmax has, with what stands before and behind.
LONGEST = 6


@dataclass(frozen=True)
class Links:
    """What a document's tasks have to do with one another: who waits for a task, who names a buffer, what lasts."""

    waited: dict[int, set[int]]
    named: dict[str, set[int]]
    lasting: frozenset[str]

    @classmethod
    def of(cls, document: Document) -> Links:
        waited, named = defaultdict[int, set[int]](set), defaultdict[str, set[int]](set)
        for task in document.tasks:
            for wait in task.waits:
                waited[wait].add(task.id)
            for buffer in _named(task):
                named[buffer].add(task.id)
        first = (buffer.name for buffer in document.buffers if buffer.initial is not None)
        return cls(waited, named, frozenset([*document.outputs.values(), *document.states.values(), *first]))

    def stored(self, chain: Sequence[Compute]) -> frozenset[str]:
        """The buffers written by a chain whose contents somebody else reads."""
        ids = {task.id for task in chain}
        inner = {task.write for task in chain[:-1]}
        gone = {name for name in inner if self.named[name] <= ids and name not in self.lasting}
        return frozenset(task.write for task in chain) - gone

    def follows(self, chain: Sequence[Compute], task: Compute) -> bool:
        """Whether a task that comes next on the lane may be done with a chain, which then stands in its place."""
        ids = {one.id for one in chain} | {task.id}
        known = ids.union(*(one.waits for one in chain))
        if any(one.write in task.reads for one in chain):
            return known.issuperset(task.waits) and self.waited[chain[-1].id] <= ids
        beside = len(chain) == 1 and not set(chain[0].reads).isdisjoint(task.reads)
        return beside and self.waited[chain[-1].id] <= ids


def _named(task: Task) -> tuple[str, ...]:
    if not isinstance(task, Compute):
        return task.source, task.target
    return (*task.reads, task.write, *(() if task.prior is None else (task.prior,)))


def chains_from(tasks: Sequence[Task], links: Links) -> dict[int, list[Compute]]:
    """For every compute task of a rank the longest chain that begins with it, of several tasks."""
    lanes = defaultdict[str, list[Task]](list)
    for task in tasks:
        lanes[task.lane].append(task)
    found = {}
    for lane in lanes.values():
        for k, task in enumerate(lane):
            chain = _chain(lane[k : k + LONGEST], links) if isinstance(task, Compute) else []
            if len(chain) > 1:
                found[task.id] = chain
    return found


def _chain(tasks: Sequence[Task], links: Links) -> list[Compute]:
    chain: list[Compute] = []
    for task in tasks:
        if not isinstance(task, Compute) or task.prior is not None or (chain and not links.follows(chain, task)):
            break
        chain.append(task)
    return chain
