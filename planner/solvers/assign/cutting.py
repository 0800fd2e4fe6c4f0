"""The linear program of the cutting planes: the multipliers at which the choices seen so far allow the best bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from .factors import PRICE_UNIT
from .places import Places
from .problem import FORBIDDEN

if TYPE_CHECKING:
    from .lagrange import Trial


def highest(
    places: Places, trials: Sequence[Trial], around: Mapping[int, int], most: Mapping[int, float]
) -> tuple[float, dict[int, int]]:
    """The largest bound that `trials` allow, and multipliers for it: at most `most`, at least a 16th of `around`.

    Bounds and multipliers are scaled to sizes near 1.
    """
    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    scale = float(max(abs(trials[0].cost), 1))
    unit = {p: scale / max(1.0, float(max(t.profile[p] for t in trials))) for p in most}
    top = solver.NumVar(-solver.infinity(), solver.infinity(), "")
    price = {p: solver.NumVar(around.get(p, 0) / PRICE_UNIT / 16 / unit[p], most[p] / unit[p], "") for p in most}
    above = {}
    for r in sorted({int(places.resource[p]) for p in most}):
        limit, own = int(places.limit[places.resource == r][0]), places.problem.price(r)
        per_unit = max(unit[p] for p in most if places.resource[p] == r)
        free = solver.NumVar(0.0, solver.infinity() if limit < FORBIDDEN else 0.0, "")
        solver.Add(
            sum(price[p] * (unit[p] / per_unit) for p in most if places.resource[p] == r) - free <= own / per_unit
        )
        above[r] = (free, limit * per_unit / scale)
    for trial in trials:
        charged = sum(price[p] * (float(trial.profile[p]) * unit[p] / scale) for p in most)
        solver.Add(top <= trial.linear / scale + charged - sum(free * worth for free, worth in above.values()))
    solver.Maximize(top)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return -float("inf"), {}
    found = {p: max(0, round(price[p].solution_value() * unit[p] * PRICE_UNIT)) for p in most}
    for r in above:
        _cap(places, r, found)
    return top.solution_value() * scale, {p: value for p, value in found.items() if value}


def _cap(places: Places, r: int, found: dict[int, int]) -> None:
    """Takes what rounding added off the largest multiplier of a resource without limit: no sum above its price."""
    mine = [p for p in found if places.resource[p] == r]
    above = sum(found[p] for p in mine) - places.problem.price(r) * PRICE_UNIT
    if above > 0 and places.problem.limits[r] >= FORBIDDEN:
        largest = max(mine, key=lambda p: found[p])
        found[largest] = max(0, found[largest] - above)
