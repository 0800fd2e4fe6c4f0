"""Problems whose shared supplies are parted: the bound holds, is counted again, and answers rest on it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry.planner.solvers.assign import (
    AssignmentProblem,
    PartedCertificate,
    ProblemBuilder,
    Supply,
    direct,
    solve,
)
from tapestry.planner.solvers.assign.check import certified_bound, check
from tapestry.planner.solvers.assign.lagrange import Relaxation
from tapestry.planner.solvers.assign.prove import leaf

from .supplied import cheapest_of, supply_problems


@settings(max_examples=60, deadline=None)
@given(supply_problems())
def test_no_choice_costs_less_than_its_parts(problem: AssignmentProblem) -> None:
    best = cheapest_of(problem)
    relaxation = Relaxation.of_parts(problem)
    relaxation.ascend(0.0)
    certificate = leaf(relaxation)
    assert isinstance(certificate, PartedCertificate)
    assert best is None or relaxation.bound <= best
    assert certified_bound(problem, certificate) >= min(relaxation.bound, relaxation.most)
    assert best is None or certified_bound(problem, certificate) <= best


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
def test_problems_too_wide_are_solved_in_parts(monkeypatch: pytest.MonkeyPatch, alike: bool) -> None:
    problem = shared(4, alike=alike)
    monkeypatch.setattr(direct, "MOST_WORK", 200)
    answer = solve(problem)
    assert answer.cost == cheapest_of(problem)
    assert answer.status == "optimal"
    assert answer.certified_by == ("elimination, shared supplies in parts" if alike else answer.certified_by)
    assert check(problem, answer) == []


def test_a_bound_above_that_of_the_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = shared(4, alike=True)
    monkeypatch.setattr(direct, "MOST_WORK", 200)
    answer = solve(problem)
    assert answer.bound is not None
    wrong = dataclasses.replace(answer, bound=answer.bound + 1, cost=answer.cost)
    assert "wrong bound" in {fault.verdict for fault in check(problem, wrong)}
