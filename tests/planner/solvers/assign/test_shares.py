"""Problems too wide for elimination: the bound of shares holds, is counted again, and answers rest on it."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import (
    AssignmentProblem,
    ProblemBuilder,
    ShareCertificate,
    Supply,
    eliminate,
    solve,
)
from tapestry.planner.solvers.assign.answer import PairDuals
from tapestry.planner.solvers.assign.check import certified_bound, check
from tapestry.planner.solvers.assign.lagrange import Relaxation
from tapestry.planner.solvers.assign.places import places_of
from tapestry.planner.solvers.assign.prove import leaf, only

from .problems import dense, problems
from .supplied import cheapest_of, supply_problems


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.sampled_from([1, 1000, 10**6]))
def test_no_choice_costs_less_than_its_shares(problem: AssignmentProblem, most_work: int) -> None:
    best = cheapest_of(problem)
    relaxation = Relaxation.shared(places_of(problem), most_work)
    relaxation.ascend(0.0)
    assert best is None or relaxation.bound <= best
    assert certified_bound(problem, leaf(relaxation)) >= min(relaxation.bound, relaxation.most)
    assert best is None or certified_bound(problem, leaf(relaxation)) <= best


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()))
def test_no_choice_with_a_strategy_costs_less_than_what_is_spared(problem: AssignmentProblem) -> None:
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.ascend(0.0)
    for v, spare in relaxation.engine.spare().items():
        for s, more in enumerate(spare.tolist()):
            with_it = cheapest_of(only(problem, v, (s,)))
            assert with_it is None or relaxation.bound + more <= with_it


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.randoms(use_true_random=False))
def test_what_is_left_of_a_problem_is_bounded_from_where_its_bound_stood(
    problem: AssignmentProblem, random: Random
) -> None:
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.ascend(0.0)
    counts = problem.strategy_counts.tolist()
    near = [sorted(random.sample(range(count), random.randint(1, count))) for count in counts]
    left = problem.restricted(near)
    best, found = cheapest_of(left), relaxation.among(left, near, most_work=0)
    assert not found.whole
    found.ascend(0.0)
    assert best is None or found.bound <= best
    assert certified_bound(left, leaf(found)) >= min(found.bound, found.most)
    assert best is None or certified_bound(left, leaf(found)) <= best


@pytest.mark.parametrize("seed", range(6))
def test_a_bound_goes_on_from_where_it_stood(seed: int) -> None:
    """As few sweeps from nothing leave it lower."""
    problem = dense(seed, nodes=16, strategies=6)
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.ascend(0.0)
    anew = Relaxation.shared(places_of(problem), most_work=0)
    anew.begin()
    everything = [range(count) for count in problem.strategy_counts.tolist()]
    assert relaxation.among(problem, everything, most_work=0).bound >= relaxation.bound > anew.bound


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_that_will_not_be_worth_it_is_left(seed: int) -> None:
    """It holds all the same, and what it can come up to is not left."""
    problem = dense(seed, nodes=8, strategies=4)
    whole = Relaxation.shared(places_of(problem)).engine.least({})[0]
    best = cheapest_of(problem)
    assert best is not None
    assert Relaxation.shared(places_of(problem)).engine.least({}, 10 * best)[0] < whole <= best
    assert Relaxation.shared(places_of(problem)).engine.least({}, whole - 1)[0] == whole


@pytest.mark.parametrize("seed", range(3))
def test_costs_moved_between_pairs_and_nodes_bring_a_better_bound(seed: int) -> None:
    problem = dense(seed, nodes=6, strategies=3)
    alone = sum(int(problem.costs[v].min()) for v in range(6))
    alone += sum(int(problem.matrix(e).min()) for e in range(len(problem.edges)))
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.begin()
    best = cheapest_of(problem)
    assert best is not None
    assert alone < relaxation.bound <= best


def several(seed: int, readers: int, items: int) -> AssignmentProblem:
    """A source, and readers of it that want different items, each more or less."""
    rng, builder = np.random.default_rng(seed), ProblemBuilder()
    source = builder.add_node([0])
    nodes = [builder.add_node(rng.integers(0, 40, items)) for _ in range(readers)]
    costs = rng.integers(5, 40, (1, items))
    asks = (np.arange(items),) * readers
    builder.add_supply(Supply(source, tuple(nodes), asks, np.zeros((items, items), dtype=bool), costs))
    return builder.build()


@pytest.mark.parametrize("seed", range(6))
def test_who_needs_an_item_pays_for_it(seed: int) -> None:
    """Were every reader to pay an equal share, what one alone asks for would hardly count."""
    problem = several(seed, readers=4, items=4)
    supply, best = problem.supplies[0], cheapest_of(problem)
    equal = sum(int((problem.costs[v] + supply.costs[0] // 4).min()) for v in supply.readers)
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.begin()
    assert best is not None
    assert equal < best
    assert best - (best - equal) / 2 <= relaxation.bound <= best


def test_duals_that_count_something_twice_are_refused() -> None:
    problem = several(1, readers=3, items=3)
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.begin()
    certificate = leaf(relaxation)
    assert isinstance(certificate, ShareCertificate)
    first, *others = certificate.supplies[0]

    def refused(*pairs: PairDuals) -> str:
        with pytest.raises(ValueError, match="certificate: ") as error:
            certified_bound(problem, dataclasses.replace(certificate, supplies={0: pairs}))
        return str(error.value)

    more, less = (dataclasses.replace(first, share=first.share + each) for each in (1000, -1000))
    assert "more than the costs" in refused(more, *others)
    assert "less than nothing" in refused(less, *others)
    assert "a share for each reader" in refused(*others)
    assert "a cost for each strategy" in refused(dataclasses.replace(first, to_reader=first.to_reader[:-1]), *others)
    assert "too much" in refused(dataclasses.replace(first, to_source=first.to_source + (1 << 61)), *others)


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_reads_what_it_gives_has_one_strategy_at_both_ends(seed: int) -> None:
    """So that what it pays for its own is exact."""
    rng, builder = np.random.default_rng(seed), ProblemBuilder()
    node = builder.add_node(rng.integers(0, 9, 4))
    costs = rng.integers(0, 9, (4, 4))
    builder.add_supply(Supply(node, (node,), (rng.permutation(4),), np.zeros((4, 4), dtype=bool), costs))
    problem = builder.build()
    relaxation = Relaxation.shared(places_of(problem))
    relaxation.begin()
    assert relaxation.bound == cheapest_of(problem) == certified_bound(problem, leaf(relaxation))


def shared(readers: int, *, alike: bool) -> AssignmentProblem:
    """A source of three forms that so many nodes read: all cheapest with the same item, or every other with another."""
    builder = ProblemBuilder()
    source = builder.add_node([0, 0, 0])
    prices = np.array([[0, 9, 9], [9, 0, 9], [9, 9, 0]])
    asks = np.arange(3)
    nodes = [builder.add_node([0, 4, 4] if alike or k % 2 else [40, 0, 40]) for k in range(readers)]
    apart = np.zeros((3, 3), dtype=bool)
    builder.add_supply(Supply(source, tuple(nodes), (asks,) * readers, apart, prices))
    builder.add_edge(source, nodes[0], [[5, 5, 5], [0, 0, 0], [0, 0, 0]])
    return builder.build()


@pytest.mark.parametrize("alike", [True, False])
def test_problems_too_wide_are_solved(monkeypatch: pytest.MonkeyPatch, alike: bool) -> None:
    problem = shared(4, alike=alike)
    monkeypatch.setattr(eliminate, "MOST_WORK", 200)
    answer = solve(problem)
    assert answer.cost == cheapest_of(problem)
    assert answer.status == "optimal"
    assert answer.certified_by == ("shares" if alike else answer.certified_by)
    assert check(problem, answer) == []


def test_a_bound_above_that_of_the_shares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = shared(4, alike=True)
    monkeypatch.setattr(eliminate, "MOST_WORK", 200)
    answer = solve(problem)
    assert answer.bound is not None
    wrong = dataclasses.replace(answer, bound=answer.bound + 1, cost=answer.cost)
    assert "wrong bound" in {fault.verdict for fault in check(problem, wrong)}
