"""Errors of a run."""

from __future__ import annotations

from ..errors import TapestryError


class TaskError(TapestryError):
    """A task failed on a rank. ``rank``, ``task`` and ``tensor`` say which; the cause is chained."""

    def __init__(self, what: str, *, rank: int, task: int | None = None, name: str = "", tensor: str = "") -> None:
        self.rank, self.task, self.name, self.tensor = rank, task, name, tensor
        place = f"rank {rank}" + ("" if task is None else f", task {task}") + (f" ({name})" if name else "")
        super().__init__(what, where=place, sides={"tensor": tensor} if tensor else None)


class PeerFailed(TapestryError):
    """Another rank failed, so this one stopped. Names the rank that failed first and what it said."""

    def __init__(self, origin: int, message: str) -> None:
        self.origin, self.message = origin, message
        super().__init__(f"stopped because rank {origin} failed", sides={"cause": message})


class Deadlock(TapestryError):
    """No task can start, and some have not run."""
