"""CP-SAT on the local polytope: a Boolean per label and per allowed pair, memory rows added when they are violated.

One worker at linearisation level 2 proves these problems through its LP; the pairs of a matrix sum to the labels on
either side, which is what makes that LP tight. Few of the memory rows ever matter, so the search starts with the
heaviest and adds the worst of each violated stretch of time; every relaxation's bound is a bound of the problem.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import numpy as np
from ortools.sat.python import cp_model

from .model import HALF, Loads, Model
from .problem import Ints

EAGER_PLACES = 48  # as many memory rows are all stated at once
_EXACT_OBJECTIVE = 2**50  # larger objectives are scaled down, rounding costs down, so that bounds stay bounds

Outcome = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, eq=False)
class Found:
    """What one engine knows: the best labels it has (or None), a lower bound (or None), and its own status."""

    status: Outcome
    labels: Ints | None = None
    bound: int | None = None
    engine: str = ""
    places: tuple[int, ...] = ()  # the memory rows that were needed


@dataclass(eq=False)
class _Stated:
    cp: cp_model.CpModel
    of_label: list[list[cp_model.IntVar]]
    scale: int
    constant: int
    counts: Ints


def solve_exact(
    model: Model,
    loads: Loads,
    *,
    time_limit: float,
    seed: int = 0,
    hint: Ints | None = None,
    work_limit: float | None = None,
) -> Found:
    """Solves to optimality, or as far as `time_limit` seconds (or `work_limit` of deterministic work) allow."""
    deadline = time.monotonic() + time_limit
    stated = _state(model)
    stated_places = _heaviest(loads) if len(loads.slack) > EAGER_PLACES else list(range(len(loads.slack)))
    for place in stated_places:
        _limit(stated, loads, place)
    best, best_cost, bound = hint, model.cost(hint) if hint is not None else HALF, None
    while True:
        _hint(stated, best)
        status, labels, lower = _run(stated, deadline - time.monotonic(), seed, work_limit)
        if status == "infeasible":
            return Found(status, engine=_engine(), places=tuple(stated_places))
        bound = lower if bound is None else max(bound, lower or bound)
        violated = _violated(loads, labels) if labels is not None else []
        if labels is not None and not violated and model.cost(labels) < best_cost:
            best, best_cost = labels, model.cost(labels)
        if best is not None and bound is not None and bound >= best_cost:
            return Found("optimal", best, best_cost, _engine(), tuple(stated_places))
        if not violated or time.monotonic() >= deadline:
            return Found("feasible" if best is not None else "unknown", best, bound, _engine(), tuple(stated_places))
        for place in violated:
            _limit(stated, loads, place)
        stated_places += violated


def _engine() -> str:
    return f"CP-SAT {version('ortools')}"


def _state(model: Model) -> _Stated:
    """The Booleans, their sums and the objective, each matrix with its row and column minima moved into the labels."""
    cp = cp_model.CpModel()
    unary = [costs.copy() for costs in model.unary]
    of_label = [[cp.new_bool_var("") for _ in costs] for costs in unary]
    for variables in of_label:
        cp.add_exactly_one(variables)
    terms: list[cp_model.IntVar] = []
    costs: list[int] = []
    for (g, h), matrix in model.edges.items():
        _state_pairs(cp, of_label[g], of_label[h], _normalised(matrix, unary[g], unary[h]), terms, costs)
    for variables, values in zip(of_label, unary, strict=True):
        terms += variables
        costs += values.tolist()
    scale = max(1, sum(abs(cost) for cost in costs) // _EXACT_OBJECTIVE)
    cp.minimize(cp_model.LinearExpr.weighted_sum(terms, [cost // scale for cost in costs]))
    return _Stated(cp, of_label, scale, 0, model.label_counts)


def _normalised(matrix: Ints, rows: Ints, cols: Ints) -> Ints:
    """The matrix less its row and column minima, which are added to the labels (in place)."""
    by_row = matrix.min(axis=1)
    rows += by_row
    matrix = np.where(matrix >= HALF, matrix, matrix - by_row[:, None])
    by_col = matrix.min(axis=0)
    cols += by_col
    return np.where(matrix >= HALF, matrix, matrix - by_col[None, :])


def _state_pairs(
    cp: cp_model.CpModel,
    rows: list[cp_model.IntVar],
    cols: list[cp_model.IntVar],
    matrix: Ints,
    terms: list[cp_model.IntVar],
    costs: list[int],
) -> None:
    if not matrix.any():
        return
    pair = {(i, j): cp.new_bool_var("") for i, j in np.argwhere(matrix < HALF).tolist()}
    for i, row in enumerate(rows):
        cp.add(cp_model.LinearExpr.sum([pair[i, j] for j in range(len(cols)) if (i, j) in pair]) == row)
    for j, col in enumerate(cols):
        cp.add(cp_model.LinearExpr.sum([pair[i, j] for i in range(len(rows)) if (i, j) in pair]) == col)
    for (i, j), variable in pair.items():
        if matrix[i, j]:
            terms.append(variable)
            costs.append(int(matrix[i, j]))


def _limit(stated: _Stated, loads: Loads, place: int) -> None:
    """States the limit of one instant."""
    variables: list[cp_model.IntVar] = []
    amounts: list[int] = []
    for g, held in loads.row(place, stated.counts).items():
        for label in np.flatnonzero(held).tolist():
            variables.append(stated.of_label[g][label])
            amounts.append(int(held[label]))
    stated.cp.add(cp_model.LinearExpr.weighted_sum(variables, amounts) <= int(loads.slack[place]))


def _heaviest(loads: Loads) -> list[int]:
    """The place where the largest loads exceed the limit most."""
    top = np.zeros(len(loads.slack) + 1, dtype=np.int64)
    bounds = np.append(loads.first, len(loads.values))
    largest = np.maximum.reduceat(loads.values, bounds[:-1])
    np.add.at(top, loads.start, largest)
    np.add.at(top, loads.stop, -largest)
    return [int((np.cumsum(top)[:-1] - loads.slack).argmax())]


def _violated(loads: Loads, labels: Ints) -> list[int]:
    """The worst place of each violated stretch, at most 8 of them."""
    excess = loads.excess(labels)
    places = np.flatnonzero(excess > 0)
    if not len(places):
        return []
    stretches = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    worst = [int(stretch[excess[stretch].argmax()]) for stretch in stretches]
    return sorted(worst, key=lambda place: (-int(excess[place]), place))[:8]


def _hint(stated: _Stated, labels: Ints | None) -> None:
    stated.cp.clear_hints()  # type: ignore[no-untyped-call]
    if labels is not None:
        for variables, chosen in zip(stated.of_label, labels, strict=True):
            for label, variable in enumerate(variables):
                stated.cp.add_hint(variable, label == chosen)


def _run(
    stated: _Stated, seconds: float, seed: int, work_limit: float | None
) -> tuple[Outcome, Ints | None, int | None]:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.linearization_level, parameters.random_seed = 1, 2, seed
    parameters.max_time_in_seconds = max(0.01, seconds)
    if work_limit is not None:
        parameters.max_deterministic_time = work_limit
    status = solver.solve(stated.cp)
    if status == cp_model.INFEASIBLE:
        return "infeasible", None, None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "unknown", None, _lower(stated, solver)
    labels = np.array(
        [next(k for k, x in enumerate(variables) if solver.boolean_value(x)) for variables in stated.of_label]
    )
    return ("optimal" if status == cp_model.OPTIMAL else "feasible"), labels, _lower(stated, solver)


def _lower(stated: _Stated, solver: cp_model.CpSolver) -> int | None:
    """The bound in the problem's own units: integers, so what is proved strictly above k - 1 is at least k."""
    value = solver.best_objective_bound
    if not np.isfinite(value) or value < -HALF:
        return None
    return int(np.floor(value + 1e-6)) * stated.scale + stated.constant
