"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..planner.format.events import Event as Event
from .numpy.folding import Array


@dataclass(frozen=True)
class RunResult:
    """``outputs``: whole arrays by name, new states included. ``bytes_moved``: what ranks received from other ranks.

    ``wall_s`` is the time from the first task to the last, inputs in place and tasks bound; ``events`` are in order of
    their start. ``rank`` is the rank of this process where every rank has its own; ranks other than 0 have no outputs.
    """

    outputs: dict[str, Array]
    bytes_moved: int
    wall_s: float
    events: list[Event] = field(default_factory=list)
    rank: int = 0
