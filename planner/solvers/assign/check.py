"""The independent checker of assignments: exact cost, every limit at every instant, the bound, the conflict.

It reads the problem and the answer and shares no code with the solver. Every value is a Python integer or an int64 that
the problem's own validation keeps from overflowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .answer import (
    Assignment,
    Certificate,
    Conflict,
    DualCertificate,
    EliminationCertificate,
    NarrowedCertificate,
    ShareCertificate,
    SplitCertificate,
)
from .check_duals import dual_bound
from .check_elimination import demand_no_worse, eliminated_bound, least_with_each
from .check_shares import shared_bound, shared_with_each
from .problem import FORBIDDEN, AssignmentProblem, cost_bound

Verdict = Literal[
    "wrong length", "no such strategy", "forbidden strategy", "forbidden pair", "forbidden supply", "over the limit",
    "wrong cost", "wrong bound", "no conflict", "wrong status",
]  # fmt: skip

_NEVER = FORBIDDEN  # above every cost


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


def certified_bound(problem: AssignmentProblem, certificate: Certificate) -> int:
    """The lower bound that a certificate gives, recomputed; above all that a choice can cost where there is none.

    Raises ValueError where the certificate is none.
    """
    match certificate:
        case DualCertificate():
            bound = dual_bound(problem, certificate)
        case EliminationCertificate():
            bound = eliminated_bound(problem, certificate)
        case SplitCertificate():
            bound = _split_bound(problem, certificate)
        case ShareCertificate():
            bound = shared_bound(problem, certificate)
        case NarrowedCertificate():
            bound = _narrowed_bound(problem, certificate)
    if not isinstance(certificate, DualCertificate) and certificate.kept:
        problem = problem.restricted(certificate.kept)
    return bound if bound <= cost_bound(problem) else _NEVER


def _split_bound(problem: AssignmentProblem, certificate: SplitCertificate) -> int:
    """The least of the groups' bounds; a group within which nothing is feasible is above all."""
    if certificate.kept:
        demand_no_worse(problem, certificate.kept)
        problem = problem.restricted(certificate.kept)
    v = certificate.node
    if not 0 <= v < problem.node_count:
        raise ValueError(f"certificate: there is no node {v} to split")
    allowed = set(np.flatnonzero(problem.costs[v] < FORBIDDEN // 2).tolist())
    if missing := allowed - {s for group in certificate.groups for s in group}:
        raise ValueError(f"certificate: {problem.node_name(v)}: strategy {min(missing)} is in no group")
    least = _NEVER
    for group, part in zip(certificate.groups, certificate.parts, strict=True):
        kept = [range(count) if w != v else group for w, count in enumerate(problem.strategy_counts.tolist())]
        least = min(least, certified_bound(problem.restricted(kept), part))
    return least


def _narrowed_bound(problem: AssignmentProblem, certificate: NarrowedCertificate) -> int:
    """The least of what choices cost with a strategy that is left out, and of what those cost that have none."""
    if certificate.kept:
        demand_no_worse(problem, certificate.kept)
        problem = problem.restricted(certificate.kept)
    first, left, rest = certificate.first, certificate.left, certificate.rest
    if any(not set(mine) <= set(range(n)) for mine, n in zip(left, problem.strategy_counts.tolist(), strict=True)):
        raise ValueError("certificate: strategies are left that there are not")
    if first.kept:
        raise ValueError("certificate: strategies are left out before it says what they cost")
    told = shared_with_each(problem, first) if isinstance(first, ShareCertificate) else least_with_each(problem, first)
    out = [int(cost) for mine, costs in zip(left, told, strict=True) for cost in np.delete(costs, list(mine))]
    least = min(out, default=_NEVER)
    if not all(left):
        return least  # whatever the others take, that node has a strategy that is left out
    if rest is None:
        raise ValueError("certificate: nothing is said of the strategies that are left")
    return min(least, certified_bound(problem.restricted(left), rest))


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
    """Everything that is wrong with an answer; empty if it stands. A claim is not looked at: it proves nothing."""
    faults: list[Fault] = []
    if answer.choice:
        cost, faults = check_choice(problem, answer.choice)
        if cost != answer.cost:
            faults.append(Fault("wrong cost", f"{answer.cost} given, {cost} counted"))
    bound = certified_bound(problem, answer.certificate) if answer.certificate is not None else None
    if answer.bound is not None and (bound is None or answer.bound > bound):
        faults.append(Fault("wrong bound", f"{answer.bound} given, {'nothing' if bound is None else bound} certified"))
    if answer.bound is not None and answer.cost is not None and answer.bound > answer.cost:
        faults.append(Fault("wrong bound", f"{answer.bound} is above the cost {answer.cost}"))
    if (answer.status == "optimal") != (answer.cost is not None and answer.cost == answer.bound):
        faults.append(Fault("wrong status", f"{answer.status} with cost {answer.cost} and bound {answer.bound}"))
    if answer.status == "infeasible" and bound is not None and bound <= cost_bound(problem):
        text = f"infeasible with a bound of {bound}, where choices cost up to {cost_bound(problem)}"
        faults.append(Fault("wrong status", text))
    if answer.status == "infeasible" and bound is None and answer.conflict is None and answer.claim is None:
        faults.append(Fault("wrong status", "infeasible, and neither a proof nor a conflict says why"))
    if answer.conflict is not None:
        faults += check_conflict(problem, answer.conflict)
    return faults
