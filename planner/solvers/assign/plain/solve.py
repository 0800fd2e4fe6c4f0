"""Plain problems: reduced first, then the engines that suit their size, each answer counted in exact integers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..answer import Assignment, Certificate, DualCertificate, EngineClaim, Status
from ..direct import Request
from ..first import first_choices
from ..problem import AssignmentProblem, cost_bound
from ..prove import MOST_NODES, proof
from ..standing import Span, Terms
from .conflict import find_conflict
from .incumbent import Incumbent
from .portfolio import Certified, Effort, run
from .reduce import Contradiction, reduce
from .reduced import Loads, Reduced, loads_of


def solve_plain(
    problem: AssignmentProblem,
    request: Request,
    iteration_limit: int | None,
    hint: Sequence[int],
    known: Assignment | None,
) -> Assignment:
    """The answer for a problem without supplies or prices, of any size. `known`: what elimination has found so far."""
    if known is not None and known.status == "infeasible":
        return _infeasible(problem, request, known.certificate, None, [])
    try:
        model, steps = reduce(problem)
    except Contradiction as found:
        return _infeasible(problem, request, DualCertificate(found.steps, (), (), 1, (), 1), None, [])
    loads = loads_of(model)
    if (loads.slack < 0).any():
        places = _named(loads, np.flatnonzero(loads.slack < 0).tolist())
        dear = (*places[0], 4 * cost_bound(problem) + 2)  # so dear that what is above the limit costs more than all
        return _infeasible(problem, request, DualCertificate(steps, (), (), 1, (dear,), 1), None, places)
    incumbent = Incumbent(model, loads, request.began, request.began + request.time_limit)
    _start(incumbent, hint, request.seed)
    prepared = time.monotonic() - request.began
    effort = Effort(request.time_limit, prepared, request.seed, request.jobs, iteration_limit)
    made = run(incumbent, steps, effort)
    if incumbent.infeasible:
        places = _named(loads, list(incumbent.places) or list(range(len(loads.slack))))
        return _infeasible(problem, request, None, incumbent.claim, places)
    return _answer(incumbent, _proved(problem, request, incumbent, _better(made, known)), request)


def _better(made: Certified, known: Assignment | None) -> tuple[int, Certificate]:
    """The higher of two bounds that can be recomputed."""
    if known is None or known.bound is None or known.certificate is None or known.bound <= made[0]:
        return made
    return known.bound, known.certificate


def _proved(
    problem: AssignmentProblem, request: Request, incumbent: Incumbent, best: tuple[int, Certificate]
) -> tuple[int, Certificate]:
    """Where an exact solver claims the optimum of a small problem, a proof of it if that is affordable."""
    claim = incumbent.claim
    affordable = request.prove and problem.node_count <= MOST_NODES
    if claim is None or claim.status != "optimal" or best[0] >= incumbent.cost or not affordable:
        return best
    certificate = proof(problem, incumbent.cost, request.left)
    return best if certificate is None else (incumbent.cost, certificate)


def _start(incumbent: Incumbent, hint: Sequence[int], seed: int) -> None:
    """Offers the hint, if the reduction has not ruled it out, or else first choices until one keeps the limits."""
    model = incumbent.model
    if len(hint) == model.problem.node_count:
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


def _answer(incumbent: Incumbent, certified: tuple[int, Certificate], request: Request) -> Assignment:
    found, (bound, certificate), claim = incumbent.labels is not None, certified, incumbent.claim
    choice = tuple(incumbent.model.lift(incumbent.labels).tolist()) if incumbent.labels is not None else ()
    cost = incumbent.cost if found else None
    status: Status = "unknown" if not found else "optimal" if bound == cost else "feasible"
    more = claim if claim is not None and claim.says_more_than(bound) else None
    wall, history = time.monotonic() - request.began, tuple(incumbent.history)
    return Assignment(status, choice, cost, bound, certificate, None, wall, request.seed, history, more)


def _named(loads: Loads, places: Sequence[int]) -> list[tuple[int, int]]:
    """Places as (resource, instant)."""
    return [(int(loads.resource[p]), int(loads.instant[p])) for p in places]


def _infeasible(
    problem: AssignmentProblem,
    request: Request,
    certificate: Certificate | None,
    claim: EngineClaim | None,
    places: list[tuple[int, int]],
) -> Assignment:
    conflict = find_conflict(problem, min(10.0, max(1.0, request.left)), places)
    wall = time.monotonic() - request.began
    return Assignment("infeasible", (), None, None, certificate, conflict, wall, request.seed, claim=claim)
