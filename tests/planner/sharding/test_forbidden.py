"""What is forbidden is not chosen: of operations and tensors, by name or pattern, in the DSL or beside the program."""

from __future__ import annotations

import msgspec
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.planner.check.report import Code
from tapestry.program import Pin, Program
from tapestry.serialize import program_from_json, program_to_json


@tp.program
def network(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]], v: param[f32[Tensor, "k c"]]) -> Tensor:
    return tp.relu(x @ w) @ v


PROGRAM = network.bind(n=24, c=16, k=20)


def never(target: str, pattern: str, **cuts: str | None) -> Pin:
    return Pin("op" if target == "op" else "tensor", pattern, tuple(cuts.items()), forbid=True)


def planned(*pins: Pin, program: Program = PROGRAM, mesh: tuple[int, ...] = (4,)) -> Plan:
    made = plan(program, "cpu-4", mesh=mesh, pins=pins)
    report = made.check()
    assert report.ok, str(report)
    return made


def cut(made: Plan, op: str) -> dict[str, str]:
    return dict(made.document.shardings[op].partition)


def test_an_operation_is_not_cut_as_is_forbidden() -> None:
    assert cut(planned(), "relu") == {"n": "mesh0"}
    assert cut(planned(never("op", "relu", mesh0="n")), "relu") != {"n": "mesh0"}


def test_a_pattern_forbids_all_that_have_the_dimension() -> None:
    made = planned(never("op", "*", mesh0="n"))
    assert all(cut(made, op) != {"n": "mesh0"} for op in made.document.shardings)


def test_an_operation_is_not_left_whole() -> None:
    assert cut(planned(never("op", "relu", mesh0="n"), never("op", "relu", mesh0=None)), "relu") == {"k": "mesh0"}


def test_cuts_are_forbidden_together() -> None:
    one = planned(never("op", "relu", mesh0="n", mesh1="n"), mesh=(2, 2))
    assert cut(one, "relu") != {"n": "mesh0,mesh1"}


@pytest.mark.parametrize("tensor", ["x", "w", "relu"])
def test_a_tensor_does_not_lie_as_is_forbidden(tensor: str) -> None:
    lies = {"x": "n", "w": None, "relu": "n"}[tensor]
    before, after = planned(), planned(never("tensor", tensor, mesh0=lies))
    assert before.document.predicted.makespan_s <= after.document.predicted.makespan_s
    broken = plan(PROGRAM.with_pins(never("tensor", tensor, mesh0=lies)), "cpu-4", mesh=(4,))
    document = msgspec.structs.replace(before.document, program=broken.document.program)
    assert Code.PIN in Plan(document).check().codes


def test_inputs_that_something_is_forbidden_of_have_one_copy_of_each_element() -> None:
    made = planned(never("tensor", "x", mesh0="n"))
    (x,) = (b for b in made.document.buffers if b.tensor == "x" and b.initial is not None)
    assert len(set(made.document.layouts[str(x.initial)].regions)) > 1


def test_what_leaves_nothing_is_refused() -> None:
    pins = [never("op", "relu", mesh0=dim) for dim in ("n", "k", None)]
    with pytest.raises(UsageError, match="no strategy of operation relu satisfies its pins") as refused:
        plan(PROGRAM, "cpu-4", mesh=(4,), pins=pins)
    assert "not mesh0 = n" in str(refused.value)


def test_what_no_one_has_is_refused() -> None:
    with pytest.raises(UsageError, match="no dimension 'z'"):
        plan(PROGRAM, "cpu-4", mesh=(4,), pins=[never("op", "relu", mesh0="z")])


def test_it_is_said_in_the_language_and_written_down() -> None:
    @tp.program
    def said(x: f32[Tensor, "n c"]) -> Tensor:
        return tp.tanh(tp.forbid(tp.relu(x), mesh0="n"))

    program = said.bind(n=24, c=16)
    assert program.pins == (never("tensor", "relu", mesh0="n"),)
    assert program_from_json(program_to_json(program)) == program
    assert "forbid tensor relu: mesh0=n" in str(program)
    assert tp.parse(str(program)).pins == program.pins
    assert cut(planned(program=program), "relu") != {"n": "mesh0"}
    assert all("forbid" not in pin for pin in program_to_json(PROGRAM.with_pins(Pin("op", "relu", ())))["pins"])
