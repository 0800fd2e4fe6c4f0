"""Problems too wide for an elimination, narrowed until they are not.

An elimination in parts says of every strategy what all choices with it cost at least. Those that no choice worth having
takes are left out; arrays over what is left are so much smaller that wider ones can be afforded, their bound is better,
and leaves out more (reduced costs fix variables between one relaxation and the next).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .answer import NarrowedCertificate
from .dominance import Kept
from .lagrange import Relaxation
from .problem import FORBIDDEN, AssignmentProblem
from .prove import Leaf, leaf

_WIDER = 4  # times as many entries may be in an array of the next round
_MOST_ENTRIES = 10_000_000  # that an elimination goes through,
_ALL_ENTRIES = 100_000_000  # and those of all rounds together


@dataclass(eq=False)
class Narrowing:
    """What is left of a problem, of which strategies `left` are named per node, with a `relaxation` of it.

    `rounds`: what said that all others cost too much, and which were left then, in the numbers of that round. Choices
    with others cost `outside` at least.
    """

    problem: AssignmentProblem
    relaxation: Relaxation
    left: Kept
    widest: int  # entries of an array
    outside: int = FORBIDDEN
    rounds: list[tuple[Leaf, Kept]] = field(default_factory=list)
    entries: int = _ALL_ENTRIES  # that may still be gone through

    @staticmethod
    def of(problem: AssignmentProblem, relaxation: Relaxation, widest: int) -> Narrowing:
        """Begins with all of the problem, and what an elimination in parts says of it."""
        left = tuple(tuple(range(count)) for count in problem.strategy_counts.tolist())
        return Narrowing(problem, relaxation, left, widest)

    @property
    def bound(self) -> int:
        """What every choice costs at least."""
        return min(self.outside, self.relaxation.bound) if all(self.left) else self.outside

    @property
    def certificate(self) -> Leaf | NarrowedCertificate:
        """Of that bound."""
        found: Leaf | NarrowedCertificate | None = leaf(self.relaxation) if all(self.left) else None
        for first, left in reversed(self.rounds):
            found = NarrowedCertificate(first, left, found)
        assert found is not None
        return found

    def choices(self) -> list[tuple[int, ...]]:
        """Those seen in the last round."""
        trials = self.relaxation.trials if all(self.left) else []
        return [tuple(mine[s] for mine, s in zip(self.left, trial.choice, strict=True)) for trial in trials]

    def narrow(self, enough: int, gap: float, until: float) -> bool:
        """Leaves out what no choice that costs less than `enough` takes, and eliminates the rest in wider arrays; False
        where those are not affordable. `gap` and `until` as in `Relaxation.ascend`.
        """
        spare, before, first = self.relaxation.spare(), self.relaxation.bound, leaf(self.relaxation)
        reach = enough - before
        near = tuple(tuple(np.flatnonzero(spare[v] < reach).tolist()) for v in range(self.problem.node_count))
        if all(near) and not self._widen(self.problem.restricted(near), gap, until):
            return False
        out = [int(more) for costs in spare.values() for more in costs[costs >= reach]]
        if out:
            self.outside = min(self.outside, before + min(out))
            self.left = tuple(tuple(mine[s] for s in some) for mine, some in zip(self.left, near, strict=True))
            self.rounds.append((first, near))
        return True

    def _widen(self, problem: AssignmentProblem, gap: float, until: float) -> bool:
        """Takes a problem with a wider relaxation of it, if that is affordable."""
        relaxation = Relaxation.of_parts(problem, _WIDER * self.widest)
        work = relaxation.elimination.work
        if work > min(_MOST_ENTRIES, self.entries):
            return False
        relaxation.ascend(gap, until, trials=self.entries // work)
        self.entries -= work * relaxation.attempts
        self.problem, self.relaxation, self.widest = problem, relaxation, _WIDER * self.widest
        return True
