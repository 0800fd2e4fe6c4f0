"""Wide moves: the cheapest labels of what is open, limits kept in what is offered."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, ProblemBuilder
from tapestry.planner.solvers.assign.check import check_choice
from tapestry.planner.solvers.assign.eliminate import order_of_most
from tapestry.planner.solvers.assign.plain import wide
from tapestry.planner.solvers.assign.plain.reduce import Contradiction
from tapestry.planner.solvers.assign.plain.wide import WideMoves

from ..problems import cheapest, problems
from .searching import offered, searching

pytestmark = pytest.mark.long


def ring(nodes: int, strategies: int, seed: int) -> AssignmentProblem:
    """A ring with chords between nodes that lie opposite, at random costs; a limit that rules out much."""
    rng, builder = np.random.default_rng(seed), ProblemBuilder()
    memory = builder.add_resource(30 * nodes)
    for _ in range(nodes):
        builder.use(builder.add_node(rng.integers(0, 50, strategies)), memory, 0, 1, rng.integers(1, 100, strategies))
    pairs = [(v, (v + 1) % nodes) for v in range(nodes)] + [(v, v + nodes // 2) for v in range(0, nodes // 2, 3)]
    for u, v in pairs:
        builder.add_edge(u, v, rng.integers(0, 100, (strategies, strategies)))
    return builder.build()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_array_is_larger_than_it_may_be(data: st.DataObject) -> None:
    """Whichever variables keep their values, all others are in the order, and eliminated in it meet so few."""
    count = data.draw(st.integers(1, 9))
    sizes = dict(enumerate(data.draw(st.lists(st.integers(2, 5), min_size=count, max_size=count))))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    most = data.draw(st.integers(5, 200))
    order = order_of_most(sizes, pairs, most, lambda n: data.draw(st.integers(0, n - 1)))
    assert len(set(order)) == len(order)
    met = [{u, v} & set(order) for u, v in pairs]
    for v in order:
        scope = set().union({v}, *(some for some in met if v in some))
        assert np.prod([sizes[w] for w in scope]) <= most
        met = [some for some in met if v not in some] + [scope - {v}]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("most", [10, 30, 100_000])
def test_what_is_open_is_decided_at_the_least_cost(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all labels of the open groups; of three labels each a few are open at the least."""
    monkeypatch.setattr(wide, "_MOST_ENTRIES", most)
    search = searching(ring(8, 3, seed), seed)
    moves = WideMoves(search, np.zeros(len(search.loads.slack)), dict.fromkeys(range(8), 3), search.decoded)
    opened: list[list[int]] = []
    order_of_open = moves.open
    monkeypatch.setattr(moves, "open", lambda: opened.append(order_of_open()) or opened[-1])
    before = np.random.default_rng(seed).integers(0, 3, 8)
    labels = before.copy()
    moves.decide(labels, search.flat.unary)
    costs = []
    for values in itertools.product(range(3), repeat=len(opened[0])):
        other = before.copy()
        other[opened[0]] = values
        costs.append(search.incumbent.tally.cost(other))
    kept = sorted(set(range(8)) - set(opened[0]))
    assert (labels[kept] == before[kept]).all()
    assert search.incumbent.tally.cost(labels) == min(costs)
    assert bool(kept) == (most < 100_000)


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_what_is_offered_keeps_all_limits_and_costs_what_it_says(problem: AssignmentProblem, seed: int) -> None:
    least = cheapest(problem)
    if least is None:
        return
    try:
        search = searching(problem, seed)
    except Contradiction:
        raise AssertionError from None
    moves = WideMoves.begin(search, np.ones(len(search.loads.slack)))
    if moves is None or not offered(search):
        return
    moves.run()
    moves.run()
    assert search.incumbent.labels is not None
    cost, faults = check_choice(problem, search.incumbent.model.lift(search.incumbent.labels).tolist())
    assert not faults
    assert least <= cost == search.incumbent.cost


def test_prices_lead_to_labels_within_the_limit() -> None:
    """From labels that hold least: two runs are a third cheaper, within a limit that the cheapest labels break."""
    problem = ring(40, 6, seed=4)
    search = searching(problem)
    lightest = np.array([int(np.argmin(problem.usages.amounts[v])) for v in range(40)])
    assert search.incumbent.offer(lightest)
    first = search.incumbent.cost
    moves = WideMoves.begin(search, np.zeros(1))
    assert moves is not None
    free = lightest.copy()
    moves.decide(free, search.flat.unary)
    assert not search.incumbent.offer(free)
    moves.run()
    moves.run()
    assert search.incumbent.tally.cost(free) <= search.incumbent.cost < 2 * first // 3


def test_where_all_meet_there_are_no_wide_moves() -> None:
    rng, builder = np.random.default_rng(0), ProblemBuilder()
    for _ in range(30):
        builder.add_node(np.zeros(8, np.int64))
    for u, v in itertools.combinations(range(30), 2):
        builder.add_edge(u, v, rng.integers(0, 10, (8, 8)))
    assert WideMoves.begin(searching(builder.build()), np.zeros(0)) is None
