"""CP-SAT on the local polytope: a Boolean per label and per allowed pair, memory rows added when they are violated.

One worker at linearisation level 2 proves these problems through its LP; the pairs of a matrix sum to the labels on
either side, which is what makes that LP tight. Few of the memory rows ever matter, so the search starts with the
heaviest and adds the worst of each violated stretch of time; every relaxation's bound is a bound of the problem.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from ortools.sat.python import cp_model

from ..problem import Ints
from .incumbent import Incumbent
from .reduced import HALF, Loads, Reduced

EAGER_PLACES = 48  # as many memory rows are all stated at once
_EXACT_OBJECTIVE = 2**50  # larger objectives are scaled down, rounding costs down, so that bounds stay bounds


@dataclass(eq=False)
class _Stated:
    cp: cp_model.CpModel
    of_label: list[list[cp_model.IntVar]]
    scale: int
    counts: Ints


class _Watch(cp_model.CpSolverSolutionCallback):
    """Offers every solution, and ends the search once another engine has finished."""

    def __init__(self, stated: _Stated, incumbent: Incumbent) -> None:
        super().__init__()
        self._stated, self._incumbent = stated, incumbent

    def on_solution_callback(self) -> None:
        labels = [next(k for k, x in enumerate(row) if self.boolean_value(x)) for row in self._stated.of_label]
        self._incumbent.offer(np.array(labels, dtype=np.int64))
        if self._incumbent.finished.is_set():
            self.stop_search()


def run_exact(incumbent: Incumbent, seed: int, work_limit: float | None = None) -> None:
    """Searches until the deadline (or `work_limit` of deterministic work); offers what it finds to the incumbent."""
    model, loads = incumbent.model, incumbent.loads
    stated = _state(model)
    places = _first_places(incumbent)
    for place in places:
        _limit(stated, loads, place)
    while incumbent.left > 0.0:
        _hint(stated, incumbent.labels)
        status, labels = _run(stated, incumbent, seed, work_limit)
        if status == "infeasible":
            incumbent.need(places)
            incumbent.refute(engine())
            return
        violated = [p for p in violated_places(loads, labels) if p not in places] if labels is not None else []
        if not violated or (work_limit is not None and status != "optimal"):
            return
        incumbent.need(violated)
        for place in violated:
            _limit(stated, loads, place)
        places += violated


def engine() -> str:
    return f"CP-SAT {version('ortools')}"


def _first_places(incumbent: Incumbent) -> list[int]:
    loads = incumbent.loads
    if len(loads.slack) <= EAGER_PLACES:
        return list(range(len(loads.slack)))
    return list(incumbent.places) or _heaviest(loads)


def _state(model: Reduced) -> _Stated:
    """The Booleans, their sums and the objective, each matrix with its row and column minima moved into the labels."""
    cp = cp_model.CpModel()
    unary = [costs.copy() for costs in model.unary]
    of_label = [[cp.new_bool_var("") for _ in costs] for costs in unary]
    for variables in of_label:
        cp.add_exactly_one(variables)
    terms: list[cp_model.IntVar] = []
    costs: list[int] = []
    for (g, h), matrix in model.edges.items():
        _state_pairs(cp, of_label[g], of_label[h], normalised(matrix, unary[g], unary[h]), terms, costs)
    for variables, values in zip(of_label, unary, strict=True):
        terms += variables
        costs += values.tolist()
    scale = max(1, sum(abs(cost) for cost in costs) // _EXACT_OBJECTIVE)
    cp.minimize(cp_model.LinearExpr.weighted_sum(terms, [cost // scale for cost in costs]))
    return _Stated(cp, of_label, scale, model.label_counts)


def normalised(matrix: Ints, rows: Ints, cols: Ints) -> Ints:
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


def violated_places(loads: Loads, labels: Ints) -> list[int]:
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


def _run(stated: _Stated, incumbent: Incumbent, seed: int, work_limit: float | None) -> tuple[str, Ints | None]:
    """Solves what is stated so far; its bound holds for the whole problem whatever its labels break."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.linearization_level, parameters.random_seed = 1, 2, seed
    parameters.max_time_in_seconds = max(0.01, incumbent.left)
    if work_limit is not None:
        parameters.max_deterministic_time = work_limit
    over = threading.Event()
    stopper = threading.Thread(target=_stop_when_finished, args=(solver, incumbent, over), daemon=True)
    stopper.start()
    status = solver.solve(stated.cp, _Watch(stated, incumbent))
    over.set()
    stopper.join()
    if status == cp_model.INFEASIBLE:
        return "infeasible", None
    lower = _lower(stated, solver)
    if lower is not None:
        optimal = status == cp_model.OPTIMAL
        incumbent.trust(lower, engine(), "optimal" if optimal else "feasible")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "unknown", None
    labels = [next(k for k, x in enumerate(row) if solver.boolean_value(x)) for row in stated.of_label]
    return ("optimal" if status == cp_model.OPTIMAL else "feasible"), np.array(labels, dtype=np.int64)


def _stop_when_finished(solver: cp_model.CpSolver, incumbent: Incumbent, over: threading.Event) -> None:
    while not over.wait(0.1):
        if incumbent.finished.is_set():
            solver.stop_search()
            return


def _lower(stated: _Stated, solver: cp_model.CpSolver) -> int | None:
    """The bound in the problem's own units: integers, so what is proved strictly above k - 1 is at least k."""
    value = solver.best_objective_bound
    if not np.isfinite(value) or value < -HALF:
        return None
    slack = max(1e-6, 1e-14 * abs(value))  # large bounds are not told exactly
    return int(np.ceil(value - slack)) * stated.scale
