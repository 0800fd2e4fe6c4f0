"""Problems too wide for an elimination, narrowed until they are not.

A bound says of every strategy what all choices with it cost at least. Those that no choice worth having takes are left
out; what is left may be narrow enough to be eliminated as a whole, or else its own bound is better, and leaves out more
(reduced costs fix variables between one relaxation and the next).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .answer import NarrowedCertificate
from .dominance import Kept
from .factors import TooWide
from .lagrange import Relaxation
from .places import places_of
from .problem import FORBIDDEN, AssignmentProblem
from .prove import Leaf, leaf

_MOST_ENTRIES = 10_000_000  # that an elimination of what is left goes through
_ROUNDS = 6
_WORTH = 10  # one in so many strategies is left out in a round that is worth it
_TRIES, _NEARER = 6, 4  # so often a part of what is left is taken, so many times nearer to the bound


@dataclass(eq=False)
class Narrowing:
    """What is left of a problem, of which strategies `left` are named per node, with a `relaxation` of it.

    `rounds`: what said that all others cost too much, and which were left then, in the numbers of that round. Choices
    with others cost `outside` at least.
    """

    problem: AssignmentProblem
    relaxation: Relaxation
    left: Kept
    outside: int = FORBIDDEN
    rounds: list[tuple[Leaf, Kept]] = field(default_factory=list)

    @staticmethod
    def of(problem: AssignmentProblem, relaxation: Relaxation) -> Narrowing:
        """Begins with all of the problem, and what a relaxation says of it."""
        left = tuple(tuple(range(count)) for count in problem.strategy_counts.tolist())
        return Narrowing(problem, relaxation, left)

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
        return self._named(self.relaxation, self.left) if all(self.left) else []

    def promising(self, enough: int, until: float) -> list[tuple[int, ...]]:
        """Choices among strategies near the bound, as many of those that choices which cost less than `enough` may have
        as an elimination can afford.
        """
        spare, reach = self.relaxation.engine.spare(), enough - self.relaxation.bound
        for _ in range(_TRIES if all(self.left) and not self.relaxation.whole else 0):
            near = [np.flatnonzero(spare[v] < reach).tolist() for v in range(self.problem.node_count)]
            if not all(near):
                return []
            try:
                relaxation = Relaxation.of(places_of(self.problem.restricted(near)), _MOST_ENTRIES)
            except TooWide:
                reach = max(1, reach // _NEARER)
                continue
            relaxation.ascend(0.0, until)
            return self._named(relaxation, _of(self.left, near))
        return []

    @staticmethod
    def _named(relaxation: Relaxation, left: Kept) -> list[tuple[int, ...]]:
        return [tuple(mine[s] for mine, s in zip(left, trial.choice, strict=True)) for trial in relaxation.trials]

    def narrow(self, enough: int, gap: float, until: float, *, whole: bool = False) -> bool:
        """Leaves out what no choice that costs less than `enough` takes, and bounds the rest; False where that leaves
        hardly anything out, or was done often enough. `gap` and `until` as in `Relaxation.ascend`. `whole`: only where
        what is left can be eliminated.
        """
        spare, before, first = self.relaxation.engine.spare(), self.relaxation.bound, leaf(self.relaxation)
        reach = enough - before
        near = tuple(tuple(np.flatnonzero(spare[v] < reach).tolist()) for v in range(self.problem.node_count))
        out = [int(more) for costs in spare.values() for more in costs[costs >= reach]]
        if len(out) * _WORTH <= sum(map(len, self.left)) or len(self.rounds) == _ROUNDS:
            return False
        rest = self.problem.restricted(near) if all(near) else None
        if whole and rest is not None and not _eliminable(rest):
            return False
        self.outside = min(self.outside, before + min(out))
        self.left = _of(self.left, near)
        self.rounds.append((first, near))
        if rest is not None:
            self.problem = rest
            self.relaxation = self.relaxation.among(self.problem, near, _MOST_ENTRIES)
            self.relaxation.ascend(gap, until)
        return True


def _eliminable(problem: AssignmentProblem) -> bool:
    try:
        Relaxation.of(places_of(problem), _MOST_ENTRIES)
    except TooWide:
        return False
    return True


def _of(left: Kept, near: Sequence[Sequence[int]]) -> Kept:
    """Some of the strategies that are left, in the numbers of all."""
    return tuple(tuple(mine[s] for s in some) for mine, some in zip(left, near, strict=True))
