"""The reduction keeps every answer: the reduced model's choices are the problem's, at the same costs."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings

from tapestry.planner.solvers.assign import FORBIDDEN, AssignmentProblem, ProblemBuilder
from tapestry.planner.solvers.assign.check import check_choice
from tapestry.planner.solvers.assign.plain.reduce import Contradiction, reduce
from tapestry.planner.solvers.assign.plain.reduced import HALF, loads_of

from ..problems import cheapest, problems


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_reduced_model_has_the_same_optimum(problem: AssignmentProblem) -> None:
    try:
        model, _ = reduce(problem)
    except Contradiction:
        assert cheapest(problem) is None
        return
    loads = loads_of(model)
    found: list[int] = []
    for labels in map(np.array, itertools.product(*map(range, model.label_counts.tolist()))):
        cost, faults = check_choice(problem, model.lift(labels).tolist())
        breaks = any(fault.verdict == "over the limit" for fault in faults)
        assert breaks == bool((loads.excess(labels) > 0).any())
        if model.cost(labels) < HALF:
            assert model.cost(labels) == cost
            found += [] if breaks else [model.cost(labels)]
        assert (model.lower(model.lift(labels)) == labels).all()
    assert min(found, default=None) == cheapest(problem)


def chain(length: int) -> AssignmentProblem:
    """Nodes that must all take the same strategy."""
    builder = ProblemBuilder()
    for v in range(length):
        builder.add_node([v, 1, 2])
    same = np.where(np.eye(3, dtype=bool), 1, FORBIDDEN)
    for v in range(length - 1):
        builder.add_edge(v, v + 1, same)
    return builder.build()


def test_nodes_that_follow_one_another_become_one_group() -> None:
    model, steps = reduce(chain(50))
    assert len(model.unary) == 1
    assert len(steps) == 49
    assert model.unary[0].tolist() == [sum(range(50)) + 49, 50 + 49, 100 + 49]


def test_without_forbidden_pairs_only_separable_edges_go() -> None:
    builder = ProblemBuilder()
    a, b, c = (builder.add_node([0, 0]) for _ in range(3))
    builder.add_edge(a, b, [[1, 2], [11, 12]])
    builder.add_edge(b, c, [[1, 2], [11, 13]])
    model, steps = reduce(builder.build())
    assert list(model.edges) == [(1, 2)]
    assert [costs.tolist() for costs in model.unary] == [[1, 11], [0, 1], [0, 0]]
    assert steps == ()
