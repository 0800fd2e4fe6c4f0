"""A part of a problem: some nodes, the edges between them, what they hold; to say what makes a problem infeasible."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from .model import loads_of
from .problem import AssignmentProblem, Costs, Ints, Usages
from .reduce import Contradiction, reduce


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
    try:
        model, _ = reduce(problem)
    except Contradiction:
        return True
    return bool((loads_of(model).slack < 0).any())


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
