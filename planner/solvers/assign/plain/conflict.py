"""Why there is no answer: the smallest set of nodes that cannot be assigned even alone, and the instant at which.

A set of nodes is a *conflict* if the problem restricted to it (its own nodes, the edges between them, what they hold
of the resources) has no choice. The smallest one is found by implicit hitting sets: every choosable set leaves out
nodes of which a conflict must contain at least one; the smallest set that meets all of these demands is tried next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
from ortools.sat.python import cp_model

from ..answer import Conflict, Place, least_use
from ..problem import FORBIDDEN, AssignmentProblem, Ints
from .part import refuted, restrict, shrink, why

_SEARCHED_NODES = 400  # larger problems keep the set that single strategies already show
_GREEDY_PLACES = 256


def find_conflict(
    problem: AssignmentProblem, time_limit: float = 10.0, places: Sequence[Place] | None = None
) -> Conflict | None:
    """The conflict of an infeasible problem; None if there is none (or none at the given places, or not in time)."""
    deadline = time.monotonic() + time_limit
    plain = _by_single_strategies(problem)
    nodes = list(range(problem.node_count))
    if len(nodes) > _SEARCHED_NODES:
        if plain is not None:
            return plain
        nodes = shrink(problem, _read_by_reduction(problem, nodes), deadline)
        if len(nodes) > _SEARCHED_NODES:
            return Conflict(tuple(nodes), tuple(places or ())[:1], False)
    part = restrict(problem, nodes)
    search = _Search(part, list(places) if places and part is problem else _critical_places(part))
    found = search.smallest(list(range(len(nodes))), deadline)
    if found is None:
        return plain
    rows = search.needed(found, deadline)
    ordered = tuple(nodes[v] for v in _by_weight(part, found, rows))
    return Conflict(ordered, tuple(rows), search.proved and part is problem)


def _read_by_reduction(problem: AssignmentProblem, nodes: list[int]) -> list[int]:
    """Those of the nodes that the reduction's own proof reads, followed again and again; all if it has none."""
    while (read := why(restrict(problem, nodes))) is not None and len(read) < len(nodes):
        fewer = [nodes[v] for v in sorted(read)]
        if not refuted(restrict(problem, fewer)):
            break
        nodes = fewer
    return nodes


def _by_weight(problem: AssignmentProblem, nodes: Iterable[int], places: Sequence[Place]) -> tuple[int, ...]:
    weight = {v: sum(least_use(problem, v, *place) for place in places) for v in nodes}
    return tuple(sorted(weight, key=lambda v: (-weight[v], v)))


def _least_amounts(problem: AssignmentProblem) -> Ints:
    """Per usage row, the least any allowed strategy holds."""
    usages = problem.usages
    if not len(usages):
        return np.zeros(0, dtype=np.int64)
    ruled_out = problem.costs.values >= FORBIDDEN // 2
    first, least = problem.costs.first, []
    for q, v in enumerate(usages.node.tolist()):
        least.append(usages.amounts[q][~ruled_out[first[v] : first[v + 1]]])
    return np.array([amounts.min() if len(amounts) else 0 for amounts in least], dtype=np.int64)


def _loads(problem: AssignmentProblem, amounts: Ints, resource: int) -> tuple[Ints, Ints]:
    """(instants at which something starts, the load there) of one resource under the given amount per row."""
    usages = problem.usages
    rows = np.flatnonzero((usages.resource == resource) & (usages.start < usages.stop))
    instants = np.unique(usages.start[rows])
    change = np.zeros(len(instants) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(instants, usages.start[rows]), amounts[rows])
    np.add.at(change, np.searchsorted(instants, usages.stop[rows]), -amounts[rows])
    return instants, np.cumsum(change)[:-1]


def _by_single_strategies(problem: AssignmentProblem) -> Conflict | None:
    """The smallest set whose least needs exceed a limit at one instant: at every such instant the largest first."""
    least = _least_amounts(problem)
    best: Conflict | None = None
    for r, limit in enumerate(problem.limits.tolist()):
        instants, load = _loads(problem, least, r)
        worst = np.argsort(limit - load, kind="stable")[:_GREEDY_PLACES]
        for place in worst[load[worst] > limit].tolist():
            nodes = _largest_needs(problem, least, r, int(instants[place]), limit)
            if best is None or len(nodes) < len(best.nodes):
                best = Conflict(nodes, ((r, int(instants[place])),), False)
    return best


def _largest_needs(problem: AssignmentProblem, least: Ints, r: int, instant: int, limit: int) -> tuple[int, ...]:
    usages = problem.usages
    need: dict[int, int] = {}
    for q in np.flatnonzero((usages.resource == r) & (usages.start <= instant) & (instant < usages.stop)).tolist():
        need[int(usages.node[q])] = need.get(int(usages.node[q]), 0) + int(least[q])
    taken: list[int] = []
    for v in sorted(need, key=lambda v: (-need[v], v)):
        taken.append(v)
        if sum(need[w] for w in taken) > limit:
            break
    return tuple(taken)


