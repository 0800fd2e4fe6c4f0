"""The time a plan may take, from the moment it is asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


def now() -> float:
    """Seconds since some moment."""
    return time.monotonic()


@dataclass(frozen=True)
class Clock:
    """Counts down from ``limit`` seconds. What is done while it is not up never depends on it."""

    limit: float
    started: float = field(default_factory=now)

    @property
    def left(self) -> float:
        return max(0.0, self.started + self.limit - now())

    def spent(self, share: float) -> bool:
        """Whether this share of the time is gone."""
        return self.left <= (1 - share) * self.limit

    @property
    def up(self) -> bool:
        return self.left <= 0.0
