"""The time a plan may take, from the moment it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import TimeLimit

# Of the limit: what may be taken beyond it by the one plan without which there would be none.
LATE = 0.1


def now() -> float:
    """Seconds since some moment."""
    return time.monotonic()


@dataclass(eq=False)
class Clock:
    """Counts down from ``limit`` seconds. What is done while it is not up never depends on it.

    ``kept``: seconds for what follows once it is up: as many as the longest lowering of a plan took. ``secured``:
    whether there is a plan already, so that nothing more has to be found.
    """

    limit: float
    started: float = field(default_factory=now)
    secured: bool = False
    kept: float = 0.0

    @property
    def left(self) -> float:
        return max(0.0, self.started + self.limit - self.kept - now())

    def left_of(self, share: float) -> float:
        """Seconds until this share of the time is gone."""
        return max(0.0, self.left - (1 - share) * self.limit)

    def spent(self, share: float) -> bool:
        """Whether this share of the time is gone."""
        return self.left <= (1 - share) * self.limit

    def after(self, share: float) -> Callable[[], bool]:
        """Whether this share of the time that is left now is gone."""
        until = (1 - share) * self.left
        return lambda: self.left <= until

    @property
    def up(self) -> bool:
        return self.left <= 0.0

    @contextmanager
    def last_of_all(self, times: float = 1.0) -> Iterator[None]:
        """Around what may still be done once the time is up: from now on as much is kept for it, or as many times as
        much.
        """
        began = now()
        yield
        self.kept = max(self.kept, times * (now() - began))

    def demand(self) -> None:
        """Raises TimeLimit where the time is over by more than a little, and there is no plan."""
        if not self.secured and now() > self.started + (1 + LATE) * self.limit:
            raise TimeLimit(
                f"no plan was found within {self.limit:g} s",
                where="planning",
                hint="give a longer --time-limit, or a mesh of fewer ranks, or pin part of the program",
            )
