"""Devices of different speed and memory: what each of them gets, and what its share takes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import Infeasible
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import Code, check
from tapestry.planner.machine import Machine, MachineError, machine_from_json, machine_to_json
from tapestry.planner.machine.write import machine_toml
from tapestry.planner.sharding.bound import lower_bound
from tapestry.program import Pin
from tapestry.reference import evaluate
from tapestry.space import parse_region

KIND = """
[[device]]
count = {count}
name = "{name}"
launch_overhead_us = 1
[device.peak.elementwise]
f64_gflops = {gflops}
[[device.tiers]]
name = "hbm"
capacity_gb = {memory}
read_gb_per_s = {gflops}
write_gb_per_s = {gflops}
"""
HEAD = 'name = "mixed"\ndescription = "two fast and two slow cores"\nhosts = 1\ndevices_per_host = 4\n'
LINK = '[[links]]\nkind = "wire"\nscope = "host"\ngb_per_s = 100\nlatency_us = 1\n'


def mixed(tmp_path: Path, memory: float = 1.0, fast: int = 3) -> Machine:
    """Two devices, and two of a third of their speed, with ``memory`` GB each."""
    file = tmp_path / "mixed.toml"
    kinds = KIND.format(count=2, name="fast", gflops=fast, memory=1) + KIND.format(
        count=2, name="slow", gflops=1, memory=memory
    )
    file.write_text(HEAD + kinds + LINK)
    return load_machine(file)


@tp.program
def net(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.tanh(tp.relu(x) @ w)


PROGRAM = net.bind(n=1600, c=32, k=32)


def rows(made: Plan, op: str) -> list[int]:
    """How many points of the first dimension each rank computes."""
    (name,) = {task.shards for task in made.document.tasks if getattr(task, "op", None) == op}
    texts = made.document.layouts[name].regions
    return [sum(grid.axes[0].size for grid in parse_region(text).grids) for text in texts]


def test_a_machine_of_several_kinds_survives_its_file_and_json(tmp_path: Path) -> None:
    machine = mixed(tmp_path)
    assert [machine.device_of(k).name for k in range(4)] == ["fast", "fast", "slow", "slow"]
    assert machine_from_json(machine_to_json(machine)) == machine
    again = tmp_path / "again.toml"
    again.write_text(machine_toml(machine))
    assert load_machine(again) == machine


def test_counts_must_add_up(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text(HEAD + KIND.format(count=3, name="fast", gflops=3, memory=1) + LINK)
    with pytest.raises(MachineError, match="device"):
        load_machine(file)


def test_shares_are_in_proportion_to_speed_and_shorter_than_equal_ones(tmp_path: Path) -> None:
    machine = mixed(tmp_path)
    made = plan(PROGRAM, machine, mesh=(4,))
    assert made.check().ok, str(made.check())
    op = made.program.operations[1].name
    assert [round(share / 200) for share in rows(made, op)] == [3, 3, 1, 1]
    assert made.document.shardings[op].kind == "proportional"
    pins = [Pin("op", each.name, (("mesh0", "n"),)) for each in PROGRAM.operations]
    equal = plan(PROGRAM, machine, mesh=(4,), pins=pins)
    assert equal.check().ok, str(equal.check())
    assert made.document.predicted.makespan_s < 0.6 * equal.document.predicted.makespan_s


def test_each_rank_is_priced_by_its_own_device(tmp_path: Path) -> None:
    """With equal shares the slow ones are waited for, one of them as long as two."""
    pins = [Pin("op", each.name, (("mesh0", "n"),)) for each in PROGRAM.operations]
    made = plan(PROGRAM, mixed(tmp_path), mesh=(4,), pins=pins)
    machine = made.document.machine
    (slow,) = machine["others"]
    all_fast, one_slow = {**machine, "others": []}, {**machine, "others": [{**slow, "ranges": [[3, 4]]}]}
    assert Code.PREDICTED in check(msgspec.structs.replace(made.document, machine=all_fast, bound=None)).codes
    assert check(msgspec.structs.replace(made.document, machine=one_slow, bound=None)).ok


def test_a_plan_for_them_computes_what_the_reference_does(tmp_path: Path) -> None:
    made = plan(PROGRAM, mixed(tmp_path), mesh=(2, 2))
    assert made.check().ok, str(made.check())
    rng = np.random.default_rng(3)
    values = {t.name: rng.standard_normal(t.shape, dtype=np.float32) for t in PROGRAM.of_role("input", "param")}
    for name, want in evaluate(PROGRAM, values).items():
        np.testing.assert_allclose(made.run(values).outputs[name], want, rtol=1e-5, atol=1e-5)


def test_a_bound_holds_on_devices_that_differ(tmp_path: Path) -> None:
    machine = mixed(tmp_path)
    for mesh in ((1,), (2,), (4,)):
        made = plan(PROGRAM, machine, mesh=mesh)
        assert 0 < lower_bound(PROGRAM, machine, mesh[0]).seconds <= made.document.predicted.makespan_s
        assert made.check().ok, str(made.check())


def test_the_smallest_memory_is_kept_and_the_checker_refuses_what_overflows_it(tmp_path: Path) -> None:
    made = plan(PROGRAM, mixed(tmp_path), mesh=(4,))
    small = mixed(tmp_path, memory=1e-6)
    raw = msgspec.json.decode(msgspec.json.encode(machine_to_json(small)))
    report = check(msgspec.structs.replace(made.document, machine=raw))
    assert Code.CAPACITY in report.codes
    assert any(v.code is Code.CAPACITY and v.rank == 2 for v in report.verdicts)
    with pytest.raises(Infeasible):
        plan(PROGRAM, small, mesh=(4,))
    assert plan(PROGRAM, small).check().ok  # on the two that have memory
