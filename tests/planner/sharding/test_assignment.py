"""The model as an assignment problem: any choice costs there what the model says, and takes at least its memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner.clock import Clock
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.candidates import decide, least_peak
from tapestry.planner.sharding.assignment import UNLIMITED, Translation
from tapestry.planner.sharding.model import evaluate, memory_at
from tapestry.planner.sharding.shortage import least_held
from tapestry.planner.sharding.solving import least_memory
from tapestry.planner.solvers.assign import solve
from tapestry.planner.solvers.assign.check import check, check_choice

from .test_optimal import CASES, brute_force, context, modelled


@tp.program
def sums(x: f32[Tensor, "n c"], w: f32[Tensor, "c k"]) -> Tensor:
    return x @ w


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_choice_costs_the_same_in_both(data: st.DataObject) -> None:
    program, extents = data.draw(st.sampled_from(CASES))
    objective, mesh = data.draw(st.sampled_from(["time", "bytes"])), data.draw(st.sampled_from([(4,), (2, 2)]))
    model = modelled(context(program.bind(**extents), "cpu-4", mesh, objective))
    translation, exposed = Translation(model, Clock(600)), data.draw(st.integers(0, 2))
    choice = {n: data.draw(st.integers(0, len(model.nodes[n].labels) - 1)) for n in translation.decided}
    cost, faults = check_choice(translation.problem(UNLIMITED, exposed), [choice[n] for n in translation.decided])
    assert cost == evaluate(model, choice, exposed)[0]
    assert faults == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_memory_is_counted_no_shorter_than_it_is_held(data: st.DataObject) -> None:
    program, extents = data.draw(st.sampled_from(CASES))
    model = modelled(context(program.bind(**extents), "cpu-4", (4,), "time"))
    translation = Translation(model, Clock(600))
    choice = {n: data.draw(st.integers(0, len(model.nodes[n].labels) - 1)) for n in translation.decided}
    peak, _ = check_choice(translation.lean_problem(), [choice[n] for n in translation.decided])
    held = max(sum(memory_at(model, choice, instant).values()) for instant in model.instants)
    assert peak is not None
    assert peak >= held
    assert check_choice(translation.problem(peak), [choice[n] for n in translation.decided])[1] == []
    assert [
        f.verdict for f in check_choice(translation.problem(peak - 1), [choice[n] for n in translation.decided])[1]
    ] == ["over the limit"]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_outputs_that_are_folded_at_the_end_are_counted_there(data: st.DataObject) -> None:
    """Wherever an output of partial sums is brought together, lowering needs no more than the model says."""
    question = context(sums.bind(n=64, c=8, k=64), "cpu-4", (2, 2), "time")
    model = modelled(question)
    choice = {n: data.draw(st.integers(0, len(model.nodes[n].labels) - 1)) for n in sorted(set(model.tied_to))}
    held = max(sum(memory_at(model, choice, instant).values()) for instant in model.instants)
    assert least_peak(question, decide(model.nodes, model, choice), Schedule(0)) <= held


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_choice_holds_less_than_each_tensor_takes_at_least(data: st.DataObject) -> None:
    program, extents = data.draw(st.sampled_from(CASES))
    mesh = data.draw(st.sampled_from([(4,), (2, 2)]))
    model = modelled(context(program.bind(**extents), "cpu-4", mesh, "time"))
    decided = sorted(set(model.tied_to))
    choice = {n: data.draw(st.integers(0, len(model.nodes[n].labels) - 1)) for n in decided}
    assert least_held(model) <= max(sum(memory_at(model, choice, instant).values()) for instant in model.instants)


@pytest.mark.parametrize(
    ("program", "extents"), [*CASES[:3], CASES[-1]], ids=lambda value: getattr(value, "__name__", str(value))
)
def test_nothing_fits_in_less_than_the_least_memory(program, extents) -> None:  # type: ignore[no-untyped-def]
    model = modelled(context(program.bind(**extents), "cpu-4", (4,), "time"))
    found = least_memory(Translation(model, Clock(600)), time_limit=600, seed=0, jobs=1)
    assert found is not None
    assert brute_force(model, found.least) is not None
    assert brute_force(model, found.least - 1) is None


@pytest.mark.parametrize(("program", "extents"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_bound_is_recomputed_by_code_of_its_own(program, extents) -> None:  # type: ignore[no-untyped-def]
    model = modelled(context(program.bind(**extents), "h200x8", (2, 4), "time"))
    problem = Translation(model, Clock(600)).problem(UNLIMITED)
    answer = solve(problem)
    assert answer.status == "optimal"
    assert answer.certified_by == "elimination"
    assert check(problem, answer) == []
