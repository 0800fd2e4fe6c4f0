"""How much work a proof may take: a few kilobytes must not keep the checker busy for ever.

Work is counted, not timed, so that a verdict is the same on every machine. A unit is about a microsecond: a pair of
tasks compared, or a pair of runs of two index sets met. What a document may take grows with what is written in it.
"""

from __future__ import annotations

BASE = 3_000_000
PER_EVENT = 100


class Exhausted(Exception):
    """The budget is spent; the text says on what."""


class Budget:
    """What is left of the work that one document may take."""

    def __init__(self, units: int = BASE) -> None:
        self.left = units

    def grant(self, events: int) -> None:
        """Room for a plan of so many tasks on so many ranks each."""
        self.left += PER_EVENT * events

    def spend(self, units: int, what: str) -> None:
        """Raises Exhausted once nothing is left."""
        self.left -= units
        if self.left < 0:
            raise Exhausted(what)
