"""Bytes that were received beside those that are planned, transfer by transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...planner.format import Resolved, Transfer
from ...records import width_of
from ..faults import BytesDiffer
from ..result import name_of


class Key(NamedTuple):
    """What bytes are counted by: the task, and the link from one rank to another. No task: a result on its way out."""

    task: int | None
    src: int
    dst: int


def planned_bytes(plan: Resolved, ranks: Collection[int]) -> Counter[Key]:
    """What some ranks receive from other ranks in one run of the plan."""
    found: Counter[Key] = Counter()
    for task in plan.document.tasks:
        if isinstance(task, Transfer):
            width = width_of(plan.program, task.tensor)
            for m in plan.messages(task):
                if m.remote and m.dst in ranks:
                    found[Key(task.id, m.src, m.dst)] += m.moved_bytes(width)
    return found


def demand_planned(plan: Resolved, received: Mapping[Key, int], ranks: Collection[int]) -> None:
    """BytesDiffer with the first task and link over which some ranks received something else than is planned."""
    planned = planned_bytes(plan, ranks)
    transfers = {task.id: task for task in plan.document.tasks if isinstance(task, Transfer)}
    for key in planned | Counter(received):
        if planned[key] != received.get(key, 0):
            task = transfers.get(key.task) if key.task is not None else None
            what = f"{received.get(key, 0)} bytes came from rank {key.src}, and {planned[key]} are planned"
            name, tensor = (name_of(task), task.tensor) if task is not None else ("", "")
            raise BytesDiffer(what, rank=key.dst, task=key.task, name=name, tensor=tensor)
