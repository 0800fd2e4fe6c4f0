"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..planner.format import Compute, Task, Transfer
from ..planner.format.events import Event as Event
from .stores.arrays import Array


def name_of(task: Task) -> str:
    """How traces and errors call a task."""
    if isinstance(task, Compute):
        return task.op
    return f"{task.kind} {task.tensor}" if isinstance(task, Transfer) else task.tensor


@dataclass(frozen=True)
class Step:
    """One time through all tasks: ``wall_s`` from the first task to the last, ``events`` in order of their start."""

    wall_s: float
    events: list[Event]


@dataclass(frozen=True)
class RunResult:
    """``outputs``: whole arrays by name, new states included, after the last step. ``bytes_moved``: what ranks received
    from other ranks in one step.

    ``steps`` are all that were run, inputs in place and tasks bound. ``rank`` is the rank of this process where every
    rank has its own; ranks other than 0 have no outputs. ``baseline_bytes`` is what a rank's device occupies beside the
    planned arenas, the most of any rank.
    """

    outputs: dict[str, Array]
    bytes_moved: int
    steps: list[Step]
    rank: int = 0
    baseline_bytes: int = 0

    @cached_property
    def middle(self) -> Step:
        """The step with the median time; of two in the middle the shorter."""
        return sorted(self.steps, key=lambda step: step.wall_s)[(len(self.steps) - 1) // 2]

    @property
    def wall_s(self) -> float:
        """Seconds of the middle step."""
        return self.middle.wall_s

    @property
    def events(self) -> list[Event]:
        """What ran when in the middle step."""
        return self.middle.events
