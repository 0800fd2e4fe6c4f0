"""Annealing: exact bookkeeping, limits kept, and what moves of trees do not reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, ProblemBuilder
from tapestry.planner.solvers.assign.check import check_choice
from tapestry.planner.solvers.assign.plain import anneal
from tapestry.planner.solvers.assign.plain.anneal import Annealing
from tapestry.planner.solvers.assign.plain.reduce import Contradiction
from tapestry.planner.solvers.assign.plain.trws import excess

from ..problems import cheapest, problems
from .searching import offered, searching

pytestmark = pytest.mark.long


def coupled(nodes: int, strategies: int, seed: int) -> tuple[AssignmentProblem, list[int]]:
    """Every node meets every other at random costs, none between the strategies of a hidden choice; which fills the
    limit.
    """
    rng, builder = np.random.default_rng(seed), ProblemBuilder()
    hidden = rng.integers(0, strategies, nodes).tolist()
    amounts = rng.integers(1, 100, (nodes, strategies))
    memory = builder.add_resource(sum(int(amounts[v, hidden[v]]) for v in range(nodes)))
    for v in range(nodes):
        builder.use(builder.add_node(np.zeros(strategies, np.int64)), memory, 0, 1, amounts[v])
    for u in range(nodes):
        for v in range(u + 1, nodes):
            costs = rng.integers(1, 10, (strategies, strategies))
            costs[hidden[u], hidden[v]] = 0
            builder.add_edge(u, v, costs)
    return builder.build(), hidden


@settings(max_examples=30, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_what_is_offered_keeps_all_limits_and_costs_what_it_says(problem: AssignmentProblem, seed: int) -> None:
    """From the first labels that keep all limits."""
    least = cheapest(problem)
    if least is None:
        return
    try:
        search = searching(problem, seed)
    except Contradiction:
        raise AssertionError from None
    if not offered(search):
        return
    annealing = Annealing.begin(search)
    for _ in range(2):
        annealing.run()
    assert search.incumbent.labels is not None
    cost, faults = check_choice(problem, search.incumbent.model.lift(search.incumbent.labels).tolist())
    assert not faults
    assert least <= cost == search.incumbent.cost


def test_what_every_label_costs_is_kept_up_to_date() -> None:
    problem, _ = coupled(30, 4, seed=3)
    search = searching(problem)
    labels = np.zeros(30, dtype=np.int64)
    annealing, over = Annealing.begin(search), excess(search.loads, labels)
    anneal._fill(search.flat, annealing.matrix, labels, annealing.beside)
    now, least = annealing._chunk(labels, over, heat=100.0, now=0.0, least=0.0)
    fresh = np.zeros_like(annealing.beside)
    anneal._fill(search.flat, annealing.matrix, labels, fresh)
    assert (annealing.beside == fresh).all()
    assert (over == excess(search.loads, labels)).all()
    assert labels.any()  # much was taken
    model, first = search.incumbent.model, np.zeros(30, dtype=np.int64)
    assert now == model.cost(labels) - model.cost(first)
    assert least == model.cost(annealing.best) - model.cost(first) <= now


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_choice_hidden_among_couplings_of_all_with_all_is_found(seed: int) -> None:
    """In a complete graph an induced tree has two groups."""
    problem, hidden = coupled(60, 5, seed)
    search = searching(problem)
    lightest = [int(np.argmin(problem.usages.amounts[v])) for v in range(60)]
    assert search.incumbent.offer(np.array(lightest))
    annealing = Annealing.begin(search)
    for _ in range(4):
        annealing.run()
    assert search.incumbent.cost == 0
    assert search.incumbent.labels is not None
    assert search.incumbent.model.lift(search.incumbent.labels).tolist() == hidden
