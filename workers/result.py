"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..planner.format import Compute, Task, Transfer
from ..planner.format.events import Event as Event
from .stores.arrays import Array


def name_of(task: Task) -> str:
    """How traces and errors call a task."""
    if isinstance(task, Compute):
        return task.op
    return f"{task.kind} {task.tensor}" if isinstance(task, Transfer) else task.tensor


@dataclass(frozen=True)
class RunResult:
    """``outputs``: whole arrays by name, new states included. ``bytes_moved``: what ranks received from other ranks.

    ``wall_s`` is the time from the first task to the last, inputs in place and tasks bound; ``events`` are in order of
    their start. ``rank`` is the rank of this process where every rank has its own; ranks other than 0 have no outputs.
    ``baseline_bytes`` is what a rank's device occupies beside the planned arenas, the most of any rank.
    """

    outputs: dict[str, Array]
    bytes_moved: int
    wall_s: float
    events: list[Event] = field(default_factory=list)
    rank: int = 0
    baseline_bytes: int = 0
