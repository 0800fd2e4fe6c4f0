"""Small random problems with supplies and prices, and the answer by trying everything; no code of the solver's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import FORBIDDEN, AssignmentProblem, ProblemBuilder, Supply, SupplyUse

INSTANTS = range(10)
UNLIMITED = FORBIDDEN


@st.composite
def supply_problems(draw: st.DrawFn) -> AssignmentProblem:
    """Up to 5 nodes of up to 4 strategies, 2 resources with or without a price, up to 3 supplies."""
    builder = ProblemBuilder()
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    for _ in range(draw(st.integers(0, 2))):
        limit = draw(st.one_of(st.integers(0, 25), st.just(UNLIMITED)))
        builder.add_resource(limit, price=draw(st.sampled_from([0, 0, 1, 3])))
    cost = st.one_of(st.integers(-3, 9), st.integers(-3, 9), st.just(FORBIDDEN))
    for count in counts:
        builder.add_node(draw(st.lists(cost, min_size=count, max_size=count)))
    node = st.integers(0, len(counts) - 1)
    for u, v in draw(st.lists(st.tuples(node, node), max_size=2)):
        size = counts[u] * counts[v]
        builder.add_edge(u, v, draw(st.lists(cost, min_size=size, max_size=size)))
    resources = len(builder._limits)
    spans = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3)
    if resources:
        for v, (start, length) in draw(st.lists(st.tuples(node, st.tuples(*[st.integers(0, 4)] * 2)), max_size=4)):
            amounts = draw(st.lists(st.integers(0, 9), min_size=counts[v], max_size=counts[v]))
            builder.use(v, draw(st.integers(0, resources - 1)), start, start + length, amounts)
    for _ in range(draw(st.integers(0, 3))):
        builder.add_supply(draw(_supplies(counts, resources, spans)))
    return builder.build()


@st.composite
def _supplies(
    draw: st.DrawFn, counts: list[int], resources: int, spans: st.SearchStrategy[list[tuple[int, int]]]
) -> Supply:
    node = st.integers(0, len(counts) - 1)
    source, readers = draw(node), draw(st.lists(node, max_size=4))
    items = draw(st.integers(1, 4))
    asks = tuple(
        np.array(draw(st.lists(st.integers(-1, items - 1), min_size=counts[v], max_size=counts[v]))) for v in readers
    )
    # Items as sets of two bits: one lies within another that has more.
    bits = draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    within = np.array([[a != b and a & b == a for b in bits] for a in bits])
    shape, count = (counts[source], items), counts[source] * items
    costs = draw(st.lists(st.one_of(st.integers(0, 9), st.just(FORBIDDEN)), min_size=count, max_size=count))
    uses = []
    for intervals in draw(st.lists(spans, max_size=2)) if resources else []:
        amounts = np.array(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))).reshape(shape)
        alive = tuple((start, start + length) for start, length in intervals)
        uses.append(SupplyUse(draw(st.integers(0, resources - 1)), alive, amounts))
    return Supply(source, tuple(readers), asks, within, np.array(costs).reshape(shape), tuple(uses))


def cheapest_of(problem: AssignmentProblem) -> int | None:
    """The least cost over all choices; None if none fits."""
    ranges = [range(int(count)) for count in problem.strategy_counts]
    costs = (cost_of(problem, choice) for choice in itertools.product(*ranges))
    return min((cost for cost in costs if cost is not None), default=None)


def cost_of(problem: AssignmentProblem, choice: tuple[int, ...]) -> int | None:
    """What a choice costs, peaks included; None if it does not fit or is forbidden."""
    parts = [int(problem.costs[v][s]) for v, s in enumerate(choice)]
    parts += [int(problem.matrix(e)[choice[u], choice[v]]) for e, (u, v) in enumerate(problem.edges.tolist())]
    brought = [_brought(supply, choice) for supply in problem.supplies]
    for supply, items in zip(problem.supplies, brought, strict=True):
        parts += [int(supply.costs[choice[supply.source], item]) for item in items]
    if max(parts) >= FORBIDDEN:
        return None
    for r, limit in enumerate(problem.limits.tolist()):
        peak = max(_in_use(problem, choice, brought, r, instant) for instant in INSTANTS)
        if peak > limit:
            return None
        parts.append(peak * (problem.prices[r] if problem.prices else 0))
    return sum(parts)


def _brought(supply: Supply, choice: tuple[int, ...]) -> list[int]:
    asked = {int(asks[choice[v]]) for v, asks in zip(supply.readers, supply.asks, strict=True)} - {-1}
    return [item for item in asked if not any(supply.within[item, other] for other in asked)]


def _in_use(
    problem: AssignmentProblem, choice: tuple[int, ...], brought: Iterable[list[int]], r: int, instant: int
) -> int:
    usages, total = problem.usages, 0
    for q in range(len(usages)):
        if usages.resource[q] == r and usages.start[q] <= instant < usages.stop[q]:
            total += int(usages.amounts[q][choice[usages.node[q]]])
    for supply, items in zip(problem.supplies, brought, strict=True):
        for use in supply.uses:
            times = sum(start <= instant < stop for start, stop in use.intervals) if use.resource == r else 0
            total += times * sum(int(use.amounts[choice[supply.source], item]) for item in items)
    return total
