"""A bound proved case by case: the strategies of one node in groups, each group bounded by elimination or split again.

What an exact solver claims is found again, where few cases do, in a form that the checker can recompute. Elimination
tells for every strategy how much more than its bound all choices with it cost: those far enough above are a case that
is closed at once, and what is left is a smaller problem with a better bound (branch and bound on reduced costs).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .answer import EliminationCertificate, ShareCertificate, SplitCertificate
from .lagrange import Relaxation
from .places import places_of
from .problem import FORBIDDEN, AssignmentProblem, Ints

MOST_NODES = 400  # of a problem that is worth it
_CASES = 200  # a case lies within another, and the checker goes down as deep
_WORK = 20_000_000  # entries that all eliminations together go through
_SET_UP = 20_000  # entries that a node is worth while an elimination is set up
_WIDEST = 4_000_000  # entries of one elimination

Prices = Mapping[tuple[int, int], int]
Kept = tuple[tuple[int, ...], ...]
Leaf = EliminationCertificate | ShareCertificate
Proof = Leaf | SplitCertificate


class _TooLong(Exception):
    """More cases, work or time than a proof is worth."""


def proof(problem: AssignmentProblem, target: int, seconds: float, kept: Kept = ()) -> Proof | None:
    """What certifies that every choice that fits costs at least `target`; None where that takes too much.

    `kept`: the strategies per node of the problem as it was given, of which `problem` has these alone.
    """
    try:
        found = _Prover(target, time.monotonic() + seconds).case(problem, {})
    except _TooLong:
        return None
    return replace(found, kept=kept)


@dataclass(eq=False)
class _Prover:
    target: int
    until: float
    cases: int = 0
    work: int = 0

    def case(self, problem: AssignmentProblem, prices: Prices) -> Proof:
        """Raises _TooLong. `prices`: multipliers to begin with, by (resource, instant)."""
        self.cases += 1
        self.work += _SET_UP * problem.node_count
        if self.cases > _CASES or self.work > _WORK or time.monotonic() > self.until:
            raise _TooLong
        relaxation = Relaxation.at_most(places_of(problem), _WIDEST)
        self._bound(relaxation, prices)
        if relaxation.impossible or relaxation.bound >= self.target:
            return leaf(relaxation)
        return self._closer(problem, relaxation)

    def _bound(self, relaxation: Relaxation, prices: Prices) -> None:
        relaxation.attempt(relaxation.placed(prices))
        if relaxation.bound < self.target and not relaxation.impossible:
            relaxation.ascend(0.0, self.until, self.target)
        self.work += relaxation.engine.work * len(relaxation.tried)

    def _closer(self, problem: AssignmentProblem, relaxation: Relaxation) -> Proof:
        """The strategies too dear by far, node after node, as closed cases; then what is left."""
        prices = relaxation.named
        spare, need = relaxation.engine.spare(), self.target - relaxation.bound
        allowed = {v: problem.costs[v] < FORBIDDEN // 2 for v in spare}
        closed = {v: np.flatnonzero((costs >= need) & allowed[v]) for v, costs in spare.items()}
        open_ = {v: np.flatnonzero((costs < need) & allowed[v]) for v, costs in spare.items()}
        first = [v for v, some in closed.items() if len(some) and len(open_[v])]
        if not first:
            return self._each(problem, _telling(spare, open_), prices)
        each = _SET_UP * problem.node_count
        if self.cases + len(first) >= _CASES or self.work + (len(first) + 1) * each > _WORK:
            raise _TooLong  # a case for each of these nodes and one for what is left will not do
        cases: list[tuple[int, tuple[int, ...], tuple[int, ...], Proof]] = []
        for v in first:
            dear, rest = tuple(closed[v].tolist()), tuple(open_[v].tolist())
            cases.append((v, dear, rest, self.case(only(problem, v, dear), prices)))
            problem = only(problem, v, rest)
        whole = self.case(problem, prices)
        for v, dear, rest, part in reversed(cases):
            whole = SplitCertificate(v, (dear, rest), (part, whole))
        return whole

    def _each(self, problem: AssignmentProblem, v: int, prices: Prices) -> Proof:
        """One case for every strategy of a node."""
        groups = tuple((s,) for s in np.flatnonzero(problem.costs[v] < FORBIDDEN // 2).tolist())
        if len(groups) < 2:
            raise _TooLong
        return SplitCertificate(v, groups, tuple(self.case(only(problem, v, group), prices) for group in groups))


def only(problem: AssignmentProblem, v: int, strategies: Sequence[int]) -> AssignmentProblem:
    """The problem in which a node has some of its strategies alone, numbered anew."""
    return problem.restricted(
        [strategies if w == v else range(count) for w, count in enumerate(problem.strategy_counts.tolist())]
    )


def leaf(relaxation: Relaxation) -> Leaf:
    """What certifies the bound of a relaxation."""
    prices = tuple(sorted((r, t, price) for (r, t), price in relaxation.named.items()))
    return relaxation.engine.certificate(prices)


def _telling(spare: Mapping[int, Ints], open_: Mapping[int, Ints]) -> int:
    """The node whose second-best strategy costs most above the bound: its cases differ most."""
    several = {v: float(np.partition(spare[v][mine], 1)[1]) for v, mine in open_.items() if len(mine) > 1}
    if not several:
        raise _TooLong
    return max(several, key=lambda v: (several[v], -v))
