"""What large problems need: a first answer at once, exact counts in one go, a small conflict in many nodes."""

from __future__ import annotations

import _thread
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import FORBIDDEN, AssignmentProblem, ProblemBuilder, solve
from tapestry.planner.solvers.assign.answer import Step
from tapestry.planner.solvers.assign.check import check, check_conflict
from tapestry.planner.solvers.assign.plain import portfolio, wcsp
from tapestry.planner.solvers.assign.plain import solve as plain
from tapestry.planner.solvers.assign.plain.conflict import find_conflict
from tapestry.planner.solvers.assign.plain.flat import flatten
from tapestry.planner.solvers.assign.plain.incumbent import Incumbent
from tapestry.planner.solvers.assign.plain.reduce import Contradiction, reduce
from tapestry.planner.solvers.assign.plain.reduced import HALF, loads_of
from tapestry.planner.solvers.assign.plain.search import Search

from ..problems import cheapest, ladder, planted, problems

pytestmark = pytest.mark.long


def started(problem: AssignmentProblem) -> Incumbent:
    model, _ = reduce(problem)
    now = time.monotonic()
    return Incumbent(model, loads_of(model), now, now + 300.0)


@pytest.mark.parametrize(("forbidden", "room"), [(0.0, 1.0), (0.2, 1.1), (0.4, 1.02)])
def test_the_first_answer_keeps_tight_limits_and_forbidden_pairs(forbidden: float, room: float) -> None:
    incumbent = started(planted(seed=1, nodes=600, forbidden=forbidden, room=room))
    assert incumbent.model.pair_entries > 1000
    search = Search.begin(flatten(incumbent.model), incumbent.loads, incumbent, 0)
    search.first()
    assert incumbent.labels is not None
    assert incumbent.cost == incumbent.model.cost(incumbent.labels)
    assert (incumbent.loads.excess(incumbent.labels) <= 0).all()
    costs = [cost for _, cost in incumbent.history]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]  # once something keeps the limits, memory becomes cheaper until it binds


@pytest.mark.parametrize("jobs", [1, 2])
def test_large_problems_take_the_way_of_duals_and_moves(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wcsp, "NODE_LIMIT", 10)
    monkeypatch.setattr(portfolio, "_TINY_ENTRIES", 10)
    problem = planted(seed=2, nodes=300, forbidden=0.2, room=1.1)
    answer = solve(problem, time_limit=600.0, jobs=jobs, iteration_limit=6)  # so much work, however long it takes
    assert answer.certified_by == "duals"
    assert answer.gap is not None
    assert answer.gap < 0.2
    assert check(problem, answer) == []


@pytest.mark.parametrize("node_limit", [10, 2000])
def test_an_interrupt_leaves_the_best_so_far(
    node_limit: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(wcsp, "NODE_LIMIT", node_limit)
    monkeypatch.setattr(portfolio, "_TINY_ENTRIES", 10)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background begin with it ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    problem = planted(seed=4, nodes=900, forbidden=0.0, room=1.05)
    timer = threading.Timer(1.0, _thread.interrupt_main)
    run = portfolio.run

    def interrupted(incumbent: Incumbent, steps: tuple[Step, ...], effort: portfolio.Effort) -> portfolio.Certified:
        timer.start()
        return run(incumbent, steps, effort)

    monkeypatch.setattr(plain, "run", interrupted)
    answer = solve(problem, time_limit=100.0, jobs=2)
    timer.join()
    assert answer.status == "feasible"
    assert check(problem, answer) == []


def test_moves_go_on_beside_proofs_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []

    def proves_on(incumbent: Incumbent, *_: object) -> None:
        incumbent.finished.wait(incumbent.left)

    def moves(duals: portfolio._Duals, search: Search, rounds: int, *, small: bool) -> None:
        assert small
        moved.append(search.incumbent.left)
        search.incumbent.finished.set()

    monkeypatch.setattr(portfolio, "_TINY_ENTRIES", 10)
    monkeypatch.setattr(portfolio.wcsp, "run_wcsp", proves_on)
    monkeypatch.setattr(portfolio.exact, "run_exact", proves_on)
    monkeypatch.setattr(portfolio, "_warm_up", lambda *_: None)
    monkeypatch.setattr(portfolio, "_keep_moving", moves)
    solve(planted(seed=2, nodes=300, forbidden=0.2, room=1.1), time_limit=10.0, jobs=2)
    assert moved


@settings(max_examples=100, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_a_tally_counts_what_the_model_counts(problem: AssignmentProblem, source: st.DataObject) -> None:
    try:
        incumbent = started(problem)
    except Contradiction:
        assert cheapest(problem) is None
        return
    model = incumbent.model
    labels = np.array([source.randrange(len(costs)) for costs in model.unary], dtype=np.int64)  # type: ignore[attr-defined]
    expected = model.cost(labels)
    assert incumbent.tally.cost(labels) == (expected if expected < HALF else HALF)


def test_nothing_is_taken_once_the_answer_is_being_written() -> None:
    incumbent = started(ladder(seed=3, nodes=20, strategies=3))
    search = Search.begin(flatten(incumbent.model), incumbent.loads, incumbent, 0)
    search.first()
    before = (incumbent.cost, incumbent.bound)
    assert incumbent.labels is not None
    incumbent.close()
    incumbent.cost = HALF
    assert not incumbent.offer(incumbent.labels)
    assert not incumbent.raise_bound(1)
    incumbent.trust(1, "late", "feasible")
    assert incumbent.bound == before[1]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_a_few_nodes_among_hundreds_are_found_to_be_the_conflict(seed: int, by_memory: bool) -> None:
    """Three nodes that must all differ pairwise but have two strategies, or that must agree and then hold too much."""
    rng = np.random.default_rng(seed)
    problem = planted(seed % 1000, 450, 0.0, 2.0)
    trio = sorted(rng.choice(450, 3, replace=False).tolist())
    builder = ProblemBuilder()
    memory = builder.add_resource(15 * 10**6)
    for v in range(450):
        builder.add_node([0, 1] if v in trio else problem.costs[v])
        if v not in trio:
            builder.use(v, memory, v, v + 3, problem.usages.amounts[v])
    for e, (u, v) in enumerate(problem.edges.tolist()):
        if not {u, v} & set(trio):
            builder.add_edge(u, v, problem.matrix(e))
    a, b, c = trio
    for u, v, same in ((a, b, by_memory), (b, c, by_memory), (a, c, by_memory)):
        builder.add_edge(u, v, [[0, FORBIDDEN], [FORBIDDEN, 0]] if same else [[FORBIDDEN, 0], [0, FORBIDDEN]])
    if by_memory:
        for v, amounts in ((a, [10**7, 0]), (b, [0, 10**7]), (c, [10**7, 10**7])):
            builder.use(v, memory, 5000, 5001, amounts)
    made = builder.build()
    conflict = find_conflict(made, 60.0)
    assert conflict is not None
    assert check_conflict(made, conflict) == []
    assert set(conflict.nodes) == set(trio)
    assert conflict.instant == (5000 if by_memory else None)
    words = "cannot be assigned together within" if by_memory else "forbidden pairs"  # the least needs alone would fit
    assert words in conflict.describe(made)
