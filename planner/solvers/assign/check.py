"""The independent checker of assignments: exact cost, every limit at every instant, the bound, the conflict.

It reads the problem and the answer and shares no code with the solver. Every value is a Python integer or an int64 that
the problem's own validation keeps from overflowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .answer import Assignment, Conflict, DualCertificate, EliminationCertificate
from .check_elimination import eliminated_bound
from .problem import FORBIDDEN, AssignmentProblem, cost_bound

Verdict = Literal[
    "wrong length", "no such strategy", "forbidden strategy", "forbidden pair", "forbidden supply", "over the limit",
    "wrong cost", "wrong bound", "no conflict", "wrong status",
]  # fmt: skip

_NEVER = 4 * FORBIDDEN  # above every cost in units; forbidden entries take no part in a minimum


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where."""

    verdict: Verdict
    text: str


def check_choice(problem: AssignmentProblem, choice: Sequence[int]) -> tuple[int | None, list[Fault]]:
    """The exact cost of a choice (None if it is no choice at all) and everything that is wrong with it."""
    if len(choice) != problem.node_count:
        return None, [Fault("wrong length", f"{len(choice)} strategies for {problem.node_count} nodes")]
    counts = problem.strategy_counts.tolist()
    for v, s in enumerate(choice):
        if not 0 <= s < counts[v]:
            return None, [Fault("no such strategy", f"{problem.node_name(v)}: strategy {s} of {counts[v]}")]
    cost, faults = _cost(problem, choice)
    brought = _brought(problem, choice)
    cost += sum(int(problem.supplies[k].costs[choice[problem.supplies[k].source], i]) for k, i in brought)
    peaks = _peaks(problem, choice, brought)
    cost += sum(problem.price(r) * load for r, (load, _) in enumerate(peaks))
    return cost, faults + _forbidden_supplies(problem, choice, brought) + _over_limits(problem, peaks)


def _cost(problem: AssignmentProblem, choice: Sequence[int]) -> tuple[int, list[Fault]]:
    total, faults = 0, []
    counts, node_first = problem.strategy_counts.tolist(), problem.costs.first.tolist()
    for v, s in enumerate(choice):
        cost = int(problem.costs.values[node_first[v] + s])
        total += cost
        if cost >= FORBIDDEN // 2:
            faults.append(Fault("forbidden strategy", f"{problem.node_name(v)}: strategy {s}"))
    edge_first = problem.edge_costs.first.tolist()
    for e, (u, v) in enumerate(problem.edges.tolist()):
        cost = int(problem.edge_costs.values[edge_first[e] + choice[u] * counts[v] + choice[v]])
        total += cost
        if cost >= FORBIDDEN // 2:
            pair = f"{problem.node_name(u)} and {problem.node_name(v)}"
            faults.append(Fault("forbidden pair", f"edge {e} between {pair}: strategies {choice[u]}, {choice[v]}"))
    return total, faults


def _brought(problem: AssignmentProblem, choice: Sequence[int]) -> list[tuple[int, int]]:
    """(supply, item) of all that is supplied: asked for by some reader, and within nothing else that is."""
    found = []
    for k, supply in enumerate(problem.supplies):
        asked = {int(asks[choice[v]]) for v, asks in zip(supply.readers, supply.asks, strict=True)} - {-1}
        found += [(k, i) for i in sorted(asked) if not any(supply.within[i, other] for other in asked)]
    return found


def _forbidden_supplies(
    problem: AssignmentProblem, choice: Sequence[int], brought: list[tuple[int, int]]
) -> list[Fault]:
    faults = []
    for k, i in brought:
        source = problem.supplies[k].source
        if problem.supplies[k].costs[choice[source], i] >= FORBIDDEN // 2:
            text = f"supply {k}: {problem.node_name(source)} under strategy {choice[source]} cannot give item {i}"
            faults.append(Fault("forbidden supply", text))
    return faults


