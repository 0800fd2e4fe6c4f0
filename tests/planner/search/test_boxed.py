"""Plans in unequal boxes compute what the program says and are proved."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.inputs import random_inputs
from tapestry.planner import Machine, plan
from tapestry.program import Pin
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from .named import Described, product


@tp.program
def chain(x: f32[Tensor, "a b"], y: f32[Tensor, "b c"], z: f32[Tensor, "c d"]) -> Tensor:
    return tp.relu(tp.einsum("ab,bc->ac", x, y, name="first")) @ z


PROGRAM = chain.bind(a=48, b=40, c=56, d=44)


def slow(ranks: int) -> Machine:
    """Where moving is all that takes time."""
    return Described(ranks, tflops=1.0, gb_per_s=0.1, latency_us=0.001).machine()


@pytest.mark.parametrize(("ranks", "objective"), [(7, "time"), (5, "bytes"), (7, "bytes")])
def test_they_compute_what_the_program_says(ranks: int, objective: str) -> None:
    made = plan(PROGRAM, slow(ranks), mesh=(ranks,), objective=objective)
    report = made.check()
    assert report.ok, str(report)
    assert "explicit" in {sharding.kind for sharding in made.document.shardings.values()}
    assert " otherwise, computes" in str(made.explain("first"))
    inputs = random_inputs(PROGRAM)
    assert_close(PROGRAM, inputs, made.run(inputs, device="numpy").outputs, evaluate(PROGRAM, inputs))


def test_a_pin_is_kept() -> None:
    pin = Pin("op", "first", (("mesh0", "a"),))
    made = plan(PROGRAM, slow(7), mesh=(7,), objective="bytes", pins=[pin])
    assert made.document.shardings["first"].partition == {"a": "mesh0"}


@pytest.mark.parametrize(("ranks", "share"), [(5, 0.82), (7, 0.57)])
def test_they_are_quicker_than_slabs_where_there_is_no_grid(ranks: int, share: float) -> None:
    cube, machine = product.bind(m=64, n=64, k=64), slow(ranks)
    slabs = [plan(cube, machine, mesh=(ranks,), pins=[Pin("op", "product", (("mesh0", dim),))]) for dim in "mnk"]
    found = plan(cube, machine, mesh=(ranks,)).document.predicted.makespan_s
    assert found <= share * min(each.document.predicted.makespan_s for each in slabs)


def test_they_are_found_where_no_mesh_is_asked_for() -> None:
    cube = product.bind(m=2048, n=2048, k=2048)
    machine = Described(7, tflops=1.0, gb_per_s=4.0, latency_us=1.0).machine()
    made = plan(cube, machine)
    assert made.document.shardings["product"].kind == "explicit"
    assert made.check().ok
