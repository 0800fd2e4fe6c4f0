"""Problems narrowed between one bound and the next: bounds hold, and the checker counts them again."""

from __future__ import annotations

import dataclasses
import time
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, NarrowedCertificate, ShareCertificate, direct, eliminate
from tapestry.planner.solvers.assign.check import certified_bound, check
from tapestry.planner.solvers.assign.check_elimination import least_with_each
from tapestry.planner.solvers.assign.check_shares import shared_with_each
from tapestry.planner.solvers.assign.lagrange import Relaxation
from tapestry.planner.solvers.assign.narrowing import Narrowing
from tapestry.planner.solvers.assign.places import places_of
from tapestry.planner.solvers.assign.prove import leaf, only

from .problems import dense, problems
from .supplied import cheapest_of, supply_problems


def begun(problem: AssignmentProblem, *, whole: bool = False) -> Narrowing:
    """A problem with the bound of shares, or of an elimination."""
    relaxation = (Relaxation.of if whole else Relaxation.shared)(places_of(problem))
    relaxation.ascend(0.0)
    return Narrowing.of(problem, relaxation)


@settings(max_examples=80, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.booleans(), st.integers(0, 20))
def test_every_round_is_a_bound_that_is_counted_again(problem: AssignmentProblem, whole: bool, above: int) -> None:
    best, narrowing = cheapest_of(problem), begun(problem, whole=whole)
    enough = (narrowing.bound if best is None else best) + above
    for _ in range(4):
        if narrowing.bound >= enough or not narrowing.narrow(enough, 0.0, inf):
            break
        assert best is None or narrowing.bound <= best
        certified = certified_bound(problem, narrowing.certificate)
        assert certified >= min(narrowing.bound, narrowing.relaxation.most)
        assert best is None or certified <= best
        for choice in narrowing.choices():
            assert all(s in mine for s, mine in zip(choice, narrowing.left, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.one_of(supply_problems(), problems()), st.booleans())
def test_what_the_checker_says_of_a_strategy_is_no_more_than_it_costs(problem: AssignmentProblem, whole: bool) -> None:
    relaxation = begun(problem, whole=whole).relaxation
    first = leaf(relaxation)
    shared = isinstance(first, ShareCertificate)
    costs = shared_with_each(problem, first) if isinstance(first, ShareCertificate) else least_with_each(problem, first)
    spare = relaxation.engine.spare()
    for v, told in enumerate(costs):
        for s, least in enumerate(told.tolist()):
            with_it = cheapest_of(only(problem, v, (s,)))
            if with_it is not None:
                assert relaxation.bound + (int(spare[v][s]) if shared else 0) <= least <= with_it


def narrowed(seed: int) -> tuple[AssignmentProblem, NarrowedCertificate, int]:
    """A problem that shares alone do not prove, solved by narrowing, with its optimum."""
    problem = dense(seed, nodes=6, strategies=3, most=20)
    best, narrowing = cheapest_of(problem), begun(problem)
    assert best is not None
    assert narrowing.bound < best
    assert narrowing.narrow(best, 0.0, inf)
    certificate = narrowing.certificate
    assert isinstance(certificate, NarrowedCertificate)
    return problem, certificate, best


@pytest.mark.parametrize("seed", [5, 8, 14])
def test_what_is_too_wide_at_first_is_proved_in_rounds(seed: int) -> None:
    problem, certificate, best = narrowed(seed)
    assert certified_bound(problem, certificate) == best
    assert any(len(mine) < count for mine, count in zip(certificate.left, problem.strategy_counts, strict=True))


@pytest.mark.parametrize("seed", [5, 8, 14])
def test_what_is_left_out_without_reason_lowers_the_bound(seed: int) -> None:
    """The best choice is among what is left: without one of its strategies nothing proves what it costs."""
    problem, certificate, best = narrowed(seed)
    v = next(v for v, mine in enumerate(certificate.left) if len(mine) > 1)
    for s in certificate.left[v]:
        fewer = tuple((s,) if w == v else mine for w, mine in enumerate(certificate.left))
        rest = leaf(begun(problem.restricted(fewer), whole=True).relaxation)
        assert certified_bound(problem, dataclasses.replace(certificate, left=fewer, rest=rest)) <= best
    none = tuple(() if w == v else mine for w, mine in enumerate(certificate.left))
    assert certified_bound(problem, dataclasses.replace(certificate, left=none, rest=None)) < best


def test_a_certificate_that_says_nothing_of_what_is_left_is_refused() -> None:
    problem, certificate, _ = narrowed(5)
    with pytest.raises(ValueError, match="nothing is said"):
        certified_bound(problem, dataclasses.replace(certificate, rest=None))
    beyond = ((7,), *certificate.left[1:])
    with pytest.raises(ValueError, match="that there are not"):
        certified_bound(problem, dataclasses.replace(certificate, left=beyond))
    kept = tuple(tuple(range(count)) for count in problem.strategy_counts.tolist())
    first = dataclasses.replace(certificate.first, kept=kept)
    with pytest.raises(ValueError, match="left out before"):
        certified_bound(problem, dataclasses.replace(certificate, first=first))


@pytest.mark.parametrize("seed", [5, 8])
def test_solving_narrows_what_is_too_wide(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    problem = dense(seed, nodes=6, strategies=3, most=20)
    monkeypatch.setattr(eliminate, "MOST_WORK", 60)
    answer = direct.solve_directly(problem, direct.Request(time.monotonic(), 60.0, 0, 1, 0.2, 0.0, prove=False))
    assert (answer.status, answer.cost, answer.claim) == ("optimal", cheapest_of(problem), None)
    assert answer.certified_by == "narrower and narrower"
    assert check(problem, answer) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_choice_near_enough_to_the_bound_is_bettered_where_that_takes_an_elimination(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    problem = dense(seed, nodes=6, strategies=3, most=20)
    monkeypatch.setattr(eliminate, "MOST_WORK", 60)
    answer = direct.solve_directly(problem, direct.Request(time.monotonic(), 60.0, 0, 1, 0.2, 0.9, prove=False))
    assert answer.cost == answer.bound == cheapest_of(problem)
