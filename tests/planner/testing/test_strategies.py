"""Machines and plans as they are drawn: every one is right, and they differ."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dtypes import DTYPES
from tapestry.inputs import random_inputs
from tapestry.planner import Plan
from tapestry.planner.machine import Machine, machine_from_json, machine_to_json
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close, machines, plans, programs


@settings(max_examples=60)
@given(machines(most_devices=6))
def test_a_machine_has_as_many_devices_as_asked_for_links_between_them_and_a_text(machine: Machine) -> None:
    assert 1 <= machine.device_count <= 6
    if machine.device_count > 1:
        assert machine.link_among(range(machine.device_count)).gb_per_s > 0
    assert machine_from_json(machine_to_json(machine)) == machine


@tp.program
def layer(x: f32[Tensor, "n k"], w: tp.param[f32[Tensor, "k m"]]) -> Tensor:
    return tp.relu(x @ w)


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(plans(layer.bind(n=6, k=4, m=5)))
def test_a_plan_of_a_program_is_proved_and_computes_it(plan: Plan) -> None:
    assert plan.check().ok
    inputs = random_inputs(plan.program)
    assert_close(plan.program, inputs, plan.run(inputs).outputs, evaluate(plan.program, inputs))


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(plans(ranks=3))
def test_plans_of_drawn_programs_are_proved_and_compute_them(plan: Plan) -> None:
    assert plan.check().ok
    inputs = random_inputs(plan.program)
    assert_close(plan.program, inputs, plan.run(inputs).outputs, evaluate(plan.program, inputs))


def test_wide_programs_have_every_dtype_and_every_kind_of_operation() -> None:
    dtypes: set[str] = set()
    kinds: set[str] = set()

    @settings(max_examples=250, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(programs(wide=True))
    def look(program: Program) -> None:
        dtypes.update(tensor.dtype for tensor in program.tensors)
        kinds.update("scan" for op in program.operations if op.scan is not None)
        kinds.update("lookup" for op in program.operations if op.selections)

    look()
    assert dtypes == set(DTYPES)
    assert kinds == {"scan", "lookup"}
