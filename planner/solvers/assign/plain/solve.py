"""Plain problems: reduced first, then the engines that suit their size, each answer counted in exact integers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..answer import Assignment, Certificate, EngineProof, Status
from ..direct import Request
from ..first import first_choices
from ..problem import AssignmentProblem
from ..standing import Span, Terms
from .conflict import find_conflict
from .incumbent import Incumbent
from .portfolio import Effort, run
from .reduce import Contradiction, reduce
from .reduced import Loads, Reduced, loads_of


def solve_plain(
    problem: AssignmentProblem, request: Request, iteration_limit: int | None, hint: Sequence[int] | None
) -> Assignment:
    """The answer for a problem without supplies or prices, of any size."""
    began, time_limit, seed = request.began, request.time_limit, request.seed
    try:
        model, steps = reduce(problem)
    except Contradiction:
        return _infeasible(problem, began, time_limit, seed, EngineProof("reduction", "infeasible", None), [])
    loads = loads_of(model)
    if (loads.slack < 0).any():
        places = np.flatnonzero(loads.slack < 0).tolist()
        return _infeasible(
            problem, began, time_limit, seed, EngineProof("reduction", "infeasible", None), _named(loads, places)
        )
    incumbent = Incumbent(model, loads, began, began + time_limit)
    _start(incumbent, hint, seed)
    prepared = time.monotonic() - began
    certificate = run(incumbent, steps, Effort(time_limit, prepared, seed, request.jobs, iteration_limit))
    if incumbent.infeasible:
        places = list(incumbent.places) or list(range(len(loads.slack)))
        return _infeasible(problem, began, time_limit, seed, incumbent.proof, _named(loads, places))
    return _answer(incumbent, certificate, began, seed)


def _start(incumbent: Incumbent, hint: Sequence[int] | None, seed: int) -> None:
    """Offers the hint, if the reduction has not ruled it out, or else first choices until one keeps the limits."""
    model = incumbent.model
    if hint is not None and len(hint) == model.problem.node_count:
        labels = model.lower(np.asarray(hint, dtype=np.int64))
        if labels is not None and incumbent.offer(labels):
            return
    for choice in first_choices(_terms(model, incumbent.loads), seed=seed):
        if incumbent.offer(np.array(choice, dtype=np.int64)):
            return


def _terms(model: Reduced, loads: Loads) -> Terms:
    """The reduced problem for first choices: groups as nodes, labels as strategies."""
    terms = Terms(model.unary, loads.slack)
    for (g, h), matrix in model.edges.items():
        terms.join(g, h, matrix)
    for g, first, start, stop in zip(loads.group.tolist(), loads.first.tolist(), loads.start, loads.stop, strict=True):
        amounts = loads.values[first : first + len(model.unary[g])]
        terms.held[g].append(Span(amounts, start.reshape(1), stop.reshape(1)))
    return terms


def _answer(incumbent: Incumbent, certificate: Certificate | None, began: float, seed: int) -> Assignment:
    found = incumbent.labels is not None
    choice = tuple(incumbent.model.lift(incumbent.labels).tolist()) if incumbent.labels is not None else ()
    cost = incumbent.cost if found else None
    status: Status = "unknown" if not found else "optimal" if incumbent.bound == cost else "feasible"
    wall, history = time.monotonic() - began, tuple(incumbent.history)
    return Assignment(status, choice, cost, incumbent.bound, certificate, None, wall, seed, history)


def _named(loads: Loads, places: Sequence[int]) -> list[tuple[int, int]]:
    """Places as (resource, instant)."""
    return [(int(loads.resource[p]), int(loads.instant[p])) for p in places]


def _infeasible(
    problem: AssignmentProblem,
    began: float,
    time_limit: float,
    seed: int,
    proof: EngineProof | None,
    places: list[tuple[int, int]],
) -> Assignment:
    left = time_limit - (time.monotonic() - began)
    conflict = find_conflict(problem, min(10.0, max(1.0, left)), places)
    return Assignment("infeasible", (), None, None, proof, conflict, time.monotonic() - began, seed)
