"""Bounds from duals: sound for any messages and multipliers, and as good as the solver says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, DualCertificate
from tapestry.planner.solvers.assign.check_duals import dual_bound
from tapestry.planner.solvers.assign.plain.certificate import dual_certificate
from tapestry.planner.solvers.assign.plain.flat import flatten
from tapestry.planner.solvers.assign.plain.reduce import Contradiction, reduce
from tapestry.planner.solvers.assign.plain.reduced import Loads, Reduced, loads_of
from tapestry.planner.solvers.assign.plain.trws import Ascent, Duals, certified

from ..problems import cheapest, ladder, problems

pytestmark = pytest.mark.long


def certificate_of(problem: AssignmentProblem, steps: int) -> tuple[DualCertificate, Duals, Reduced, Loads]:
    try:
        model, why = reduce(problem)
    except Contradiction:
        assume(False)
    loads = loads_of(model)
    flat, limits = flatten(model), loads
    ascent = Ascent.begin(flat, limits)
    for _ in range(steps):
        ascent.step(target=50.0)
    duals = certified(flat, limits, ascent.best)
    return dual_certificate(model, loads, flat, duals, why), duals, model, loads


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_certified_bound_is_below_the_optimum_and_what_the_solver_claims(problem: AssignmentProblem) -> None:
    certificate, duals, _, _ = certificate_of(problem, steps=5)
    bound, best = dual_bound(problem, certificate), cheapest(problem)
    assert bound >= duals.bound - 0.01
    if best is not None:
        assert bound <= best


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_no_messages_and_no_prices_whatsoever_lift_the_bound_above_the_optimum(
    problem: AssignmentProblem, data: st.DataObject
) -> None:
    certificate, _, _, loads = certificate_of(problem, steps=1)
    best = cheapest(problem)
    assume(best is not None)
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng, unit = np.random.default_rng(seed), certificate.unit
    messages = tuple(
        (to_g + unit * rng.integers(-9, 9, len(to_g)), to_h + unit * rng.integers(-9, 9, len(to_h)))
        for to_g, to_h in certificate.messages
    )
    places = zip(loads.resource.tolist(), loads.instant.tolist(), strict=True)
    prices = tuple((r, t, int(rng.integers(0, 3 * certificate.price_unit))) for r, t in places)
    altered = dataclasses.replace(certificate, messages=messages, prices=prices)
    assert best is not None
    assert dual_bound(problem, altered) <= best


def test_the_ascent_raises_the_bound() -> None:
    problem = ladder(seed=5, nodes=60, strategies=8)
    first = dual_bound(problem, certificate_of(problem, steps=1)[0])
    later = dual_bound(problem, certificate_of(problem, steps=80)[0])
    assert later > first


def test_a_false_reduction_is_refused() -> None:
    problem = ladder(seed=6, nodes=5, strategies=3)
    certificate, _, _, _ = certificate_of(problem, steps=1)
    step = (True, 0, 1, (0,))
    with pytest.raises(ValueError, match="node 1 is not a function of node 0"):
        dual_bound(problem, dataclasses.replace(certificate, steps=(step,)))


def test_a_negative_multiplier_is_refused() -> None:
    problem = ladder(seed=6, nodes=5, strategies=3)
    certificate, _, _, _ = certificate_of(problem, steps=1)
    with pytest.raises(ValueError, match="negative multiplier"):
        dual_bound(problem, dataclasses.replace(certificate, prices=((0, 0, -1),)))
