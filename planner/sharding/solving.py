"""The planner's model solved: the best choice within so many bytes, and the leanest one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ..solvers import assign
from ..solvers.assign import AssignmentProblem
from .assignment import Translation
from .narrow import Lazily, named, numbered


@dataclass(frozen=True)
class Solution:
    """``choice``: option per representative node; ``objective`` and ``bound`` in the model's units.

    ``status``: optimal, feasible, infeasible or unknown; in brackets whose word goes further, where nothing proves it.
    ``exhausted``: more time would not better it.
    """

    status: str
    choice: dict[int, int]
    objective: int
    bound: int
    exhausted: bool = False

    @property
    def infeasible(self) -> bool:
        """Whether nothing fits, by a proof or by the solver's word."""
        return self.status.startswith("infeasible")

    @property
    def gap(self) -> float:
        """How far from the best the choice may be; infinite where there is none."""
        if not self.choice:
            return 0.0 if self.infeasible else inf
        return max(0.0, 1 - self.bound / self.objective) if self.objective else 0.0


def solve(
    translation: Translation,
    capacity: int,
    *,
    time_limit: float,
    seed: int,
    jobs: int,
    exposed: int = 2,
    gap: float = 0.0,
    work_limit: int | None = None,
    prove: bool = True,
    start: Mapping[int, int] | None = None,
    without: Collection[tuple[int, int]] = (),
) -> Solution:
    """Best choice within so many bytes on a rank.

    exposed: 2 for the model's objective; 1 and 0 count transfers of values by half and not at all. gap: a choice
    proved to be that near to the best is good enough. work_limit: hundredths of CP-SAT's deterministic seconds;
    prove: whether what it says is proved again. start: a choice to begin with. without: nodes with options that no
    choice may have.
    """
    work, until = work_limit or _work_limit(time_limit), time.monotonic() + time_limit

    def ask(problem: AssignmentProblem, hint: Sequence[int] | None) -> assign.Assignment:
        left = max(0.05, until - time.monotonic())
        return assign.solve(problem, left, seed, jobs, work, hint, gap=gap, prove=prove)

    allowed = translation.allowed(without)
    if not all(allowed):
        return Solution("infeasible", {}, 0, 0)
    if translation.lazy:
        found = Lazily(translation, capacity, exposed, gap, until, without).solved(ask, start)
        return Solution(
            found.status,
            translation.choice(found.choice),
            found.cost * translation.unit,
            found.bound * translation.unit,
            found.exhausted,
        )
    hint = None if start is None else numbered([start[node] for node in translation.decided], allowed)
    problem = translation.problem(capacity, exposed)
    answer = ask(problem.restricted(allowed) if without else problem, hint)
    bound = (answer.bound or 0) * translation.unit
    status = answer.status if answer.claimed_by is None else f"{answer.status} ({answer.claimed_by})"
    cost = (answer.cost or 0) * translation.unit
    return Solution(status, translation.choice(named(answer.choice, allowed)), cost, bound, answer.exhausted)


@dataclass(frozen=True)
class Lean:
    """A choice that takes little memory, and the bytes that every choice takes at least."""

    choice: dict[int, int]
    least: int


def least_memory(translation: Translation, *, time_limit: float, seed: int, jobs: int) -> Lean | None:
    """The leanest choice that is found in time."""
    answer = assign.solve(translation.lean_problem(), time_limit, seed, jobs, _work_limit(time_limit), prove=False)
    least = max(0, (answer.bound or 0) - translation.spare)
    return Lean(translation.choice(answer.choice), least) if answer.choice else None


def _work_limit(time_limit: float) -> int:
    """Ends long searches at the same place on every machine, where the time limit does not end them first."""
    return int(50 * time_limit)
