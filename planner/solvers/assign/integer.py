"""A whole problem as an integer program for CP-SAT: tight marginals for edges and supplies, one row per place.

For a supply with forms f of its source and items i: u_i says that some reader asks for i, w_i that i is supplied (no
larger item is asked for), y_fi that it is so from f. Σ_f y_fi = w_i and y_fi ≤ x_f: the local polytope of the pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from .places import Places
from .problem import FORBIDDEN, Ints, cost_bound
from .supply import Supply

_HALF = FORBIDDEN // 2
_COSTS_BITS = 52  # larger objectives are scaled down, costs rounded down, so that bounds stay bounds
_LOAD_BITS = 42  # and so are the loads of a priced resource


@dataclass(frozen=True)
class Found:
    """`bound` holds for every choice of the allowed strategies; none where there is no such choice."""

    status: str
    choice: tuple[int, ...]
    bound: int | None


def engine() -> str:
    """The solver and its version."""
    return f"CP-SAT {version('ortools')}"


class Statement:
    """A problem written down for CP-SAT, restricted to the allowed strategies."""

    def __init__(self, places: Places, allowed: Sequence[NDArray[np.bool_]]) -> None:
        self.places, self.problem, self.cp = places, places.problem, cp_model.CpModel()
        self.x = [self._choice_of(v, allowed[v]) for v in range(self.problem.node_count)]
        total = cost_bound(self.problem)
        self.scale = max(1, total >> _COSTS_BITS)
        self.terms: list[tuple[int, Any]] = []  # coefficient, 0/1 expression
        for v, literals in enumerate(self.x):
            self._pay(self.problem.costs[v], literals)
        for e in range(len(self.problem.edges)):
            self._state_edge(e)
        self.moves = [self._state_supply(supply) for supply in self.problem.supplies]
        self._state_places()
        self.cp.minimize(_weighted(self.terms))

    def _choice_of(self, v: int, allowed: NDArray[np.bool_]) -> list[Any]:
        """A Boolean per allowed strategy, the constant 0 for the others; a single one is the constant 1."""
        open_ = allowed & (self.problem.costs[v] < _HALF)
        if open_.sum() == 1:
            return [int(is_open) for is_open in open_]
        literals = [self.cp.new_bool_var("") if is_open else 0 for is_open in open_]
        self.cp.add_exactly_one([literal for literal in literals if not isinstance(literal, int)])
        return literals

    def _pay(self, costs: Ints, literals: Sequence[Any]) -> None:
        for cost, literal in zip(costs.tolist(), literals, strict=True):
            if cost and not _is(literal, 0):
                self.terms.append((cost // self.scale, literal))

    def _state_edge(self, e: int) -> None:
        u, v = self.problem.edges[e].tolist()
        matrix = self.problem.matrix(e)
        if u == v:
            for s, literal in enumerate(self.x[u]):
                self._pay_or_forbid(int(matrix[s, s]), literal)
            return
        pairs: dict[tuple[int, int], Any] = {}
        for s, t in np.argwhere(matrix < _HALF).tolist():
            if not _is(self.x[u][s], 0) and not _is(self.x[v][t], 0):
                pairs[s, t] = self.cp.new_bool_var("")
                self._pay(matrix[s, t : t + 1], [pairs[s, t]])
        for s, literal in enumerate(self.x[u]):
            self.cp.add(sum(pair for (a, _), pair in pairs.items() if a == s) == literal)
        for t, literal in enumerate(self.x[v]):
            self.cp.add(sum(pair for (_, b), pair in pairs.items() if b == t) == literal)

    def _pay_or_forbid(self, cost: int, literal: Any) -> None:
        if cost >= _HALF:
            self.cp.add(literal == 0)
        else:
            self._pay(np.array([cost]), [literal])

    def _state_supply(self, supply: Supply) -> list[tuple[int, int, Any]]:
        """(strategy of the source that stands for its form, item, literal) of everything that has a cost or amount."""
        forms = self._forms(supply)
        asked: dict[int, list[Any]] = {}
        for v, asks in zip(supply.readers, supply.asks, strict=True):
            by_item: dict[int, list[Any]] = {}
            for strategy, item in enumerate(asks.tolist()):
                if item >= 0 and not _is(self.x[v][strategy], 0):
                    by_item.setdefault(item, []).append(self.x[v][strategy])
            for item, literals in by_item.items():
                asked.setdefault(item, []).append(_sum(literals))
        used = {item: self._any(terms) for item, terms in asked.items()}
        return [move for item in used for move in self._moves(supply, item, used, forms)]

    def _forms(self, supply: Supply) -> list[tuple[int, Any]]:
        """Strategies of the source that differ in nothing, together: one of them, and whether any is chosen."""
        whole = np.concatenate([supply.costs, *(use.amounts for use in supply.uses)], axis=1)
        forms: dict[bytes, list[int]] = {}
        for strategy, row in enumerate(whole):
            if not _is(self.x[supply.source][strategy], 0):
                forms.setdefault(row.tobytes(), []).append(strategy)
        return [(same[0], _sum([self.x[supply.source][s] for s in same])) for same in forms.values()]

    def _any(self, terms: list[Any]) -> Any:
        """1 if any 0/1 expression is, as tight as linear rows get."""
        if len(terms) == 1 or any(_is(term, 1) for term in terms):
            return next((term for term in terms if _is(term, 1)), terms[0])
        either = self.cp.new_bool_var("")
        for term in terms:
            self.cp.add(either >= term)
        self.cp.add(either <= sum(terms))
        return either

    def _moves(
        self, supply: Supply, item: int, used: Mapping[int, Any], forms: list[tuple[int, Any]]
    ) -> list[tuple[int, int, Any]]:
        """Literals of what supplies the item, from every form from which that costs or holds anything."""
        free = [held for form, held in forms if not _costs(supply, form, item)]
        dear = [(form, held) for form, held in forms if _costs(supply, form, item)]
        if not dear:
            return []
        moved = self.cp.new_bool_var("")
        self.cp.add(moved >= used[item] - sum(used[i] for i in used if supply.within[item, i]))
        found = []
        for form, held in dear:
            if supply.costs[form, item] < _HALF:
                found.append((form, item, self.cp.new_bool_var("")))
                self.cp.add(found[-1][2] <= held)
                self._pay(supply.costs[form, item : item + 1], [found[-1][2]])
        resting = []
        if free:
            resting = [self.cp.new_bool_var("")]
            self.cp.add(resting[0] <= sum(free))
        self.cp.add(sum([*(literal for *_, literal in found), *resting]) == moved)
        return found

    def _state_places(self) -> None:
        """What is held at each place is at most the limit, and of a priced resource at most its peak."""
        rows = self._rows()
        for r in self.places.limited:
            mine = [rows[p] for p in range(len(self.places)) if self.places.resource[p] == r]
            limit, price = int(self.problem.limits[r]), self.problem.price(r)
            for row in {tuple(sorted((name, a) for name, (a, _) in row.items())): row for row in mine}.values():
                if limit < FORBIDDEN and sum(amount for amount, _ in row.values()) > limit:
                    self.cp.add(_weighted(row.values()) <= limit)
            if price:
                self._state_peak(mine, price)

    def _state_peak(self, rows: list[dict[int, tuple[int, Any]]], price: int) -> None:
        most = max(sum(amount for amount, _ in row.values()) for row in rows)
        unit = max(1, most >> _LOAD_BITS)
        peak = self.cp.new_int_var(0, most // unit + 1, "")
        for row in rows:
            self.cp.add(_weighted((amount // unit, literal) for amount, literal in row.values()) <= peak)
        self.terms.append((price * unit // self.scale, peak))

    def _rows(self) -> list[dict[int, tuple[int, Any]]]:
        """Per place: by literal its amount."""
        rows: list[dict[int, tuple[int, Any]]] = [{} for _ in range(len(self.places))]
        for row in self.places.rows:
            held = self._held(row.node, row.supply, row.amounts)
            for begin, end in zip(row.begin.tolist(), row.end.tolist(), strict=True):
                for p in range(begin, end):
                    for name, amount, literal in held:
                        rows[p][name] = (rows[p][name][0] + amount if name in rows[p] else amount, literal)
        return rows

    def _held(self, node: int, supply: int, amounts: Ints) -> list[tuple[int, int, Any]]:
        """(name, amount, literal) of what a row holds; constants share a name."""
        if supply < 0:
            pairs = list(zip(amounts.tolist(), self.x[node], strict=True))
        else:
            pairs = [(int(amounts[form, item]), literal) for form, item, literal in self.moves[supply]]
        return [
            (-1 - amount if isinstance(literal, int) else literal.index, amount, literal)
            for amount, literal in pairs
            if amount and not _is(literal, 0)
        ]

    def value(self, solver: cp_model.CpSolver) -> int:
        """The objective of what the solver has found, exactly."""
        return sum(a * (x if isinstance(x, int) else solver.value(x)) for a, x in self.terms)

    def read(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        """The choice that the solver has found."""
        return tuple(
            next(s for s, x in enumerate(literals) if (x if isinstance(x, int) else solver.boolean_value(x)))
            for literals in self.x
        )


def _is(literal: Any, value: int) -> bool:
    return isinstance(literal, int) and literal == value


def _sum(literals: list[Any]) -> Any:
    return literals[0] if len(literals) == 1 else sum(literals)


def _weighted(terms: Any) -> Any:
    listed = list(terms)
    constant = sum(amount * literal for amount, literal in listed if isinstance(literal, int))
    open_ = [(amount, literal) for amount, literal in listed if not isinstance(literal, int)]
    weights = [amount for amount, _ in open_]
    return cp_model.LinearExpr.weighted_sum([literal for _, literal in open_], weights) + constant


def _costs(supply: Supply, form: int, item: int) -> bool:
    return bool(supply.costs[form, item] or any(use.amounts[form, item] for use in supply.uses))


def solve_integer(
    places: Places,
    allowed: Sequence[NDArray[np.bool_]],
    hint: Sequence[int] | None,
    *,
    time_limit: float,
    work_limit: float | None,
    seed: int,
    jobs: int,
) -> Found:
    """The cheapest choice of allowed strategies. status: optimal, feasible, infeasible or unknown."""
    if not all((mask & (places.problem.costs[v] < _HALF)).any() for v, mask in enumerate(allowed)):
        return Found("infeasible", (), None)
    statement = Statement(places, allowed)
    for v, s in enumerate(hint or ()):
        for k, literal in enumerate(statement.x[v]):
            if not isinstance(literal, int):
                statement.cp.add_hint(literal, k == s)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.linearization_level, parameters.random_seed = jobs, 2, seed
    parameters.max_time_in_seconds = max(0.01, time_limit)
    if work_limit is not None:
        # The deterministic limit ends long searches at the same place on every machine; the other stops slow machines.
        parameters.max_deterministic_time = work_limit
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    status = names.get(solver.solve(statement.cp), "unknown")
    choice = statement.read(solver) if status in ("optimal", "feasible") else ()
    value = solver.best_objective_bound
    if status == "optimal":
        return Found(status, choice, statement.value(solver) * statement.scale)
    known = status != "infeasible" and np.isfinite(value) and abs(value) < _HALF
    return Found(status, choice, _at_least(value) * statement.scale if known else None)


def _at_least(value: float) -> int:
    """The integer that a bound given as a float stands for; where floats cannot tell, a smaller one."""
    return int(np.ceil(value - max(1e-6, 1e-14 * abs(value))))
