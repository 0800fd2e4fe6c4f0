"""Proofs case by case: they hold by the checker's own count, for the true optimum and for nothing above it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, EngineClaim, SplitCertificate, prove, solve
from tapestry.planner.solvers.assign.check import certified_bound, check
from tapestry.planner.solvers.assign.problem import cost_bound
from tapestry.planner.solvers.assign.prove import proof

from .problems import cheapest, ladder, problems
from .supplied import cheapest_of, supply_problems


@settings(max_examples=40, deadline=None)
@given(st.one_of(problems(), supply_problems()))
def test_the_optimum_is_proved_and_nothing_above_it(problem: AssignmentProblem) -> None:
    best = cheapest_of(problem)
    target = cost_bound(problem) + 1 if best is None else best
    certificate = proof(problem, target, 60.0)
    assert certificate is not None
    assert certified_bound(problem, certificate) >= target
    if best is not None:
        assert certified_bound(problem, certificate) <= best
        assert proof(problem, best + 1, 60.0) is None


@pytest.mark.parametrize("seed", range(3))
def test_too_wide_problems_are_proved_by_shares_and_cases(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ladder(seed=seed, nodes=6, strategies=3)
    best = cheapest(problem)
    assert best is not None
    monkeypatch.setattr(prove, "_WIDEST", 9)
    certificate = proof(problem, best, 60.0)
    assert certificate is not None
    assert certified_bound(problem, certificate) == best


def bound_of_cases() -> tuple[AssignmentProblem, SplitCertificate, int]:
    """A problem whose multipliers leave a gap, with the proof that closes it."""
    for seed in range(20):
        problem = ladder(seed=seed, nodes=6, strategies=3)
        best = cheapest(problem)
        certificate = None if best is None else proof(problem, best, 60.0)
        if isinstance(certificate, SplitCertificate) and best is not None:
            return problem, certificate, best
    raise AssertionError("no ladder needs cases")


def test_a_case_that_is_left_out_is_missed() -> None:
    problem, certificate, best = bound_of_cases()
    assert certified_bound(problem, certificate) == best
    fewer = dataclasses.replace(certificate, groups=certificate.groups[:-1], parts=certificate.parts[:-1])
    with pytest.raises(ValueError, match="is in no group"):
        certified_bound(problem, fewer)
    with pytest.raises(ValueError, match="no node 99"):
        certified_bound(problem, dataclasses.replace(certificate, node=99))


def test_what_only_an_engine_says_is_a_claim() -> None:
    """Without the proof the bound stays what duals or elimination give, and the answer is not called optimal."""
    problem, _, best = bound_of_cases()
    trusting = solve(problem, prove=False)
    assert (trusting.status, trusting.cost) == ("feasible", best)
    assert trusting.bound is not None
    assert trusting.bound < best
    assert isinstance(trusting.claim, EngineClaim)
    assert (trusting.claim.status, trusting.claim.bound) == ("optimal", best)
    assert check(problem, trusting) == []
    proved = solve(problem)
    assert (proved.status, proved.bound, proved.claim, proved.certified_by) == (
        "optimal", best, None, "elimination, case by case",
    )  # fmt: skip
    assert check(problem, proved) == []
    wrong = dataclasses.replace(trusting, bound=best, status="optimal")
    assert "wrong bound" in [fault.verdict for fault in check(problem, wrong)]
