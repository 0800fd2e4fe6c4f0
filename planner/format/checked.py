"""What may be run: a plan that its check accepted."""

from __future__ import annotations

from .resolve import Resolved


class Checked:
    """A plan that was proved. `planner.check.checked` makes it, and nothing else may; workers run nothing else."""

    __slots__ = ("resolved",)

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
