"""What the views want of a run: `tapestry.workers.RunResult` has it, and the planner need not know that class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..format.events import Event


class Run(Protocol):
    """A finished run: what every rank did when, how long it took, what it moved."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def wall_s(self) -> float: ...

    @property
    def bytes_moved(self) -> int: ...
