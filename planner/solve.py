"""The assignment problem as integer programming for CP-SAT: tight marginals for transfers, one row of memory per
instant.

For a tensor with home layouts h and needed layouts l: u_l says that some consumer asks for l, w_l that l must be moved
(no larger needed layout is), y_hl that it is moved from h. Sum over h of y_hl equals w_l and y_hl <= x_h: the local
polytope of the pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from .layouts import Spread
from .model import TIE, Flow, Model, satisfied

# CP-SAT sums objective terms in 64 bits: coarser units than picoseconds keep any makespan below this.
LARGEST = 2**42


@dataclass(frozen=True)
class Solution:
    """``choice``: option per representative node; ``objective`` and ``bound`` in the model's units."""

    status: str
    choice: dict[int, int]
    objective: int
    bound: int

    @property
    def gap(self) -> float:
        """How far from the best the choice may be; infinite where there is none."""
        if not self.choice:
            return 0.0 if self.status == "infeasible" else inf
        return max(0.0, 1 - self.bound / self.objective) if self.objective else 0.0


@dataclass(eq=False)
class _FlowVars:
    """The variables of one flow: homes and needs with their 0/1 expressions, and the moves between them."""

    flow: Flow
    copies: int
    homes: list[tuple[Spread, Any]]
    used: list[tuple[Spread, Any]]
    moves: list[tuple[Spread, Spread, Any]]


