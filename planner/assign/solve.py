"""`solve`: the problem reduced, then the engines that suit its size, each answer checked in exact integers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .conflict import Conflict, find_conflict
from .exact import Found, solve_exact
from .model import Loads, Model, loads_of
from .problem import AssignmentProblem
from .reduce import Contradiction, reduce

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True)
class EngineProof:
    """An exact solver's word: which solver, the status it ended with, and the bound it proved."""

    engine: str
    status: str
    bound: int | None


@dataclass(frozen=True)
class Assignment:
    """`choice[v]` is the strategy of node v (empty if none was found), `cost` its exact cost.

    `bound` is a certified lower bound on the cost of every feasible choice (None if there is none yet), and
    `certificate` says what certifies it. `conflict` is set where `status` is "infeasible".
    """

    status: Status
    choice: tuple[int, ...]
    cost: int | None
    bound: int | None
    certificate: EngineProof | None
    conflict: Conflict | None
    wall_s: float
    seed: int

    @property
    def gap(self) -> float | None:
        """(cost − bound) / cost: how far from optimal the choice can be at most."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / abs(self.cost) if self.cost else float(self.cost != self.bound)


def solve(
    problem: AssignmentProblem,
    time_limit: float = 60.0,
    seed: int = 0,
    jobs: int = 1,
    iteration_limit: int | None = None,
    hint: Sequence[int] | None = None,
) -> Assignment:
    """The cheapest feasible choice found within `time_limit` seconds, with a certified bound.

    With one job and an `iteration_limit` the answer depends on the seed alone, unless the time limit cuts first. `hint`
    is a choice to start from; it need not be feasible.
    """
    began = time.monotonic()
    try:
        model, _ = reduce(problem)
    except Contradiction:
        return _infeasible(problem, began, seed, EngineProof("reduction", "infeasible", None))
    loads = loads_of(model)
    if (loads.slack < 0).any():
        return _infeasible(problem, began, seed, EngineProof("reduction", "infeasible", None))
    start = _started(model, loads, hint)
    left = time_limit - (time.monotonic() - began)
    work = None if iteration_limit is None else float(iteration_limit)
    found = solve_exact(model, loads, time_limit=left, seed=seed, hint=start, work_limit=work)
    proof = EngineProof(found.engine, found.status, found.bound)
    if found.status == "infeasible":
        return _infeasible(problem, began, seed, proof, loads, found)
    return _assignment(model, found, proof, began, seed)


def _started(model: Model, loads: Loads, hint: Sequence[int] | None) -> np.ndarray | None:
    """The labels of a hint, if the reduction allows them and they keep within every limit."""
    if hint is None or len(hint) != model.problem.node_count:
        return None
    labels = model.lower(np.asarray(hint, dtype=np.int64))
    return labels if labels is not None and not (loads.excess(labels) > 0).any() else None


def _assignment(model: Model, found: Found, proof: EngineProof, began: float, seed: int) -> Assignment:
    choice = tuple(model.lift(found.labels).tolist()) if found.labels is not None else ()
    cost = model.cost(found.labels) if found.labels is not None else None
    return Assignment(found.status, choice, cost, found.bound, proof, None, time.monotonic() - began, seed)


def _infeasible(
    problem: AssignmentProblem,
    began: float,
    seed: int,
    proof: EngineProof,
    loads: Loads | None = None,
    found: Found | None = None,
) -> Assignment:
    places = None
    if loads is not None and found is not None:
        places = [(int(loads.resource[p]), int(loads.instant[p])) for p in found.places]
    conflict = find_conflict(problem, places=places)
    return Assignment("infeasible", (), None, None, proof, conflict, time.monotonic() - began, seed)
