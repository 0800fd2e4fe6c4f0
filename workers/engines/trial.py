"""A step that may fail on one rank of many: it goes on to its end everywhere, and then all ranks know who failed.

Ranks wait for what others send. One whose task failed therefore takes part in all that is left of the step, with
whatever its buffers hold, and computes nothing more. So a step ends on every rank or on none, states can be put back on
all of them, and the next step may follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from time import time

from ...planner.format import Transfer
from ..device import Bound
from ..faults import PeerFailed, described
from .group import Group

NEVER = float("inf")


class Trial:
    """Of one rank: what went wrong first, and when."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.error: BaseException | None = None
        self.at, self.failures, self._lock = NEVER, 0, Lock()

    def bound(self, bound: Bound) -> Bound:
        """The same task, whose error is kept. A transfer is carried out whatever happened: the others wait for it."""
        if isinstance(bound.task, Transfer):
            return bound

        def run() -> None:
            if self.error is None:
                with bound.place:
                    bound.run()

        return replace(bound, run=lambda: self.kept(run))

    def kept(self, run: Callable[[], object]) -> None:
        """Run something, and keep its error; those of other ranks are raised."""
        try:
            run()
        except PeerFailed:
            raise
        except Exception as error:
            with self._lock:
                if self.error is None:
                    self.error, self.at = error, time()

    def raised(self) -> None:
        """Raise what went wrong on this rank since the last time."""
        error, self.error, self.at = self.error, None, NEVER
        if error is not None:
            raise error

    def settled(self) -> None:
        """On all ranks, if something went wrong on one: the error there, PeerFailed on the others. All ranks call it,
        and may go on afterwards.
        """
        first = -self.group.maximum(-self.at)
        if first == NEVER:
            return
        origin = int(self.group.maximum(self.group.rank if self.at == first else -1))
        self.failures += 1
        name = f"failure{self.failures}-of-a-step-"
        if origin == self.group.rank and self.error is not None:
            self.group.tell(name, json.dumps(described(self.error, origin)))
            self.raised()
        cause = json.loads(self.group.heard_from(name, origin))
        self.error, self.at = None, NEVER
        raise PeerFailed(origin, cause)
