"""The bound of duals, recomputed: the reduction's steps replayed on the problem itself, then the duals evaluated.

It shares no code with the solver. Every value is a Python integer or an int64 that the problem's own validation keeps
from overflowing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .answer import DualCertificate
from .problem import FORBIDDEN, AssignmentProblem

_NEVER = 4 * FORBIDDEN  # above every cost in units; forbidden entries take no part in a minimum


def dual_bound(problem: AssignmentProblem, certificate: DualCertificate) -> int:
    """The lower bound that the certificate's duals give, recomputed from the problem in exact integers.

    Sound for any messages and multipliers ≥ 0: moving costs between a matrix and its labels changes no choice's cost, a
    multiplier only ever adds what a feasible choice cannot gain from, and minima only round down. Above all that a
    choice can cost where there is none.
    """
    group, strategy = _replay(problem, certificate)
    if not all(len(mine) for mine in strategy):
        return FORBIDDEN  # some node has no strategy left: there is no choice
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
        if not len(strategy[g]):
            break
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
