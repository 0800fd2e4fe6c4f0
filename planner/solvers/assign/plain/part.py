"""A part of a problem: some nodes, the edges between them, what they hold; to say what makes a problem infeasible."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..answer import Step
from ..problem import AssignmentProblem, Costs, Ints, Usages
from .reduce import Contradiction, reduce
from .reduced import Reduced, loads_of


def restrict(problem: AssignmentProblem, nodes: Sequence[int]) -> AssignmentProblem:
    """The problem of the given nodes alone, numbered in their order; the problem itself if these are all of them."""
    if len(nodes) == problem.node_count:
        return problem
    number = np.full(problem.node_count, -1, dtype=np.int64)
    number[list(nodes)] = np.arange(len(nodes))
    ends = number[problem.edges]
    edges = np.flatnonzero((ends >= 0).all(axis=1))
    rows = np.flatnonzero(number[problem.usages.node] >= 0)
    usages = problem.usages
    return AssignmentProblem(
        costs=_chosen(problem.costs, nodes),
        edges=ends[edges],
        edge_costs=_chosen(problem.edge_costs, edges.tolist()),
        limits=problem.limits,
        usages=Usages(
            number[usages.node[rows]],
            usages.resource[rows],
            usages.start[rows],
            usages.stop[rows],
            _chosen(usages.amounts, rows.tolist()),
        ),
        names=tuple(problem.node_name(v) for v in nodes),
        resource_names=problem.resource_names,
    )


def _chosen(vectors: Costs, which: Sequence[int]) -> Costs:
    lengths = vectors.lengths[list(which)]
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values: list[Ints] = [vectors[i] for i in which]
    return Costs(first, np.concatenate(values) if values else np.zeros(0, dtype=np.int64))


def refuted(problem: AssignmentProblem) -> bool:
    """Whether the reduction alone shows that there is no choice."""
    return why(problem) is not None


def why(problem: AssignmentProblem) -> set[int] | None:
    """Nodes that the reduction's proof that there is no choice starts from and passes through; None if it has none."""
    try:
        model, steps = reduce(problem)
    except Contradiction as found:
        return _behind({found.node}, found.steps, problem)
    loads = loads_of(model)
    if not (loads.slack < 0).any():
        return None
    worst = int(loads.slack.argmin())
    return _behind(_overloaded(model, int(loads.resource[worst]), int(loads.instant[worst])), steps, problem)


def _overloaded(model: Reduced, resource: int, instant: int) -> set[int]:
    """All nodes of the groups that together hold too much at an instant, those that hold most at the least first."""
    usages = model.problem.usages
    alive = (usages.resource == resource) & (usages.start <= instant) & (instant < usages.stop)
    held: dict[int, Ints] = {}
    for q in np.flatnonzero(alive).tolist():
        v = int(usages.node[q])
        amounts = usages.amounts[q][model.strategy[v]]
        g = int(model.group[v])
        held[g] = held[g] + amounts if g in held else amounts
    left, needed = int(model.problem.limits[resource]), []
    for g in sorted(held, key=lambda g: (-int(held[g].min()), g)):
        if left < 0:
            break
        needed.append(g)
        left -= int(held[g].min())
    return set(np.flatnonzero(np.isin(model.group, needed)).tolist())


def _behind(start: set[int], steps: Sequence[Step], problem: AssignmentProblem) -> set[int]:
    """`start` and every node that a step read on the way to it."""
    nodes = set(start)
    for step in reversed(steps):
        if step.node in nodes or (step.merge and step.other in nodes):
            nodes.update((step.node, step.other), problem.edges[list(step.edges)].reshape(-1).tolist())
    return nodes


def shrink(problem: AssignmentProblem, nodes: list[int], deadline: float) -> list[int]:
    """Drops ever smaller stretches of nodes while the reduction still refutes the rest, until the deadline."""
    size = len(nodes) // 2
    while size >= 1 and time.monotonic() < deadline:
        at = 0
        while at < len(nodes) and time.monotonic() < deadline:
            rest = nodes[:at] + nodes[at + size :]
            if rest and refuted(restrict(problem, rest)):
                nodes = rest
            else:
                at += size
        size //= 2
    return nodes
