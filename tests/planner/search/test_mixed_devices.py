"""Devices of different speed and memory: what each of them gets, and what its share takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import Infeasible
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.binding import fullest as fullest_tiers
from tapestry.planner.check import Code, check
from tapestry.planner.format import Place
from tapestry.planner.format.codec import decode
from tapestry.planner.machine import Machine, MachineError, machine_from_json, machine_to_json
from tapestry.planner.machine.write import machine_toml
from tapestry.planner.sharding.bound import lower_bound
from tapestry.program import Pin
from tapestry.reference import evaluate
from tapestry.space import parse_region
from tapestry.testing import assert_close

from .test_pins_never_beat import generated

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


def mixed(tmp_path: Path, memory: float = 1.0, fast: int = 3, of_fast: float = 1.0) -> Machine:
    """Two devices of ``of_fast`` GB each, and two of a third of their speed, with ``memory`` GB each."""
    file = tmp_path / "mixed.toml"
    kinds = KIND.format(count=2, name="fast", gflops=fast, memory=of_fast) + KIND.format(
        count=2, name="slow", gflops=1, memory=memory
    )
    file.write_text(HEAD + kinds + LINK)
    return load_machine(file)


@tp.program
def deep(*, rows: int = 64, n: int = 512) -> Tensor:
    """Four layers whose weights are nearly all that it takes."""
    y = tp.input("x", "f32", (rows, n))
    for k in range(4):
        y = tp.relu(tp.einsum("nc,ck->nk", y, tp.param(f"w{k}", "f32", (n, n)), name=f"layer{k}"))
    return y


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


def test_the_checker_refuses_what_overflows_the_memory_of_one_kind(tmp_path: Path) -> None:
    made = plan(PROGRAM, mixed(tmp_path), mesh=(4,))
    small = mixed(tmp_path, memory=1e-6)
    raw = msgspec.json.decode(msgspec.json.encode(machine_to_json(small)))
    report = check(msgspec.structs.replace(made.document, machine=raw))
    assert Code.CAPACITY in report.codes
    assert any(v.code is Code.CAPACITY and v.rank == 2 for v in report.verdicts)
    with pytest.raises(Infeasible):
        plan(PROGRAM, small, mesh=(4,))
    assert plan(PROGRAM, small).check().ok  # on the two that have memory


def fullest(made: Plan) -> list[int]:
    return [made.document.peak_bytes[str(rank)]["hbm"] for rank in range(made.resolved.size)]


def test_each_device_has_its_own_budget(tmp_path: Path) -> None:
    """Weights of 4.2 MB: equal shares are too much for the slow ones, and two fast ones alone take a third longer."""
    program, machine = deep.bind(), mixed(tmp_path, memory=0.9e-3, of_fast=2.4e-3)
    made, two = (plan(program, machine, mesh=mesh) for mesh in ((4,), (2,)))
    assert [peak > 0.9e6 for peak in fullest(made)] == [True, True, False, False]
    assert made.document.weights == (3, 3, 1, 1)
    assert made.document.predicted.makespan_s < 0.8 * two.document.predicted.makespan_s
    assert plan(program, machine).document.mesh == (4,)
    assert made.check().ok, str(made.check())
    [full] = fullest_tiers(made.resolved, machine)
    assert (full.used, full.capacity) == (fullest(made)[2], 900_000)


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_fast_devices_with_little_memory_have_less_than_their_speed_asks_for(
    tmp_path: Path, mesh: tuple[int, ...]
) -> None:
    made = plan(deep.bind(), mixed(tmp_path, memory=2.4e-3, of_fast=0.9e-3), mesh=mesh)
    fast, _, _, slow = made.document.weights or (1, 1, 1, 1)
    assert fast < slow
    assert [peak > 0.9e6 for peak in fullest(made)] == [False, False, True, True]
    assert made.check().ok, str(made.check())


@pytest.mark.parametrize(("memory", "of_fast"), [(0.9e-3, 2.4e-3), (2.4e-3, 0.9e-3)])
def test_what_lies_elsewhere_on_other_devices_computes_what_the_reference_does(
    tmp_path: Path, memory: float, of_fast: float
) -> None:
    program = deep.bind()
    made = plan(program, mixed(tmp_path, memory=memory, of_fast=of_fast), mesh=(4,))
    assert any(len({place.offset for place in buffer.places}) > 1 for buffer in made.document.buffers)
    again = Plan(decode(made.to_json()))
    assert again.document == made.document
    rng = np.random.default_rng(5)
    values = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in program.of_role("input", "param")}
    assert_close(program, values, again.run(values).outputs, evaluate(program, values))


def test_places_on_other_devices_are_proved_as_well(tmp_path: Path) -> None:
    made = plan(deep.bind(), mixed(tmp_path, memory=0.9e-3, of_fast=2.4e-3), mesh=(4,))
    document = made.document

    def said(name: str, change: Callable[[Place], tuple[Place, ...]]) -> set[Code]:
        """The verdicts on the plan where a buffer lies elsewhere on the slow devices alone."""
        buffers = tuple(
            msgspec.structs.replace(buffer, others=change(buffer.places[1])) if buffer.name == name else buffer
            for buffer in document.buffers
        )
        return set(check(msgspec.structs.replace(document, buffers=buffers)).codes)

    first, second = (buffer for buffer in document.buffers if buffer.tensor in ("w0", "w1"))
    there = second.places[1].offset
    changes: list[tuple[Code, Callable[[Place], tuple[Place, ...]]]] = [
        (Code.OVERLAP, lambda place: (msgspec.structs.replace(place, offset=there),)),
        (Code.STORAGE, lambda place: (msgspec.structs.replace(place, nbytes=place.nbytes - 4),)),
        (Code.STORAGE, lambda place: (msgspec.structs.replace(place, offset=place.offset + 1),)),
        (Code.STORAGE, lambda place: (place, place)),
        (Code.CAPACITY, lambda place: (msgspec.structs.replace(place, offset=1 << 20),)),
        (Code.PEAK, lambda place: (msgspec.structs.replace(place, offset=671744),)),
    ]
    for code, change in changes:
        assert code in said(first.name, change)
    assert not said(first.name, lambda place: (place,))


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 40),
    memory=st.sampled_from([0.3, 0.5, 1.0, 2.0]),
    of_fast=st.sampled_from([0.3, 0.5, 1.0, 2.0]),
    mesh=st.sampled_from([(4,), (2, 2)]),
)
def test_plans_within_any_memories_are_proved_and_run(
    tmp_path_factory: pytest.TempPathFactory, seed: int, memory: float, of_fast: float, mesh: tuple[int, ...]
) -> None:
    """``memory`` and ``of_fast``: of what all tensors take together."""
    program = generated(seed)
    whole = sum(tensor.nbytes for tensor in program.tensors) / 1e9
    machine = mixed(tmp_path_factory.mktemp("m"), memory=memory * whole, of_fast=of_fast * whole)
    try:
        made = plan(program, machine, mesh=mesh)
    except Infeasible:
        return
    assert made.check().ok, str(made.check())
    limits = [machine.capacity_bytes("hbm", rank) for rank in range(4)]
    assert all(peak <= limit for peak, limit in zip(fullest(made), limits, strict=True))
    rng = np.random.default_rng(seed)
    values = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in program.of_role("input", "param")}
    assert_close(program, values, made.run(values).outputs, evaluate(program, values))