class Encoding:
    """A model written for CP-SAT."""

    def __init__(self, model: Model, fixed: Mapping[int, int] | None = None) -> None:
        from ortools.sat.python import cp_model

        self.model, self.cp = model, cp_model.CpModel()
        self.fixed = fixed or {}
        self.x = {node: self._choice_of(node) for node in sorted(set(model.tied_to))}
        self._lifetimes: dict[tuple[str, Spread], tuple[int, int]] = {}
        self.flows = self._encode_flows()

    def _choice_of(self, node: int) -> list[Any]:
        labels = self.model.nodes[node].labels
        if len(labels) == 1:
            return [1]
        if node in self.fixed:
            return [int(option == self.fixed[node]) for option in range(len(labels))]
        literals = [self.cp.new_bool_var(f"{self.model.nodes[node].name} {label}") for label in labels]
        self.cp.add_exactly_one(literals)
        return literals

    def _encode_flows(self) -> list[_FlowVars]:
        """Tied copies of a flow share their variables; their number multiplies the price."""
        self.by_tensor: dict[str, _FlowVars] = {}
        found = []
        for flows in self.model.alike():
            found.append(self._encode(flows[0], len(flows)))
            self.by_tensor |= {flow.tensor: found[-1] for flow in flows}
        return found

    def _encode(self, flow: Flow, copies: int) -> _FlowVars:
        model = self.model
        homes: dict[Spread, list[Any]] = {}
        for option, literal in enumerate(self.x[flow.home]):
            homes.setdefault(model.home(flow, option), []).append(literal)
        users: dict[Spread, list[list[Any]]] = {}
        for reader in dict.fromkeys(flow.readers):
            asked: dict[Spread, list[Any]] = {}
            for option, literal in enumerate(self.x[reader[0]]):
                asked.setdefault(model.need(reader, option), []).append(literal)
            for need, literals in asked.items():
                users.setdefault(need, []).append(literals)
        home_terms = [(spread, sum(literals)) for spread, literals in homes.items()]
        used = [(need, self._any([sum(literals) for literals in groups])) for need, groups in users.items()]
        moves = [move for need, wanted in used for move in self._moves(need, wanted, used, home_terms)]
        return _FlowVars(flow, copies, home_terms, used, moves)

    def _any(self, terms: list[Any]) -> Any:
        """1 if any 0/1 expression is, as tight as linear rows get."""
        if len(terms) == 1 or any(isinstance(term, int) and term for term in terms):
            return next((term for term in terms if isinstance(term, int) and term), terms[0])
        either = self.cp.new_bool_var("")
        for term in terms:
            self.cp.add(either >= term)
        self.cp.add(either <= sum(terms))
        return either

    def _moves(self, need: Spread, wanted: Any, used: list[Any], homes: list[Any]) -> list[tuple[Spread, Spread, Any]]:
        """Literals of the moves that bring ``need`` about, from every home that does not hold it."""
        lacking = [(home, held) for home, held in homes if not satisfied(home, need)]
        if not lacking or (isinstance(wanted, int) and not wanted):
            return []
        larger = [other for spread, other in used if spread is not need and need.within(spread)]
        moved = self.cp.new_bool_var("")
        self.cp.add(moved >= wanted - sum(larger))
        literals = [(home, need, self.cp.new_bool_var("")) for home, _ in lacking]
        for (_, held), (_, _, literal) in zip(lacking, literals, strict=True):
            self.cp.add(literal <= held)
        free = [held for home, held in homes if satisfied(home, need)]
        if free:
            resting = self.cp.new_bool_var("")
            self.cp.add(resting <= sum(free))
            self.cp.add(sum(literal for *_, literal in literals) + resting == moved)
        else:
            self.cp.add(sum(literal for *_, literal in literals) == moved)
        return literals

    def memory(self, instant: int) -> Any:
        """Bytes alive while one operation runs, as a linear expression."""
        terms = []
        for flow in self.model.flows:
            if not flow.first <= instant <= flow.last:
                continue
            variables = self.by_tensor[flow.tensor]
            size = flow.itemsize
            terms += [self.model.stored(spread, size) * held for spread, held in variables.homes]
            terms += [self.model.stored(n, size) * y for _, n, y in variables.moves if self._alive(flow, n, instant)]
        return sum(terms)

    def _alive(self, flow: Flow, need: Spread, instant: int) -> bool:
        """A moved copy lives from the first to the last consumer that may use it."""
        key = (flow.tensor, need)
        if key not in self._lifetimes:
            at = [
                when
                for reader, when in zip(flow.readers, flow.reader_at, strict=True)
                if any(needs[reader[1]].within(need) for needs in self.model.nodes[reader[0]].needs)
            ]
            self._lifetimes[key] = (min(at), max(at))
        first, last = self._lifetimes[key]
        return first <= instant <= last

    def cost(self, upper: int, exposed: int) -> tuple[Any, int]:
        """The objective and the unit it is counted in; ``exposed`` halves of the transfers of values add to compute."""
        if self.model.objective == "bytes":
            return self._transfers(lambda _: True, 1), 1
        scale = max(1, -(-upper // LARGEST))
        weight = self.model.weight
        compute = sum(
            weight[node] * (self.model.work(node, option) // scale) * literal
            for node, literals in self.x.items()
            for option, literal in enumerate(literals)
        )
        values = self._transfers(lambda flow: not flow.source, scale)
        resident = self._transfers(lambda flow: flow.source, scale)
        span = self.cp.new_int_var(0, LARGEST * 4, "span")
        self.cp.add(2 * span >= 2 * compute + exposed * values)
        self.cp.add(span >= values + resident)
        return TIE * span + compute + values + resident, scale

    def _transfers(self, chosen: Any, scale: int) -> Any:
        return sum(
            v.copies * (self.model.price(have, need, v.flow.itemsize) // scale) * literal
            for v in self.flows
            if chosen(v.flow)
            for have, need, literal in v.moves
        )


def solve(
    model: Model,
    *,
    time_limit: float,
    seed: int,
    jobs: int,
    upper: int,
    exposed: int = 2,
    hint: Mapping[int, int] | None = None,
    fixed: Mapping[int, int] | None = None,
) -> Solution:
    """Best choice under the memory capacity. status: optimal, feasible, infeasible or unknown.

    upper: some choice's makespan in the model, which sets the unit. exposed: 2 for the model's objective; 1 and 0 count
    transfers of values by half and not at all. hint: a choice to start from. fixed: nodes that are decided
    already (then the bound is one under that decision only).
    """
    encoding = Encoding(model, fixed)
    for usage in _distinct_rows(encoding):
        encoding.cp.add(usage <= model.capacity)
    cost, scale = encoding.cost(upper, exposed)
    encoding.cp.minimize(cost)
    for node, option in (hint or {}).items():
        for k, literal in enumerate(encoding.x[node]):
            if not isinstance(literal, int):
                encoding.cp.add_hint(literal, k == option)
    solver, status = _run(encoding, time_limit, seed, jobs)
    choice = _read(encoding, solver) if status in ("optimal", "feasible") else {}
    found = round(solver.objective_value) if choice else 0
    return Solution(status, choice, found * scale, int(solver.best_objective_bound) * scale if choice else 0)


def least_memory(model: Model, *, time_limit: float, seed: int, jobs: int) -> tuple[int, dict[int, int]] | None:
    """The least capacity that some choice fits in, with that choice; None if not found in time."""
    encoding = Encoding(model)
    peak = encoding.cp.new_int_var(0, 2**60, "peak")
    for usage in _distinct_rows(encoding):
        encoding.cp.add(usage <= peak)
    encoding.cp.minimize(peak)
    solver, status = _run(encoding, time_limit, seed, jobs)
    if status not in ("optimal", "feasible"):
        return None
    return round(solver.objective_value), _read(encoding, solver)


def _distinct_rows(encoding: Encoding) -> list[Any]:
    """Memory rows, one per distinct expression."""
    rows: dict[str, Any] = {}
    for instant in encoding.model.instants:
        usage = encoding.memory(instant)
        rows.setdefault(str(usage), usage)
    return list(rows.values())


def _run(encoding: Encoding, time_limit: float, seed: int, jobs: int) -> tuple[Any, str]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = jobs
    solver.parameters.random_seed = seed
    solver.parameters.linearization_level = 2
    solver.parameters.max_time_in_seconds = time_limit
    # The deterministic limit ends long searches at the same place on every machine; the other stops slow machines.
    solver.parameters.max_deterministic_time = time_limit / 2
    code = solver.solve(encoding.cp)
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    return solver, names.get(code, "unknown")


def _read(encoding: Encoding, solver: Any) -> dict[int, int]:
    return {
        node: next(k for k, x in enumerate(literals) if (x if isinstance(x, int) else solver.boolean_value(x)))
        for node, literals in encoding.x.items()
    }