def _critical_places(problem: AssignmentProblem) -> list[Place]:
    """Instants at which the largest strategies together exceed a limit: no others can matter."""
    usages = problem.usages
    most = np.array([usages.amounts[q].max() for q in range(len(usages))], dtype=np.int64)
    places: list[Place] = []
    for r, limit in enumerate(problem.limits.tolist()):
        instants, load = _loads(problem, most, r)
        places += [(r, int(t)) for t in instants[load > limit]]
    return places


class _Search:
    """One Boolean per node ("is part of the question") and per strategy; only what is selected must be assigned."""

    def __init__(self, problem: AssignmentProblem, places: list[Place]) -> None:
        self.problem, self.proved = problem, False
        self.cp = cp_model.CpModel()
        self.selected = [self.cp.new_bool_var("") for _ in range(problem.node_count)]
        self.chosen = [[self.cp.new_bool_var("") for _ in problem.costs[v]] for v in range(problem.node_count)]
        self.stated = {place: self.cp.new_bool_var("") for place in places}
        for v, (inside, variables) in enumerate(zip(self.selected, self.chosen, strict=True)):
            self.cp.add(sum(variables) == inside)
            for s in np.flatnonzero(problem.costs[v] >= FORBIDDEN // 2).tolist():
                self.cp.add(variables[s] == 0)
        for e, (u, v) in enumerate(problem.edges.tolist()):
            for i, j in np.argwhere(problem.matrix(e) >= FORBIDDEN // 2).tolist():
                if u != v or i == j:
                    self.cp.add_bool_or(~self.chosen[u][i], ~self.chosen[v][j])
        for (r, t), holds in self.stated.items():
            usages = problem.usages
            alive = (usages.resource == r) & (usages.start <= t) & (t < usages.stop)
            terms = [
                int(amount) * self.chosen[int(usages.node[q])][s]
                for q in np.flatnonzero(alive).tolist()
                for s, amount in enumerate(usages.amounts[q])
                if amount
            ]
            self.cp.add(sum(terms) <= int(problem.limits[r])).only_enforce_if(holds)

    def choosable(self, nodes: Iterable[int], places: Iterable[Place], deadline: float) -> set[int] | None:
        """A largest-found set of nodes, with the given ones, that has a choice; None if even these have none."""
        question = self.cp.clone()
        for v in nodes:
            question.add(question.get_bool_var_from_proto_index(self.selected[v].index) == 1)
        for place in places:
            question.add(question.get_bool_var_from_proto_index(self.stated[place].index) == 1)
        question.maximize(sum(question.get_bool_var_from_proto_index(x.index) for x in self.selected))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = max(0.01, deadline - time.monotonic())
        status = solver.solve(question)
        if status == cp_model.INFEASIBLE:
            return None
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise TimeoutError
        response = solver.response_proto.solution
        return {v for v, x in enumerate(self.selected) if response[x.index]}

    def smallest(self, nodes: list[int], deadline: float) -> list[int] | None:
        """The smallest conflict; None if all the nodes can be assigned together, or the time is up first."""
        demands = cp_model.CpModel()
        wanted = [demands.new_bool_var("") for _ in nodes]
        demands.minimize(sum(wanted))
        try:
            while True:
                solver = cp_model.CpSolver()
                solver.parameters.num_workers = 1
                solver.parameters.max_time_in_seconds = max(0.01, deadline - time.monotonic())
                if solver.solve(demands) != cp_model.OPTIMAL:
                    return None
                candidate = [v for v, x in zip(nodes, wanted, strict=True) if solver.boolean_value(x)]
                choosable = self.choosable(candidate, self.stated, deadline)
                if choosable is None:
                    self.proved = True
                    return candidate
                if len(choosable) == len(nodes):
                    return None
                demands.add_bool_or([x for v, x in zip(nodes, wanted, strict=True) if v not in choosable])
        except TimeoutError:
            return None

    def needed(self, nodes: list[int], deadline: float) -> list[Place]:
        """A single place that makes the nodes a conflict, or else a set of places of which none can be spared."""
        try:
            for place in [None, *self.stated]:
                only = [] if place is None else [place]
                if self.choosable(nodes, only, deadline) is None:
                    return only
            kept = list(self.stated)
            for place in list(self.stated):
                fewer = [other for other in kept if other != place]
                if self.choosable(nodes, fewer, deadline) is None:
                    kept = fewer
        except TimeoutError:
            return list(self.stated)
        return kept