def _peaks(
    problem: AssignmentProblem, choice: Sequence[int], brought: list[tuple[int, int]]
) -> list[tuple[int, int | None]]:
    """Per resource the largest load and the first instant of it (None where nothing is held)."""
    usages, first = problem.usages, problem.usages.amounts.first.tolist()
    change: list[dict[int, int]] = [{} for _ in problem.limits]

    def hold(r: int, start: int, stop: int, amount: int) -> None:
        if start < stop:
            change[r][start] = change[r].get(start, 0) + amount
            change[r][stop] = change[r].get(stop, 0) - amount

    rows = zip(usages.node.tolist(), usages.resource.tolist(), usages.start.tolist(), usages.stop.tolist(), strict=True)
    for q, (v, r, start, stop) in enumerate(rows):
        hold(r, start, stop, int(usages.amounts.values[first[q] + choice[v]]))
    for k, i in brought:
        for use in problem.supplies[k].uses:
            for start, stop in use.intervals:
                hold(use.resource, start, stop, int(use.amounts[choice[problem.supplies[k].source], i]))
    return [_highest(changes) for changes in change]


def _highest(changes: dict[int, int]) -> tuple[int, int | None]:
    load, worst, when = 0, 0, None
    for instant in sorted(changes):
        load += changes[instant]
        if load > worst:
            worst, when = load, instant
    return worst, when


def _over_limits(problem: AssignmentProblem, peaks: list[tuple[int, int | None]]) -> list[Fault]:
    """The worst instant of every resource that is over its limit."""
    faults = []
    for r, (worst, when) in enumerate(peaks):
        if worst > problem.limits[r]:
            text = f"{problem.resource_name(r)} holds {worst} at instant {when}, limit {problem.limits[r]}"
            faults.append(Fault("over the limit", text))
    return faults


