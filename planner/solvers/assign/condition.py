"""Problems somewhat too wide for elimination: one node is decided, strategy after strategy, and the rest eliminated.

What an elimination carries along shrinks by as much as the decided node has strategies (cutset conditioning: Dechter,
Artificial Intelligence 41, 1990). The bound is the least of all cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .answer import SplitCertificate
from .eliminate import Elimination
from .factors import Factors, TooWide
from .lagrange import Relaxation
from .places import places_of
from .problem import FORBIDDEN, AssignmentProblem
from .prove import leaf, only

_MOST_NODES = 100  # of a problem whose orders of elimination are tried for every node decided
_WORK = 1_000_000_000  # entries that the first eliminations of all cases go through at most


@dataclass(frozen=True, eq=False)
class Cases:
    """A node with a relaxation for each of its strategies that are allowed, each begun."""

    node: int
    strategies: tuple[int, ...]
    relaxations: tuple[Relaxation, ...]

    @staticmethod
    def of(problem: AssignmentProblem) -> Cases:
        """By the node that leaves least work. Raises TooWide."""
        if problem.node_count > _MOST_NODES:
            raise TooWide
        work = {v: _work(problem, v) for v in range(problem.node_count) if problem.strategy_counts[v] > 1}
        fitting = {v: size for v, size in work.items() if size is not None and size <= _WORK}
        if not fitting:
            raise TooWide
        v = min(fitting, key=lambda v: (fitting[v], v))
        strategies = tuple(_allowed(problem, v))
        relaxations = tuple(Relaxation.of(places_of(only(problem, v, (s,)))) for s in strategies)
        return Cases(v, strategies, relaxations)

    @property
    def bound(self) -> int:
        return min(relaxation.bound for relaxation in self.relaxations)

    @property
    def certificate(self) -> SplitCertificate:
        groups = tuple((s,) for s in self.strategies)
        return SplitCertificate(self.node, groups, tuple(leaf(relaxation) for relaxation in self.relaxations))

    def choices(self) -> list[tuple[int, ...]]:
        """All choices seen, in the problem's own numbers."""
        return [
            (*trial.choice[: self.node], s, *trial.choice[self.node + 1 :])
            for s, relaxation in zip(self.strategies, self.relaxations, strict=True)
            for trial in relaxation.trials
        ]


def _work(problem: AssignmentProblem, v: int) -> int | None:
    """Entries of the eliminations of all cases of a node together; None if one is too wide."""
    strategies = _allowed(problem, v)
    if not strategies:
        return None
    factors = Factors(places_of(only(problem, v, strategies[:1])))
    try:
        return len(strategies) * Elimination(factors.sizes, factors.scopes(), place=factors.place).work
    except TooWide:
        return None


def _allowed(problem: AssignmentProblem, v: int) -> list[int]:
    found: list[int] = np.flatnonzero(problem.costs[v] < FORBIDDEN // 2).tolist()
    return found
