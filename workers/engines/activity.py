"""What the lanes of a rank are doing, as far as others have to know it: whether anything is still going on."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from ...planner.format import Transfer
from ..device import Bound
from ..result import name_of
from .doing import Doing


class Stillness(NamedTuple):
    """For how long nothing has begun, ended or been computed, and the transfers that are waited in."""

    seconds: float
    waiting: tuple[str, ...]


class Activity:
    """Notes when bound tasks begin and end, for a launcher too where there is one (``doing``). A device that returns
    from a transfer before it is done waits nowhere.
    """

    def __init__(self, doing: Doing | None = None) -> None:
        self._doing = doing
        self._inside: dict[int, Bound] = {}
        self._last = monotonic()

    def watched(self, bound: Bound) -> Bound:
        """The task, noted while it runs."""

        def run() -> None:
            self._inside[bound.task.id] = bound
            self._last = monotonic()
            if self._doing is not None:
                self._doing.begin(bound.task.id)
            try:
                bound.run()
            finally:
                del self._inside[bound.task.id]
                self._last = monotonic()
                if self._doing is not None:
                    self._doing.end(bound.task.id)

        return replace(bound, run=run)

    def stillness(self) -> Stillness:
        """No time at all while something is computed."""
        tasks = [bound.task for bound in list(self._inside.values())]
        if not all(isinstance(task, Transfer) for task in tasks):
            return Stillness(0.0, ())
        return Stillness(monotonic() - self._last, tuple(f"task {task.id} ({name_of(task)})" for task in tasks))
