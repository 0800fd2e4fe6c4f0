"""Supplies and prices: `solve` and each of its engines against trying everything, and every bound recomputed."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import (
    FORBIDDEN,
    AssignmentProblem,
    EliminationCertificate,
    InvalidProblem,
    ProblemBuilder,
    Supply,
    SupplyUse,
    eliminate,
    factors,
    solve,
)
from tapestry.planner.solvers.assign.check import check, check_choice
from tapestry.planner.solvers.assign.check_elimination import eliminated_bound
from tapestry.planner.solvers.assign.direct import Request, solve_narrow
from tapestry.planner.solvers.assign.dominance import settled, undominated
from tapestry.planner.solvers.assign.eliminate import Elimination
from tapestry.planner.solvers.assign.factors import PRICE_UNIT, Factors, _sets_asked_for, charged
from tapestry.planner.solvers.assign.integer import solve_integer
from tapestry.planner.solvers.assign.lagrange import Relaxation, examine
from tapestry.planner.solvers.assign.places import places_of
from tapestry.planner.solvers.assign.supply import supplied

from .problems import cheapest, problems
from .supplied import cheapest_of, cost_of, supply_problems


@settings(max_examples=150, deadline=None)
@given(supply_problems())
def test_agrees_with_trying_everything(problem: AssignmentProblem) -> None:
    answer, best = solve(problem), cheapest_of(problem)
    if best is None:
        assert answer.status == "infeasible"
    else:
        assert (answer.status, answer.cost, answer.bound) == ("optimal", best, best)
        assert cost_of(problem, answer.choice) == best
        assert check_choice(problem, answer.choice) == (best, [])
    assert check(problem, answer) == []


@settings(max_examples=60, deadline=None)
@given(supply_problems(), st.floats(0.05, 0.6))
def test_a_gap_is_kept(problem: AssignmentProblem, gap: float) -> None:
    answer, best = solve(problem, gap=gap), cheapest_of(problem)
    assert (best is None) == (answer.status == "infeasible")
    if best is not None:
        assert answer.bound is not None
        assert answer.cost is not None
        assert answer.bound <= best <= answer.cost
        assert answer.cost - answer.bound <= gap * abs(answer.cost)
    assert check(problem, answer) == []


@settings(max_examples=80, deadline=None)
@given(supply_problems(), st.data())
def test_any_multipliers_give_a_bound_and_the_checker_finds_the_same(
    problem: AssignmentProblem, data: st.DataObject
) -> None:
    relaxation = Relaxation.of(places_of(problem))
    places = range(len(relaxation.places))
    size = st.one_of(st.integers(0, 5).map(lambda k: k * PRICE_UNIT), st.integers(0, 6 * PRICE_UNIT))
    multipliers = {place: data.draw(size) for place in places}
    unlimited = any(problem.limits[r] >= FORBIDDEN for r in range(len(problem.limits)))
    relaxation.attempt({} if unlimited else multipliers)
    best = cheapest_of(problem)
    assert best is None or relaxation.bound <= best
    of = relaxation.places
    prices = tuple((int(of.resource[p]), int(of.instant[p]), k) for p, k in relaxation.multipliers.items())
    certificate = relaxation.engine.certificate(prices)
    assert isinstance(certificate, EliminationCertificate)
    bound = eliminated_bound(problem, certificate)
    if best is not None:
        rounding = len(relaxation.places.rows) * (problem.node_count + 1)  # which the checker does once a node
        assert relaxation.bound <= bound <= min(best, relaxation.bound + rounding)
    else:
        assert relaxation.impossible == (bound > relaxation.most)


@settings(max_examples=60, deadline=None)
@given(supply_problems())
def test_the_spare_of_a_strategy_is_below_what_it_costs(problem: AssignmentProblem) -> None:
    relaxation = Relaxation.of(places_of(problem))
    relaxation.ascend(0.0)
    assume(not relaxation.impossible)
    for v, spare in relaxation.engine.spare().items():
        for s in range(len(spare)):
            costs = problem.costs.values.copy()
            mine = slice(problem.costs.first[v], problem.costs.first[v + 1])
            costs[mine] = np.where(np.arange(len(spare)) == s, costs[mine], FORBIDDEN)
            only = dataclasses.replace(problem, costs=dataclasses.replace(problem.costs, values=costs))
            best = cheapest_of(only)
            assert best is None or relaxation.bound + spare[s] <= best


@settings(max_examples=60, deadline=None)
@given(supply_problems())
def test_the_integer_program_alone_agrees(problem: AssignmentProblem) -> None:
    allowed = [costs < FORBIDDEN for costs in (problem.costs[v] for v in range(problem.node_count))]
    found = solve_integer(places_of(problem), allowed, None, time_limit=600, work_limit=None, seed=0, jobs=1)
    best = cheapest_of(problem)
    assert found.status == ("infeasible" if best is None else "optimal")
    assert found.bound == best
    assert best is None or cost_of(problem, found.choice) == best


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_integer_program_is_exact_where_floats_are_not(data: st.DataObject) -> None:
    builder = ProblemBuilder()
    span = builder.add_resource(FORBIDDEN, price=512)
    for _ in range(data.draw(st.integers(1, 4))):
        work = data.draw(st.lists(st.integers(0, 10**9), min_size=2, max_size=3))
        node = builder.add_node(work)
        builder.use(node, span, 0, 1, [2 * amount for amount in work])
        builder.use(node, span, 1, 2, data.draw(st.permutations(work)))
    problem = builder.build()
    allowed = [np.ones(int(count), dtype=bool) for count in problem.strategy_counts]
    found = solve_integer(places_of(problem), allowed, None, time_limit=600, work_limit=None, seed=0, jobs=1)
    assert found.bound == cheapest_of(problem) == cost_of(problem, found.choice)


@settings(max_examples=60, deadline=None)
@given(supply_problems(), st.data())
def test_a_choice_is_counted_as_the_checker_counts_it(problem: AssignmentProblem, data: st.DataObject) -> None:
    choice = tuple(data.draw(st.integers(0, int(count) - 1)) for count in problem.strategy_counts)
    trial, cost = examine(places_of(problem), choice), cost_of(problem, choice)
    assert trial.fits == (cost is not None)
    assert trial.cost == check_choice(problem, choice)[0] or cost is None
    assert (cost is None) == bool(check_choice(problem, choice)[1])


@settings(max_examples=60, deadline=None)
@given(problems())
def test_elimination_alone_is_right_about_plain_problems(problem: AssignmentProblem) -> None:
    answer = solve_narrow(problem, Request(time.monotonic(), 600.0, 0, 1, None, 0.0))
    if answer is not None:
        assert answer.cost == cheapest(problem)
        assert check(problem, answer) == []


@settings(max_examples=60, deadline=None)
@given(supply_problems())
def test_least_with_each_value_is_the_least_of_all_with_it(problem: AssignmentProblem) -> None:
    factors = Factors(places_of(problem))
    elimination = Elimination(factors.sizes, factors.scopes())
    least, values, known = elimination.least(factors.under({}))
    assume(least < FORBIDDEN // 2)
    for variable, costs in elimination.least_with(known).items():
        assert int(costs.min()) == costs[values[variable]] == least


def test_charges_are_never_above_what_they_should_be() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        amounts, rate = rng.integers(0, 2**40, 5), int(rng.integers(0, 2**60))
        exact = [int(amount) * rate // PRICE_UNIT for amount in amounts]
        assert all(
            0 <= right - mine <= 1 + right * 2**-49
            for mine, right in zip(charged(amounts, rate).tolist(), exact, strict=True)
        )
    assert charged(np.array([3, 5]), 7 * PRICE_UNIT).tolist() == [21, 35]


def shared() -> AssignmentProblem:
    """A source of two forms, two readers; item 0 lies within item 1."""
    builder = ProblemBuilder()
    span = builder.add_resource(FORBIDDEN, "span", price=10)
    source, left, right = builder.add_node([0, 1], "source"), builder.add_node([0, 0]), builder.add_node([0, 5])
    costs = np.array([[4, 6], [0, 3]])
    uses = (SupplyUse(span, ((0, 1), (2, 3)), costs),)
    within = np.array([[False, True], [False, False]])
    asks = (np.array([0, 1]), np.array([1, 0]))
    builder.add_supply(Supply(source, (left, right), asks, within, costs, uses))
    return builder.build()


def test_what_several_ask_for_is_supplied_once() -> None:
    problem = shared()
    assert check_choice(problem, (0, 0, 0))[0] == 6 + 60  # the larger item serves both
    assert check_choice(problem, (0, 0, 1))[0] == 5 + 4 + 40
    assert check_choice(problem, (1, 0, 1))[0] == 1 + 5
    answer = solve(problem)
    assert (answer.status, answer.choice, answer.cost) == ("optimal", (1, 0, 1), 6)
    assert answer.certified_by == "elimination"


def test_a_bound_above_its_certificate_is_named() -> None:
    problem = shared()
    answer = solve(problem)
    wrong = dataclasses.replace(answer, bound=7, cost=None, choice=(), status="unknown")
    assert [fault.verdict for fault in check(problem, wrong)] == ["wrong bound"]
    refuted = dataclasses.replace(answer, bound=None, cost=None, choice=(), status="infeasible")
    assert [fault.verdict for fault in check(problem, refuted)] == ["wrong status"]


@pytest.mark.parametrize("order", ["missing", "twice"])
def test_an_order_that_is_none_is_refused(order: str) -> None:
    problem = shared()
    certificate = solve(problem).certificate
    assert isinstance(certificate, EliminationCertificate)
    changed = certificate.order[:-1] if order == "missing" else certificate.order + certificate.order[:1]
    with pytest.raises(ValueError, match="certificate"):
        eliminated_bound(problem, dataclasses.replace(certificate, order=changed))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": 9}, "node 9"),
        ({"asks": (np.array([0, 1]),)}, "1 vectors of asks"),
        ({"asks": (np.array([0, 2]), np.array([0, 0]))}, "from 0 to 2"),
        ({"costs": np.array([[4, 6]])}, r"costs \[1, 2\]"),
        ({"costs": np.array([[4, -6], [0, 0]])}, "costs down to -6"),
        ({"within": np.array([[True, False], [False, False]])}, "an item within itself"),
        ({"uses": (SupplyUse(3, ((0, 1),), np.zeros((2, 2), dtype=np.int64)),)}, "resource 3"),
        ({"uses": (SupplyUse(0, ((2, 1),), np.zeros((2, 2), dtype=np.int64)),)}, "start after"),
    ],
)
def test_a_supply_that_contradicts_the_problem_is_refused(change: dict[str, object], text: str) -> None:
    problem = shared()
    supply = dataclasses.replace(problem.supplies[0], **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem, match=r"(?s).*" + text) as refused:
        dataclasses.replace(problem, supplies=(supply,))
    assert "supply 0" in str(refused.value)


@settings(max_examples=15, deadline=None)
@given(supply_problems())
def test_what_is_too_wide_is_eliminated_case_by_case(problem: AssignmentProblem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eliminate, "MOST_WORK", 0)  # of a whole problem
        answer, best = solve(problem), cheapest_of(problem)
    assert answer.cost == best
    assert answer.status == ("infeasible" if best is None else "optimal")
    assert check(problem, answer) == []


@settings(max_examples=80, deadline=None)
@given(supply_problems())
def test_supplies_may_be_joined_one_reader_after_another(problem: AssignmentProblem) -> None:
    """As where a tensor has so many readers that their choices are too many to be listed together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factors, "MOST_AXES", 0)
        assume(all(supply.readers for supply in problem.supplies))
        answer, best = solve(problem), cheapest_of(problem)
    assert answer.cost == best
    assert check(problem, answer) == []