def certified_bound(problem: AssignmentProblem, certificate: DualCertificate) -> int:
    """The lower bound that the certificate's duals give, recomputed from the problem in exact integers.

    Sound for any messages and multipliers ≥ 0: moving costs between a matrix and its labels changes no choice's cost, a
    multiplier only ever adds what a feasible choice cannot gain from, and minima only round down.
    """
    group, strategy = _replay(problem, certificate)
    unit = certificate.unit
    labels = {g: np.array([0] * len(strategy[g]), dtype=object) for g in set(group)}
    for v, g in enumerate(group):
        labels[g] = labels[g] + problem.costs[v][strategy[v]].astype(object) * unit
    total = _add_prices(problem, certificate, group, strategy, labels)
    moved = dict(zip(certificate.pairs, certificate.messages, strict=True))
    for (g, h), matrix in _between(problem, group, strategy, labels, unit).items():
        ruled_out = matrix >= FORBIDDEN // 2
        rest = np.where(ruled_out, _NEVER, matrix * unit)
        to_g = moved[g, h][0] if (g, h) in moved else rest.min(axis=1)
        rest = np.where(ruled_out, _NEVER, rest - to_g[:, None])
        to_h = moved[g, h][1] if (g, h) in moved else rest.min(axis=0)
        rest = np.where(ruled_out, _NEVER, rest - to_h)
        labels[g], labels[h] = labels[g] + to_g, labels[h] + to_h
        total += int(rest.min())
    total += sum(int(min(costs)) for costs in labels.values())
    return -(-total // unit)


def _between(
    problem: AssignmentProblem,
    group: list[int],
    strategy: list[NDArray[np.int64]],
    labels: dict[int, NDArray[np.object_]],
    unit: int,
) -> dict[tuple[int, int], NDArray[np.int64]]:
    """The matrix between every two groups that an edge joins; edges inside a group go to its labels."""
    matrices: dict[tuple[int, int], NDArray[np.int64]] = {}
    for e, (u, v) in enumerate(problem.edges.tolist()):
        g, h = group[u], group[v]
        if g == h:
            inside = problem.matrix(e)[strategy[u], strategy[v]]
            labels[g] = labels[g] + np.where(inside >= FORBIDDEN // 2, 0, inside).astype(object) * unit
        else:
            g, h = min(g, h), max(g, h)
            part = _oriented(problem, group, strategy, e, g, h)
            known = matrices.get((g, h))
            matrices[g, h] = part if known is None else np.minimum(known, FORBIDDEN) + np.minimum(part, FORBIDDEN)
    return matrices


def _add_prices(
    problem: AssignmentProblem,
    certificate: DualCertificate,
    group: list[int],
    strategy: list[NDArray[np.int64]],
    labels: dict[int, NDArray[np.object_]],
) -> int:
    """Adds what every label's loads cost under the multipliers; returns minus what the limits are worth."""
    unit, price_unit, worth = certificate.unit, certificate.price_unit, 0
    paid: list[dict[int, int]] = [{} for _ in problem.limits]
    for r, instant, price in certificate.prices:
        if price < 0:
            raise ValueError(f"certificate: a negative multiplier at instant {instant}")
        paid[r][instant] = paid[r].get(instant, 0) + price
        worth += price * int(problem.limits[r])
    usages = problem.usages
    for r, prices in enumerate(paid):
        if not prices:
            continue
        instants = np.array(sorted(prices), dtype=np.int64)
        until = np.array([0, *np.cumsum([prices[t] for t in instants.tolist()], dtype=object)], dtype=object)
        rates = until[np.searchsorted(instants, usages.stop)] - until[np.searchsorted(instants, usages.start)]
        for q in np.flatnonzero((usages.resource == r) & (usages.start < usages.stop) & (rates > 0)).tolist():
            v = int(usages.node[q])
            amounts = usages.amounts[q][strategy[v]].astype(object)
            labels[group[v]] = labels[group[v]] + amounts * int(rates[q]) * unit // price_unit
    return -(worth * unit) // price_unit


def _replay(problem: AssignmentProblem, certificate: DualCertificate) -> tuple[list[int], list[NDArray[np.int64]]]:
    """Per node its group and its strategy under every label of the group, each step proved by the edges it names."""
    group = list(range(problem.node_count))
    members = [[v] for v in group]
    allowed_alone = [problem.costs[v] < FORBIDDEN // 2 for v in group]
    for e in np.flatnonzero(problem.edges[:, 0] == problem.edges[:, 1]).tolist():
        allowed_alone[problem.edges[e, 0]] &= problem.matrix(e).diagonal() < FORBIDDEN // 2
    strategy = [np.flatnonzero(allowed) for allowed in allowed_alone]
    for merge, g, h, edges in certificate.steps:
        allowed = np.ones((len(strategy[g]), len(strategy[h])), dtype=bool)
        for e in edges:
            allowed &= _oriented(problem, group, strategy, e, g, h) < FORBIDDEN // 2
        if merge:
            if group[g] != g or group[h] != h or not (allowed.sum(axis=1) == 1).all():
                raise ValueError(f"certificate: node {h} is not a function of node {g}")
            _take_over(group, members, strategy, g, h, allowed.argmax(axis=1))
        else:
            kept = allowed.any(axis=1)
            for v in members[g]:
                strategy[v] = strategy[v][kept]
    return group, strategy


def _take_over(
    group: list[int],
    members: list[list[int]],
    strategy: list[NDArray[np.int64]],
    g: int,
    h: int,
    of_label: NDArray[np.int64],
) -> None:
    for v in members[h]:
        group[v], strategy[v] = g, strategy[v][of_label]
    members[g] += members[h]
    members[h] = []


def _oriented(
    problem: AssignmentProblem, group: list[int], strategy: list[NDArray[np.int64]], e: int, g: int, h: int
) -> NDArray[np.int64]:
    """The costs of edge e over the labels of g and h, which it must join."""
    u, v = problem.edges[e].tolist()
    matrix = problem.matrix(e)
    if (group[u], group[v]) == (h, g):
        u, v, matrix = v, u, matrix.T
    if (group[u], group[v]) != (g, h):
        raise ValueError(f"certificate: edge {e} does not join the groups of nodes {g} and {h}")
    return matrix[np.ix_(strategy[u], strategy[v])]


def check_conflict(problem: AssignmentProblem, conflict: Conflict) -> list[Fault]:
    """Tries every choice of the conflict's nodes, most demanding first, stopping at what is already impossible."""
    nodes = sorted(conflict.nodes)
    inside = set(nodes)
    edges = [(e, u, v) for e, (u, v) in enumerate(problem.edges.tolist()) if u in inside and v in inside]
    rows = [q for q in range(len(problem.usages)) if int(problem.usages.node[q]) in inside]
    chosen: dict[int, int] = {}

    def held(place: tuple[int, int]) -> int:
        r, t = place
        usages, total = problem.usages, 0
        for q in rows:
            if usages.resource[q] == r and usages.start[q] <= t < usages.stop[q]:
                amounts, v = usages.amounts[q], int(usages.node[q])
                allowed = amounts[problem.costs[v] < FORBIDDEN // 2]
                total += int(amounts[chosen[v]] if v in chosen else allowed.min(initial=int(amounts.max())))
        return total

    def possible() -> bool:
        for e, u, v in edges:
            if u in chosen and v in chosen and problem.matrix(e)[chosen[u], chosen[v]] >= FORBIDDEN // 2:
                return False
        return all(held(place) <= problem.limits[place[0]] for place in conflict.places)

    def choosable(remaining: list[int]) -> bool:
        if not possible():
            return False
        if not remaining:
            return True
        v, *rest = remaining
        for s in np.flatnonzero(problem.costs[v] < FORBIDDEN // 2).tolist():
            chosen[v] = s
            if choosable(rest):
                return True
            del chosen[v]
        return False

    if choosable(nodes):
        return [Fault("no conflict", f"nodes {nodes} can be assigned: {[chosen[v] for v in nodes]}")]
    return []


def check(problem: AssignmentProblem, answer: Assignment) -> list[Fault]:
    """Everything that is wrong with an answer; empty if it stands.

    A bound from duals is recomputed; one from an exact solver is that solver's word and only checked against the cost.
    """
    faults: list[Fault] = []
    if answer.choice:
        cost, faults = check_choice(problem, answer.choice)
        if cost != answer.cost:
            faults.append(Fault("wrong cost", f"{answer.cost} given, {cost} counted"))
    bound = _recomputed(problem, answer)
    if answer.bound is not None and bound is not None and answer.bound > bound:
        faults.append(Fault("wrong bound", f"{answer.bound} given, {bound} certified"))
    if answer.bound is not None and answer.cost is not None and answer.bound > answer.cost:
        faults.append(Fault("wrong bound", f"{answer.bound} is above the cost {answer.cost}"))
    if (answer.status == "optimal") != (answer.cost is not None and answer.cost == answer.bound):
        faults.append(Fault("wrong status", f"{answer.status} with cost {answer.cost} and bound {answer.bound}"))
    if answer.status == "infeasible" and bound is not None and bound <= cost_bound(problem):
        text = f"infeasible with a bound of {bound}, where choices cost up to {cost_bound(problem)}"
        faults.append(Fault("wrong status", text))
    if answer.conflict is not None:
        faults += check_conflict(problem, answer.conflict)
    return faults


def _recomputed(problem: AssignmentProblem, answer: Assignment) -> int | None:
    """The bound that the certificate gives; None where there is none to evaluate."""
    if isinstance(answer.certificate, DualCertificate):
        return certified_bound(problem, answer.certificate)
    if isinstance(answer.certificate, EliminationCertificate):
        return eliminated_bound(problem, answer.certificate)
    return None
