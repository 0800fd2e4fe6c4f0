"""Each engine on its own, on problems small enough to try everything."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, ProblemBuilder
from tapestry.planner.solvers.assign.plain.exact import run_exact
from tapestry.planner.solvers.assign.plain.flat import flatten
from tapestry.planner.solvers.assign.plain.incumbent import Incumbent
from tapestry.planner.solvers.assign.plain.moves import scratch_for, sweep_forest, try_moves
from tapestry.planner.solvers.assign.plain.reduce import reduce
from tapestry.planner.solvers.assign.plain.reduced import loads_of
from tapestry.planner.solvers.assign.plain.search import Search, climb
from tapestry.planner.solvers.assign.plain.trws import Ascent, excess, price
from tapestry.planner.solvers.assign.plain.wcsp import run_wcsp

from ..problems import cheapest, ladder, problems

pytestmark = pytest.mark.long

ENGINES = pytest.mark.parametrize("engine", [run_exact, run_wcsp])


def started(problem: AssignmentProblem, seconds: float = 3600.0) -> Incumbent:
    model, _ = reduce(problem)
    now = time.monotonic()
    return Incumbent(model, loads_of(model), now, now + seconds)


@ENGINES
def test_an_engine_proves_the_optimum(engine: Callable[[Incumbent, int], None]) -> None:
    problem = ladder(seed=11, nodes=7, strategies=3)
    incumbent = started(problem)
    engine(incumbent, 0)
    assert incumbent.cost == incumbent.bound == cheapest(problem)
    assert incumbent.claim is not None
    assert incumbent.claim.status == "optimal"


@ENGINES
def test_an_engine_proves_that_there_is_no_choice(engine: Callable[[Incumbent, int], None]) -> None:
    builder = ProblemBuilder()
    r = builder.add_resource(5)
    a, b = builder.add_node([0, 0]), builder.add_node([0, 0])
    builder.add_edge(a, b, [[0, 3], [3, 0]])
    for instant, amounts in ((1, [3, 0]), (2, [0, 3])):
        for v in (a, b):
            builder.use(v, r, instant, instant + 1, [2 * amount for amount in amounts])
    incumbent = started(builder.build())
    engine(incumbent, 0)
    assert incumbent.infeasible


@ENGINES
def test_no_time_proves_nothing(engine: Callable[[Incumbent, int], None]) -> None:
    incumbent = started(ladder(seed=12, nodes=300, strategies=10), seconds=0.6)
    engine(incumbent, 0)
    assert not incumbent.infeasible
    assert incumbent.bound is None or incumbent.bound < incumbent.cost


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_moves_never_cost_more_and_never_break_a_limit_that_was_kept(problem: AssignmentProblem, seed: int) -> None:
    assume(cheapest(problem) is not None)
    incumbent = started(problem)
    run_exact(incumbent, 0)
    assert incumbent.labels is not None
    flat, loads = flatten(incumbent.model), incumbent.loads
    labels, scratch = incumbent.labels.copy(), scratch_for(flat, loads)
    over = excess(loads, labels)
    roots, state = np.arange(len(labels)), np.array([seed], dtype=np.uint64)
    gain = try_moves(flat, loads, scratch, flat.unary, labels, over, roots, 20, 8, 3.0, 0.0, state)
    assert incumbent.model.cost(labels) == incumbent.cost + gain == incumbent.cost
    assert (over == incumbent.loads.excess(labels)).all()
    assert (over <= 0).all()
    assert not scratch.touched.any()
    assert not scratch.change.any()


def test_a_forest_sweep_never_raises_the_priced_cost() -> None:
    incumbent = started(ladder(seed=13, nodes=60, strategies=6))
    flat, loads = flatten(incumbent.model), incumbent.loads
    rng, state = np.random.default_rng(0), np.array([5], dtype=np.uint64)
    multipliers = rng.random(len(loads.slack))
    priced = price(flat, loads, multipliers)
    labels, scratch = np.zeros(60, dtype=np.int64), scratch_for(flat, loads)
    over = excess(loads, labels)

    def priced_cost() -> float:
        return incumbent.model.cost(labels) + float(multipliers @ incumbent.loads.profile(labels))

    before = priced_cost()
    for _ in range(20):
        sweep_forest(flat, loads, scratch, priced, labels, over, 0.0, state)
        assert priced_cost() <= before + 1e-6
        assert (over == incumbent.loads.excess(labels)).all()
        before = priced_cost()


def test_the_search_finds_feasible_labels_from_the_duals() -> None:
    incumbent = started(ladder(seed=14, nodes=80, strategies=8))
    flat, loads = flatten(incumbent.model), incumbent.loads
    ascent, search = Ascent.begin(flat, loads), Search.begin(flat, loads, incumbent, 0)
    climb(ascent, incumbent, 30)
    multipliers = search.from_duals(ascent.best)
    assert incumbent.labels is not None
    found = incumbent.cost
    search.oscillate(incumbent.labels.copy(), multipliers, 50)
    assert incumbent.cost <= found
    assert ascent.best.bound <= incumbent.cost