def test_a_hundred_readers_of_one_source() -> None:
    """More nodes than NumPy has axes, some with a single strategy: the source is best where most of them want it."""
    builder = ProblemBuilder()
    source = builder.add_node([0, 0])
    readers = [builder.add_node([0, 1] if k % 3 else [0]) for k in range(100)]
    asks = tuple(np.array([1, 0] if k % 3 else [1]) for k in range(100))
    inside = np.zeros((2, 2), dtype=bool)
    builder.add_supply(Supply(source, tuple(readers), asks, inside, np.array([[0, 7], [9, 0]])))
    problem = builder.build()
    answer = solve(problem)
    assert (answer.status, answer.cost, answer.choice[0]) == ("optimal", 0, 1)
    assert check(problem, answer) == []


@settings(max_examples=80, deadline=None)
@given(supply_problems())
def test_what_is_left_out_is_not_missed(problem: AssignmentProblem) -> None:
    kept = undominated(places_of(problem))
    smaller = problem.restricted(kept)
    assert cheapest_of(smaller) == cheapest_of(problem)
    best = cheapest_of(smaller)
    if best is not None:
        choice = solve(smaller).choice
        lifted = settled(places_of(problem), [mine[s] for mine, s in zip(kept, choice, strict=True)], kept)
        assert cost_of(problem, lifted) == best


@settings(max_examples=60)
@given(st.data())
def test_sets_asked_for_in_turn_are_what_is_supplied(data: st.DataObject) -> None:
    """Random orders of up to 70 items: whoever asks last, what lies within no other of all that is asked for."""
    count = data.draw(st.sampled_from([1, 5, 70]))
    levels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    inside = levels[:, None] < levels  # a strict order: every item lies within all of the levels above
    supply = Supply(0, (1, 2), (), inside, np.zeros((1, count), dtype=np.int64))
    asks = st.lists(st.tuples(st.just(0), *[st.integers(-1, count - 1)] * 2), min_size=1, max_size=4)
    meanings = [data.draw(asks) for _ in range(2)]
    number_of, members = _sets_asked_for(supply, meanings)
    for at in np.ndindex(*number_of.shape):
        asked = [item for values, k in zip(meanings, at, strict=True) for item in values[k][1:]]
        assert np.flatnonzero(members[number_of[at]]).tolist() == supplied(supply, asked)
