"""`solve` against trying everything: cost, feasibility, bound, status, and the smallest conflict where none exists."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import FORBIDDEN, AssignmentProblem, DualCertificate, ProblemBuilder, solve
from tapestry.planner.solvers.assign.check import check, check_choice
from tapestry.planner.solvers.assign.first import first_choices
from tapestry.planner.solvers.assign.places import places_of
from tapestry.planner.solvers.assign.standing import Standing, Terms

from .problems import cheapest, held, ladder, planted, problems
from .supplied import supply_problems


@settings(max_examples=80, deadline=None)
@given(problems())
def test_agrees_with_trying_everything(problem: AssignmentProblem) -> None:
    answer = solve(problem)
    best = cheapest(problem)
    if best is None:
        assert answer.status == "infeasible"
    else:
        assert (answer.status, answer.cost, answer.bound) == ("optimal", best, best)
        assert check_choice(problem, answer.choice) == (best, [])
    assert check(problem, answer) == []


@settings(max_examples=80, deadline=None)
@given(problems())
def test_an_infeasible_problem_names_the_smallest_set_that_makes_it_so(problem: AssignmentProblem) -> None:
    answer = solve(problem)
    conflict = answer.conflict
    if cheapest(problem) is not None:
        assert conflict is None
        return
    if answer.certificate is not None:  # elimination and the reduction prove it beside the conflict
        assert check(problem, dataclasses.replace(answer, conflict=None)) == []
    assert conflict is not None
    assert conflict.smallest
    assert cheapest(problem, conflict.nodes) is None
    for nodes in itertools.combinations(range(problem.node_count), len(conflict.nodes) - 1):
        assert cheapest(problem, nodes) is not None


def test_a_conflict_names_the_instant_and_what_is_missing() -> None:
    builder = ProblemBuilder()
    hbm = builder.add_resource(10, "hbm")
    for name, amount in (("small", 2), ("large", 7), ("larger", 8), ("elsewhere", 9)):
        v = builder.add_node([0, 0], name)
        start = 20 if name == "elsewhere" else 3
        builder.use(v, hbm, start, start + 5, [amount, amount + 1])
    problem = builder.build()
    conflict = solve(problem).conflict
    assert conflict is not None
    assert (conflict.resource, conflict.instant, set(conflict.nodes)) == (hbm, 3, {1, 2})
    assert "larger" in conflict.describe(problem)
    assert "need at least 15 of hbm, of which there is 10" in conflict.describe(problem)


def test_what_the_reduction_refutes_is_refuted_again_from_its_steps() -> None:
    """More nodes than elimination is tried for: pairs that leave nothing, and least amounts above a limit."""
    for by_memory in (False, True):
        builder = ProblemBuilder()
        r = builder.add_resource(10, "hbm")
        nodes = [builder.add_node([0, 3]) for _ in range(450)]
        for u, v in itertools.pairwise(nodes):
            builder.add_edge(u, v, [[5, FORBIDDEN], [FORBIDDEN, 7]])
        if by_memory:
            for v in nodes[:12]:
                builder.use(v, r, 3, 4, [1, 2])
        else:
            builder.add_edge(nodes[0], nodes[-1], [[FORBIDDEN, 0], [0, FORBIDDEN]])
        problem = builder.build()
        answer = solve(problem)
        assert (answer.status, answer.claim) == ("infeasible", None)
        assert isinstance(answer.certificate, DualCertificate)
        assert check(problem, dataclasses.replace(answer, conflict=None)) == []
        fewer = dataclasses.replace(answer.certificate, steps=answer.certificate.steps[:1], prices=())
        wrong = dataclasses.replace(answer, conflict=None, certificate=fewer)
        assert [fault.verdict for fault in check(problem, wrong)] == ["wrong status"]


def test_a_conflict_of_pairs_alone_has_no_instant() -> None:
    builder = ProblemBuilder()
    a, b, _ = builder.add_node([0, 0]), builder.add_node([0, 0]), builder.add_node([1])
    builder.add_edge(a, b, [[FORBIDDEN, 0], [FORBIDDEN, 0]])
    builder.add_edge(a, b, [[0, FORBIDDEN], [0, FORBIDDEN]])
    problem = builder.build()
    conflict = solve(problem).conflict
    assert conflict is not None
    assert (conflict.instant, conflict.nodes) == (None, (a, b))
    assert "forbidden pairs" in conflict.describe(problem)


@pytest.mark.parametrize("jobs", [1, 2])
def test_stopping_early_gives_the_best_so_far_and_a_bound_below_it(jobs: int) -> None:
    problem = ladder(seed=1, nodes=120, strategies=12)
    answer = solve(problem, time_limit=0.5, jobs=jobs)
    assert answer.choice  # there is one before anything is compiled
    assert answer.bound is not None
    assert answer.cost is not None
    assert answer.bound <= answer.cost
    assert check(problem, answer) == []


@pytest.mark.parametrize(("forbidden", "room"), [(0.0, 1.3), (0.2, 1.5)])
def test_where_a_choice_is_easily_had_there_is_one_before_any_engine_starts(forbidden: float, room: float) -> None:
    problem = planted(seed=3, nodes=600, forbidden=forbidden, room=room)
    answer = solve(problem, time_limit=0.0)
    assert (answer.status, check(problem, answer)) == ("feasible", [])


@settings(max_examples=30, deadline=None)
@given(st.one_of(problems(), supply_problems()))
def test_the_rank_of_first_choices_is_what_the_checker_counts(problem: AssignmentProblem) -> None:
    terms = Terms.of(places_of(problem))
    ranks = []
    for choice in first_choices(terms, work=200):
        ranks.append(Standing(terms, choice).rank())
        cost, faults = check_choice(problem, choice)
        assert ranks[-1].allowed == (not faults)
        assert faults or ranks[-1].cost == cost
    assert ranks == sorted(ranks, reverse=True)
    assert ranks


@settings(max_examples=30, deadline=None)
@given(st.one_of(problems(), supply_problems()), st.integers(0, 2**32))
def test_deciding_one_node_keeps_count_and_never_makes_things_worse(problem: AssignmentProblem, seed: int) -> None:
    terms = Terms.of(places_of(problem))
    chance = random.Random(seed)
    standing = Standing(terms, [chance.randrange(count) for count in problem.strategy_counts.tolist()])
    for v in range(problem.node_count):
        before = standing.rank()
        standing.decide(v)
        counted = Standing(terms, standing.choice)
        assert (standing.profile == counted.profile).all()
        assert standing.rank() == counted.rank()
        if before.allowed:
            assert standing.rank() <= before


def test_one_job_and_an_iteration_limit_decide_the_answer() -> None:
    problem = ladder(seed=2, nodes=100, strategies=12)
    first, second = (solve(problem, time_limit=300.0, seed=3, iteration_limit=20) for _ in range(2))
    assert (first.choice, first.cost, first.bound) == (second.choice, second.cost, second.bound)
    assert first.choice


def test_a_feasible_hint_is_never_worse_than_the_answer() -> None:
    problem = ladder(seed=4, nodes=100, strategies=12)
    hint = solve(problem, time_limit=300.0, iteration_limit=5)
    answer = solve(problem, time_limit=300.0, iteration_limit=1, hint=hint.choice)
    assert answer.cost is not None
    assert hint.cost is not None
    assert answer.cost <= hint.cost


def test_a_hint_that_breaks_a_limit_is_not_taken() -> None:
    builder = ProblemBuilder()
    r = builder.add_resource(3)
    v = builder.add_node([0, 5])
    builder.use(v, r, 0, 1, [9, 2])
    problem = builder.build()
    assert held(problem, {v: 0}, r, 0) > 3
    assert solve(problem, hint=[0]).choice == (1,)


def test_nothing_to_choose() -> None:
    answer = solve(ProblemBuilder().build())
    assert (answer.status, answer.choice, answer.cost, answer.gap) == ("optimal", (), 0, 0.0)


def test_a_conflict_in_a_large_problem_is_cut_down_to_what_matters() -> None:
    builder = ProblemBuilder()
    r = builder.add_resource(10, "hbm")
    nodes = [builder.add_node([0, 0], f"n{v}") for v in range(500)]
    for v in nodes[:-1]:
        builder.add_edge(v, v + 1, [[0, 1], [1, 0]])
    for v, amounts in ((200, [9, 0]), (201, [0, 9]), (202, [9, 0])):  # 200 and 202 must differ from 201
        builder.use(v, r, 7, 8, amounts)
    builder.add_edge(200, 201, [[0, FORBIDDEN], [FORBIDDEN, FORBIDDEN]])
    builder.add_edge(201, 202, [[0, FORBIDDEN], [FORBIDDEN, FORBIDDEN]])
    problem = builder.build()
    answer = solve(problem)
    assert answer.conflict is not None
    assert check(problem, answer) == []
    assert (answer.conflict.instant, set(answer.conflict.nodes)) == (7, {200, 201, 202})
