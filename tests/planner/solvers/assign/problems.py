"""Small random problems, and the answer by trying everything; shares no code with the solver or its checker."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import FORBIDDEN, AssignmentProblem, ProblemBuilder

MOST_INSTANTS = 9


@st.composite
def problems(draw: st.DrawFn, most_nodes: int = 5) -> AssignmentProblem:
    """Up to 5 nodes of up to 3 strategies, 2 resources, repeated edges and edges of a node with itself included."""
    builder = ProblemBuilder()
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most_nodes))
    limits = draw(st.lists(st.integers(0, 16), max_size=2))
    for limit in limits:
        builder.add_resource(limit)
    cost = st.one_of(st.integers(-3, 9), st.integers(-3, 9), st.integers(-3, 9), st.just(FORBIDDEN))
    for count in counts:
        builder.add_node(draw(st.lists(cost, min_size=count, max_size=count)))
    node = st.integers(0, len(counts) - 1)
    for u, v in draw(st.lists(st.tuples(node, node), max_size=6)):
        size = counts[u] * counts[v]
        builder.add_edge(u, v, draw(st.lists(cost, min_size=size, max_size=size)))
    if limits:
        for v, start, length in draw(st.lists(st.tuples(node, st.integers(0, 4), st.integers(0, 4)), max_size=6)):
            resource = draw(st.integers(0, len(limits) - 1))
            amounts = draw(st.lists(st.integers(0, 9), min_size=counts[v], max_size=counts[v]))
            builder.use(v, resource, start, start + length, amounts)
    return builder.build()


def cheapest(problem: AssignmentProblem, nodes: Iterable[int] | None = None) -> int | None:
    """The least cost over all choices for the given nodes alone (all of them by default); None if there is none."""
    inside = list(range(problem.node_count) if nodes is None else nodes)
    ranges = [range(int(problem.strategy_counts[v])) for v in inside]
    costs = (_cost(problem, dict(zip(inside, choice, strict=True))) for choice in itertools.product(*ranges))
    return min((cost for cost in costs if cost is not None), default=None)


def _cost(problem: AssignmentProblem, chosen: dict[int, int]) -> int | None:
    parts = [int(problem.costs[v][s]) for v, s in chosen.items()]
    for e, (u, v) in enumerate(problem.edges.tolist()):
        if u in chosen and v in chosen:
            parts.append(int(problem.matrix(e)[chosen[u], chosen[v]]))
    if max(parts, default=0) >= FORBIDDEN:
        return None
    fits = all(
        held(problem, chosen, r, instant) <= limit
        for r, limit in enumerate(problem.limits.tolist())
        for instant in range(MOST_INSTANTS)
    )
    return sum(parts) if fits else None


def held(problem: AssignmentProblem, chosen: dict[int, int], resource: int, instant: int) -> int:
    """What the chosen strategies hold of a resource at an instant."""
    usages, total = problem.usages, 0
    for q in range(len(usages)):
        v = int(usages.node[q])
        if v in chosen and usages.resource[q] == resource and usages.start[q] <= instant < usages.stop[q]:
            total += int(usages.amounts[q][chosen[v]])
    return total


def ladder(seed: int, nodes: int, strategies: int) -> AssignmentProblem:
    """A longer problem: edges to the next node and to a random later one, every node alive for a while."""
    rng = np.random.default_rng(seed)
    builder = ProblemBuilder()
    memory = builder.add_resource(6 * strategies)
    for _ in range(nodes):
        builder.add_node(rng.integers(0, 100, strategies))
    for u in range(nodes - 1):
        for v in {u + 1, int(rng.integers(u + 1, nodes))}:
            builder.add_edge(u, v, rng.integers(0, 100, (strategies, strategies)))
    for v in range(nodes):
        builder.use(v, memory, v, v + 4, 4 * rng.permutation(strategies))
    return builder.build()


def dense(seed: int, nodes: int, strategies: int, most: int = 100) -> AssignmentProblem:
    """Every node costs something together with every other, less than so much."""
    rng, builder = np.random.default_rng(seed), ProblemBuilder()
    for _ in range(nodes):
        builder.add_node(rng.integers(0, 50, strategies))
    for u, v in itertools.combinations(range(nodes), 2):
        builder.add_edge(u, v, rng.integers(0, most, (strategies, strategies)))
    return builder.build()


def planted(seed: int, nodes: int, forbidden: float, room: float) -> AssignmentProblem:
    """A graph of four strategies per node around a hidden choice, which is allowed and needs 1 / room of the limit.

    Strategies that hold less cost more, as when tensors are sharded; some pairs are forbidden.
    """
    rng = np.random.default_rng(seed)
    builder = ProblemBuilder()
    hidden = rng.integers(0, 4, nodes)
    amounts = (2 ** rng.integers(2, 12, nodes))[:, None] * np.array([4, 2, 2, 1])
    stops = np.minimum(np.arange(nodes) + 1 + rng.geometric(0.1, nodes), nodes)
    held = np.zeros(nodes, dtype=np.int64)
    for v in range(nodes):
        held[v : stops[v]] += amounts[v, hidden[v]]
    memory = builder.add_resource(int(room * held.max()))
    for v in range(nodes):
        builder.add_node(amounts[v].max() // amounts[v] * rng.integers(1, 50))
        builder.use(v, memory, v, int(stops[v]), amounts[v])
    for u in range(nodes - 1):
        for v in {u + 1, int(rng.integers(u + 1, min(nodes, u + 200)))}:
            ruled_out = rng.random((4, 4)) < forbidden
            ruled_out[hidden[u], hidden[v]] = False
            builder.add_edge(u, v, rng.integers(0, 100, (4, 4)), ruled_out)
    return builder.build()
