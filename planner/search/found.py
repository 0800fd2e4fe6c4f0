"""A plan that was found, with the choice that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..sharding.solving import Solution
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

    @cached_property
    def least_s(self) -> float:
        """What the busiest lane of a rank is at work: hiding its transfers, or its work behind them, takes no less."""
        timeline = self.candidate.timeline
        busy: dict[str, list[float]] = {}
        for run in timeline.runs:
            spans = [end - start for start, end in zip(run.starts, run.ends, strict=True)]
            before = busy.get(run.lane, [0.0] * len(spans))
            busy[run.lane] = [sum(pair) for pair in zip(before, spans, strict=True)]
        return max((max(spans) for spans in busy.values()), default=0.0)
