"""The time a plan may take, from the moment it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import TimeLimit

# Of the limit: what may be taken beyond it by the one plan without which there would be none.
LATE = 0.1
# How many times as long as reading a program for the planner it takes to lower one plan of it and to write that down,
# about: 7 times on 8 devices, 10 on 256.
WRITING = 10.0


def now() -> float:
    """Seconds since some moment."""
    return time.monotonic()


@dataclass(eq=False)
class Clock:
    """Counts down from ``limit`` seconds. What is done while it is not up never depends on it.

    ``kept``: seconds for what follows once it is up: as many as the longest lowering of a plan took. ``secured``:
    whether there is a plan already, so that nothing more has to be found. ``foretold``: seconds for lowering a plan and
    writing it down, before any was: half of them once there is one. ``late``: the share of the limit that may be taken
    beyond it where there is none.
    """

    limit: float
    started: float = field(default_factory=now)
    secured: bool = False
    kept: float = 0.0
    foretold: float = 0.0
    late: float = LATE

    @property
    def left(self) -> float:
        follows = max(self.kept, self.foretold / 2 if self.secured else self.foretold)
        return max(0.0, self.started + self.limit - follows - now())

    def left_of(self, share: float) -> float:
        """Seconds until this share of the time is gone."""
        return max(0.0, self.left - (1 - share) * self.limit)

    def spent(self, share: float) -> bool:
        """Whether this share of the time is gone."""
        return self.left <= (1 - share) * self.limit

    def after(self, share: float, least: float = 0.0) -> Callable[[], bool]:
        """Whether this share of the time that is left now is gone, and at least this share of all."""
        until, began = (1 - share) * self.left, now()
        return lambda: self.left <= until and now() - began >= least * self.limit

    @property
    def up(self) -> bool:
        return self.left <= 0.0

    def demand_left(self) -> None:
        """Raises TimeLimit where there is a plan and no time for another."""
        if self.secured and self.up:
            raise TimeLimit(f"no better plan was found within {self.limit:g} s", where="planning")

    @contextmanager
    def foretells(self, times: float) -> Iterator[None]:
        """Around what takes a part of the time that one plan will take: it takes so many times as long."""
        began = now()
        yield
        self.foretold = times * (now() - began)

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
        if not self.secured and now() > self.started + (1 + self.late) * self.limit:
            raise TimeLimit(
                f"no plan was found within {self.limit:g} s",
                where="planning",
                hint="give a longer --time-limit, or a mesh of fewer ranks, or pin part of the program",
            )
