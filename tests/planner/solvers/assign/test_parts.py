"""Problems whose shared supplies are parted: the bound holds, is counted again, and answers rest on it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import (
    AssignmentProblem,
    ProblemBuilder,
    Supply,
    direct,
    eliminate,
    solve,
)
from tapestry.planner.solvers.assign.answer import EliminationCertificate, Parts
from tapestry.planner.solvers.assign.check import certified_bound, check
from tapestry.planner.solvers.assign.lagrange import Relaxation
from tapestry.planner.solvers.assign.prove import leaf, only

from .problems import dense, problems
from .supplied import cheapest_of, supply_problems


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.sampled_from([1, 4, 12, 1000]))
def test_no_choice_costs_less_than_its_parts(problem: AssignmentProblem, widest: int) -> None:
    best = cheapest_of(problem)
    relaxation = Relaxation.of_parts(problem, widest)
    relaxation.ascend(0.0)
    assert best is None or relaxation.bound <= best
    assert certified_bound(problem, leaf(relaxation)) >= min(relaxation.bound, relaxation.most)
    assert best is None or certified_bound(problem, leaf(relaxation)) <= best


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.sampled_from([1, 4, 12, 1000]))
def test_no_choice_with_a_strategy_costs_less_than_what_is_spared(problem: AssignmentProblem, widest: int) -> None:
    relaxation = Relaxation.of_parts(problem, widest)
    relaxation.ascend(0.0)
    for v, spare in relaxation.spare().items():
        for s, more in enumerate(spare.tolist()):
            with_it = cheapest_of(only(problem, v, (s,)))
            assert with_it is None or relaxation.bound + more <= with_it


@pytest.mark.parametrize("seed", range(3))
def test_costs_moved_between_buckets_bring_a_better_bound(seed: int) -> None:
    problem = dense(seed, nodes=6, strategies=3)
    relaxation = Relaxation.of_parts(problem, widest=27)
    assert relaxation.elimination.parted
    relaxation.begin()
    first = relaxation.bound
    relaxation.ascend(0.0)
    best = cheapest_of(problem)
    assert best is not None
    assert first < relaxation.bound <= best


def parts_of(certificate: object) -> tuple[EliminationCertificate, Parts]:
    assert isinstance(certificate, EliminationCertificate)
    return certificate, certificate.parts[0]


def test_parts_that_add_costs_or_miss_some_are_refused() -> None:
    problem = dense(0, nodes=6, strategies=3)
    relaxation = Relaxation.of_parts(problem, widest=27)
    relaxation.ascend(0.0)
    certificate, parts = parts_of(leaf(relaxation))
    first, *others = parts.shifts
    more = dataclasses.replace(parts, shifts=((first[0] + 1000, *first[1:]), *others))
    fewer = dataclasses.replace(parts, scopes=parts.scopes[:1], shifts=tuple((0,) * 3 for _ in parts.scopes[:1]))
    short = dataclasses.replace(parts, shifts=tuple(shift[:-1] for shift in parts.shifts))
    for wrong, text in ((more, "add to its costs"), (fewer, "no part of"), (short, "are not 3 costs each")):
        with pytest.raises(ValueError, match=text):
            certified_bound(problem, dataclasses.replace(certificate, parts=(wrong, *certificate.parts[1:])))


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
    monkeypatch.setattr(eliminate, "MOST_WORK", 200)
    monkeypatch.setattr(direct, "WIDEST", 20)
    answer = solve(problem)
    assert answer.cost == cheapest_of(problem)
    assert answer.status == "optimal"
    assert answer.certified_by == ("elimination, shared supplies in parts" if alike else answer.certified_by)
    assert check(problem, answer) == []


def test_a_bound_above_that_of_the_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = shared(4, alike=True)
    monkeypatch.setattr(eliminate, "MOST_WORK", 200)
    monkeypatch.setattr(direct, "WIDEST", 20)
    answer = solve(problem)
    assert answer.bound is not None
    wrong = dataclasses.replace(answer, bound=answer.bound + 1, cost=answer.cost)
    assert "wrong bound" in {fault.verdict for fault in check(problem, wrong)}
