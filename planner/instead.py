"""What a plan would take with one operation cut otherwise: lowered again and simulated, all else equal.

Schedules are tried for the plan as it is, and the one that comes nearest to it is kept for what is tried instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..program import Operation
from ..records import width_of
from .lowering.decisions import Decisions
from .search.candidates import Candidate, best_candidate, lower
from .search.question import Question
from .sharding.nodes import sink_node
from .strategy.layouts import Layout
from .strategy.strategies import Strategy


@dataclass(frozen=True)
class Tried:
    """Seconds of the whole step beside those of the plan; whether it fits into the memory there is."""

    extra_s: float
    fits: bool


class Instead:
    """Simulates alternatives of a plan's operations; what was simulated is remembered.

    ``stated_s``: the makespan that the plan states.
    """

    def __init__(
        self, question: Question, strategies: Mapping[str, Strategy], homes: Mapping[str, Layout], stated_s: float
    ) -> None:
        self.question, self.stated_s = question, stated_s
        self.decisions = self._ended(Decisions(homes, strategies, {}))
        self._tried: dict[tuple[str, int], Tried] = {}

    @cached_property
    def now(self) -> Candidate:
        """The plan as it is, lowered again."""
        return best_candidate(self.question, self.decisions, self.stated_s)

    def tried(self, op: Operation, strategy: Strategy) -> Tried:
        """With another strategy for one operation."""
        key = (op.name, id(strategy))
        if key not in self._tried:
            other = self._ended(
                replace(self.decisions, strategies={**self.decisions.strategies, op.name: strategy}, ends={})
            )
            found = lower(self.question, other, self.now.schedule)
            extra = found.timeline.makespan_s - self.now.timeline.makespan_s
            self._tried[key] = Tried(extra, found.peak <= self.question.capacity)
        return self._tried[key]

    def _ended(self, decisions: Decisions) -> Decisions:
        """Results that are left in shares end where that takes least."""
        program, ends = self.question.program, dict[str, Layout]()
        for name in dict.fromkeys((*program.outputs, *(value for _, value in program.states))):
            have = decisions.made(program, name)
            if have.parts is not None:
                node = sink_node(program.tensor(name), self.question.table, [have])
                width = width_of(program, name)
                ends[name] = min(node.ends, key=lambda end: self.question.pricing.move(have, end, width).seconds)
        return replace(decisions, ends=ends)
