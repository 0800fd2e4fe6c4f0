"""Workspaces in plans: as much as kernels want, behind the buffers, or what memory is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import UNSET

import tapestry as tp
from tapestry import Tensor, bf16, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Workspace
from tapestry.planner.machine import KernelWorkspace, Machine, machine_from_json, machine_to_json
from tapestry.program import Program


@tp.program
def dense(x: bf16[Tensor, "n d"], w: param[bf16[Tensor, "d h"]]) -> Tensor:
    return tp.relu(x @ w)


@tp.program
def rows(x: f32[Tensor, "n d"]) -> Tensor:
    return tp.sum(x * 2.0, axis=1)


def machine(*workspaces: KernelWorkspace) -> Machine:
    found = load_machine("h200x2")
    return replace(found, device=replace(found.device, workspaces=workspaces))


def planned(program: Program, *workspaces: KernelWorkspace, memory: int | None = None) -> Plan:
    made = plan(program, machine(*workspaces), mesh=(1,), memory=memory)
    assert made.check().ok
    return made


def end(made: Plan) -> int:
    return max(buffer.offset + buffer.nbytes for buffer in made.document.buffers)


def test_it_lies_behind_the_buffers_and_is_in_the_peak() -> None:
    made = planned(dense.bind(n=30, d=64, h=65), KernelWorkspace("matmul", 1 << 20))
    assert made.document.rooms == {"compute": Workspace("hbm", -(-end(made) // 256) * 256, 1 << 20)}
    [room] = made.document.rooms.values()
    assert made.document.peak_bytes == {"0": {"hbm": room.offset + room.nbytes}}


def test_it_is_what_the_most_demanding_task_wants() -> None:
    wanted = KernelWorkspace("matmul", 4096), KernelWorkspace("elementwise", 100, of_result=2.5)
    made = planned(dense.bind(n=16, d=64, h=64), *wanted)
    assert made.document.rooms["compute"].nbytes == 100 + int(2.5 * 16 * 64 * 2)


def test_kernels_of_no_such_class_want_nothing() -> None:
    made = planned(rows.bind(n=16, d=64), KernelWorkspace("matmul", 4096))
    assert made.document.rooms == {}
    assert made.document.workspaces is UNSET


def test_where_memory_is_short_it_is_what_is_left() -> None:
    program, wanted = dense.bind(n=32, d=64, h=64), KernelWorkspace("matmul", 1 << 20)
    bare = planned(program)
    left = planned(program, wanted, memory=end(bare) + 1000)
    assert left.document.rooms == {"compute": Workspace("hbm", end(bare), 1000)}
    assert planned(program, wanted, memory=end(bare)).document.rooms == {}


def test_all_else_of_a_plan_is_as_it_is_without() -> None:
    program = dense.bind(n=32, d=64, h=64)
    with_it, without = planned(program, KernelWorkspace("matmul", 1 << 20)).document, planned(program).document
    assert (with_it.buffers, with_it.tasks, with_it.predicted) == (without.buffers, without.tasks, without.predicted)


@pytest.mark.parametrize("name", ["h200", "h200x2", "h200x8", "h200x8-2node"])
def test_described_gpus_say_what_their_kernels_want(name: str) -> None:
    found = load_machine(name)
    assert found.device.workspace_bytes("matmul", 0) == 32 << 20
    assert machine_from_json(machine_to_json(found)) == found


def test_machines_of_cpus_say_nothing_of_it() -> None:
    assert "workspaces" not in machine_to_json(load_machine("cpu-4"))["device"]
