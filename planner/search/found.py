"""A plan that was found, with the choice that it came from."""

from __future__ import annotations

from dataclasses import dataclass

from ..sharding.assignment import Solution
from .candidates import Candidate


@dataclass(frozen=True, eq=False)
class Found:
    """``solution`` is the solver's answer to the model itself.

    ``choice`` is empty where operations were placed on groups of ranks: then the solution's objective and bound are
    those of the placement.
    """

    candidate: Candidate
    choice: dict[int, int]
    solution: Solution

    @property
    def makespan_s(self) -> float:
        return self.candidate.timeline.makespan_s

    @property
    def least_s(self) -> float:
        """The work of the busiest rank: what hides all its transfers takes no less."""
        return self.candidate.timeline.compute_s
