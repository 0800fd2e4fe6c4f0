"""`plan` and `load_plan` at the door: what they refuse, with the place, and what they give back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import CheckFailed, Infeasible, UsageError
from tapestry.expr import Read
from tapestry.planner import Plan, load_machine, load_plan, plan
from tapestry.planner.format import Document
from tapestry.program import Program


@tp.program
def net(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.relu(x @ w)


def bound() -> Program:
    return net.bind(n=16, c=12, k=8)


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(bound(), "cpu-4", mesh=(4,))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mesh": ()}, "a mesh needs at least one axis"),
        ({"mesh": (0,)}, "a mesh needs at least one axis of at least one device"),
        ({"mesh": (-2,)}, "a mesh needs at least one axis of at least one device"),
        ({"mesh": (2, 0)}, "a mesh needs at least one axis of at least one device"),
        ({"mesh": (2.0,)}, "a mesh needs at least one axis of at least one device"),
        ({"mesh": (True,)}, "a mesh needs at least one axis of at least one device"),
        ({"mesh": {}}, "a mesh needs at least one axis"),
        ({"mesh": {"": 2}}, "mesh axes need names"),
        ({"mesh": {"*": 2}}, "mesh axes need names"),
        ({"mesh": "2x2"}, "a mesh is"),
        ({"mesh": 4}, "a mesh is"),
        ({"mesh": (5,)}, "a mesh of 5 does not fit the machine"),
        ({"mesh": (2, 3)}, "a mesh of 2x3 does not fit the machine"),
        ({"mesh": (10**9, 10**9)}, "does not fit the machine"),
        ({"objective": "beauty"}, "unknown objective 'beauty'"),
        ({"objective": None}, "unknown objective None"),
        ({"time_limit": 0}, "time limit must be positive"),
        ({"time_limit": -1.0}, "time limit must be positive"),
        ({"time_limit": float("nan")}, "time limit must be positive"),
        ({"time_limit": "60"}, "time limit must be positive"),
        ({"time_limit": True}, "time limit must be positive"),
        ({"time_limit": float("inf")}, "time limit must be positive"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 1.5}, "jobs"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**31}, "seed"),
        ({"memory": {"hbm": "1GiB"}}, "no memory tier 'hbm'"),
        ({"memory": {"host": -1}}, "-1 is negative"),
        ({"memory": {"host": "much"}}, "much"),
        ({"machine": "cpu-5"}, "did you mean 'cpu-4'"),
        ({"machine": 4}, "a machine is"),
        ({"program": net}, "bind"),
        ({"program": None}, "a program is"),
        ({"pins": "x"}, "pins are a list of Pin"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"program": bound(), "machine": "cpu-4", **arguments}
    with pytest.raises(UsageError) as failed:
        plan(given.pop("program"), given.pop("machine"), **given)
    assert said in str(failed.value)
    assert failed.value.exit_code == 2


def test_a_program_that_is_not_valid_is_refused() -> None:
    program = bound()
    op = program.operations[0]
    (first, *_) = op.reads
    assert isinstance(first, Read)
    wrong = replace(program, operations=(replace(op, output="nowhere"), *program.operations[1:]))
    with pytest.raises(UsageError, match="nowhere"):
        plan(wrong, "cpu-4", mesh=(4,))


def test_no_room_at_all() -> None:
    with pytest.raises(Infeasible) as failed:
        plan(bound(), "cpu-4", mesh=(4,), memory={"host": 0})
    assert failed.value.exit_code == 3


def test_a_machine_may_be_given_as_such() -> None:
    assert plan(bound(), load_machine("cpu-4"), mesh=(4,)).to_json() == plan(bound(), "cpu-4", mesh=(4,)).to_json()


def test_one_device_needs_no_transfer() -> None:
    found = plan(bound(), "cpu-4", mesh=(1,))
    assert found.check().ok
    assert found.document.traffic.bytes_total == 0
    assert set(found.document.peak_bytes) == {"0"}


def test_what_is_saved_is_loaded(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.document == made.document
    assert again.program == made.program
    assert again.machine == made.machine
    assert again.simulate() == made.simulate()
    assert again.summary()["shardings"] == made.summary()["shardings"]


def test_a_plan_runs(made: Plan) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(16, 12)).astype(np.float32), rng.normal(size=(12, 8)).astype(np.float32)
    result = made.run({"x": x, "w": w})
    np.testing.assert_allclose(result.outputs["out"], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)
    assert result.bytes_moved == made.document.traffic.bytes_total


def test_a_plan_speaks_for_itself(made: Plan) -> None:
    assert repr(made).startswith("<Plan of net on cpu-4 mesh 4: makespan ")
    bundle = made._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert "net" in bundle["text/plain"]


def test_bounds_and_gaps_are_what_they_say(made: Plan) -> None:
    solver, predicted = made.document.bound, made.document.predicted
    assert solver is not None
    assert 0 < solver.bound_s <= predicted.makespan_s
    assert solver.gap == pytest.approx((predicted.makespan_s - solver.bound_s) / predicted.makespan_s)
    assert predicted.makespan_s == pytest.approx(predicted.compute_s + predicted.exposed_transfer_s)


@pytest.mark.parametrize("name", ["", "folder", "none.json", "none/plan.json"])
def test_no_such_plan(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as failed:
        load_plan(tmp_path / name)
    assert str(failed.value).startswith(f"{tmp_path / name}: cannot read the plan")


def edited(made: Plan, **changes: Any) -> Plan:
    document: Document = msgspec.structs.replace(made.document, **changes)
    return Plan(document)


def test_a_plan_changed_by_hand_is_refused_before_it_is_used(made: Plan) -> None:
    first, *others = made.document.tasks
    task = msgspec.structs.replace(first, lane="express")
    wrong = edited(made, tasks=(task, *others))
    assert not wrong.check().ok
    for use in (wrong.simulate, wrong.explain, wrong.summary, wrong._repr_mimebundle_, lambda: wrong.run({})):
        with pytest.raises(CheckFailed, match=r"the plan (is not well-formed|fails its check): task: task \d+"):
            use()


def test_a_plan_that_would_hang_is_refused(made: Plan) -> None:
    first, *others = made.document.tasks
    wrong = edited(made, tasks=(msgspec.structs.replace(first, waits=(made.document.tasks[-1].id,)), *others))
    with pytest.raises(CheckFailed, match="deadlock"):
        wrong.simulate()


def test_explaining_a_plan_without_a_task_names_the_operation(made: Plan) -> None:
    wrong = edited(made, tasks=made.document.tasks[:-1])
    with pytest.raises(CheckFailed, match="no task of the plan computes it"):
        wrong.explain()
