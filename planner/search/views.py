"""Answers in other views than the model's: with less of the transfers counted, which may be hidden, within less memory,
which leaves some for running ahead, and without the solver.

The simulator tells which of them is the shortest.
"""

from __future__ import annotations

from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from ..sharding.model import PICO, TIE
from .budgets import lesser
from .effort import EXPOSED, FEW, MANY, WORTH
from .found import Found
from .unsolved import unsolved

if TYPE_CHECKING:
    from .search import Search

# Answers with less memory in each view of overlap.
RUNGS = 6
# Options of all decisions together of programs that are asked for less memory though nothing waits for gathers.
OPTIONS = 100
# Of programs of many operations a choice that no solver made is lowered if it costs no more of the best by the model.
NEARLY = 1.05


def other_views(search: Search, best: Found) -> Found:
    """The shortest of the answers when less of the transfers counts, and when memory is left for running ahead, as
    much as answers with less memory leave.
    """
    return _Views(search, best).shortest()


class _Views:
    """Answers in one view after another, none of them lowered twice."""

    def __init__(self, search: Search, best: Found) -> None:
        self.search, self.question, self.best = search, search.question, best
        self.seen = [best.choice]
        self.first = {EXPOSED[0]: best.choice}  # by what counts of transfers, the answer with all of the memory
        self.small = len(self.question.program.operations) <= MANY
        self.waits = best.makespan_s > 1.02 * best.solution.objective / (TIE * PICO)

    def shortest(self) -> Found:
        """The shortest of all of them."""
        q, objective = self.question, self.best.solution.objective
        for budget, exposed in self._asked():
            if self.search.late:
                break
            answer = self.search.asked(budget, exposed, start=self.seen[0])
            if budget == q.capacity and answer.choice:
                self.first[exposed] = answer.choice
            self._look_at(answer.choice)
        # What is found by descent is seldom the solver's best, and at times waits for less. Over hosts groups of ranks
        # are looked for from this answer, and found more rarely from such a one.
        # Of large programs those are lowered that cost about as much by the model.
        if q.crowd == 1 and q.mesh.size <= q.machine.devices_per_host:
            most = inf if self.small else NEARLY * objective
            for choice in takewhile(lambda _: not self.search.late, unsolved(self.search)):
                if self.search.costs.of(choice) <= most:
                    self._look_at(choice)
        few = q.toil <= FEW and not self.search.translation.lazy
        if few and (self.waits or self._has_few_options()):
            self._look_within_less_memory()
        return self.best

    def _asked(self) -> list[tuple[int, int]]:
        """The (budget, what counts of transfers) that the solver is asked for."""
        capacity = self.question.capacity
        asked = [(capacity, exposed) for exposed in EXPOSED[1:]] if self.small else []
        if self.waits and self.best.candidate.peak > capacity * 9 // 10:
            asked += [(capacity * share // 20, EXPOSED[0]) for share in ((19, 18) if self.small else (18,))]
            asked += [(capacity * 18 // 20, EXPOSED[1])] if self.small else []
        return asked

    def _has_few_options(self) -> bool:
        nodes = self.search.model.nodes
        return sum(len(nodes[node].labels) for node in self.best.choice) <= OPTIONS

    def _look_within_less_memory(self) -> None:
        """Answers with less memory, as far down as one may be shorter if all transfers are hidden.

        An answer is that of every budget down to what it takes, so the next one is asked for below that.
        """
        least = 0  # bytes within which none may be
        for exposed in (EXPOSED[-1], EXPOSED[0]):
            choice = self.first.get(exposed, {})
            for _ in range(RUNGS):
                below = lesser(self.search.translation.taken(choice), 1) if choice else []
                if self.search.late or not below or below[0] <= least:
                    break
                answer = self.search.asked(below[0], exposed)
                slower = answer.infeasible or answer.bound >= WORTH * self.best.makespan_s * TIE * PICO
                if exposed == EXPOSED[-1] and slower:
                    least = below[0]
                    break
                choice = answer.choice
                self._look_at(choice)

    def _look_at(self, choice: dict[int, int]) -> None:
        """Lower a choice that there is, and that was not seen."""
        if not choice or choice in self.seen:
            return
        self.seen.append(choice)
        found = self._lowered(choice)
        if found is not None and found.candidate.peak <= self.question.capacity:
            self.search.seen.append(found)
            self.best = self.search.shorter(self.best, found)

    def _lowered(self, choice: dict[int, int]) -> Found | None:
        """A choice lowered. Of many operations, where places take long to look for, one that is no shorter than the
        best before they are is left.
        """
        if self.small:
            return self.search.lowered(choice, self.best.solution)
        return self.search.lowered_below(self.best, choice, self.best.solution)
