"""The probe of a device that replays graphs: each task is measured by itself, and a machine with curves comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import UsageError
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.planner.format import Compute, Resolved
from tapestry.planner.interface import run_plans
from tapestry.planner.machine import OperationCurve, Pace
from tapestry.planner.machine.write import machine_toml
from tapestry.planner.probe import here, measure
from tapestry.planner.probe.curves import operation_curves, with_operations
from tapestry.planner.probe.here import measured_program, ways_on
from tapestry.planner.probe.measure import Host, probed
from tapestry.planner.probe.sizes import Grid, Heads, Sizes
from tapestry.planner.probe.times import TaskTimes
from tapestry.workers.device import Within
from tapestry.workers.engines import alone
from tapestry.workers.engines.replayed import Replayed
from tapestry.workers.rank import Rank

from ...workers.cupy.conftest import on_host as on_host

TINY = Sizes(
    products=((8, 16, 8),),
    elements=(64,),
    row=16,
    images=((6, 4),),
    queries=(16,),
    heads=Heads(2, 8, "f32", causal=True),
    moved=(256, 1024),
    dtypes=("f32",),
    degree=4,
    windows=(8,),
    shapes={"f32": Grid((4, 8), (4, 8), (2, 4))},
    seen=Grid((4, 8), (2, 8), (4, 8)),
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "BUSY_S", 1e-6)
    monkeypatch.setattr(alone, "GRAPH_S", 1e-6)
    monkeypatch.setattr(alone, "WARM_S", 0.0)
    monkeypatch.setattr(measure, "GPU_QUICK", TINY)


@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m m"]]) -> Tensor:
    return tp.relu(tp.relu(tp.relu(x @ w) @ w) + 1.0)


def test_every_task_is_measured_after_the_steps() -> None:
    program = net.bind(n=8, m=4)
    made = plan(program, "cpu-4", mesh=(2,), time_limit=20)
    values = {"x": np.ones((8, 4), np.float32), "w": np.eye(4, dtype=np.float32)}
    (result,) = run_plans([(made, values)], engine="local", device="numpy", alone=True, repeat=3)
    *steps, measured = result.steps
    assert len(steps) == 3
    assert {(e.rank, e.task) for e in measured.events} == {(e.rank, e.task) for e in steps[0].events}
    assert all(event.start_s < event.end_s for event in measured.events)
    assert measured.wall_s == max(event.end_s for event in measured.events)
    np.testing.assert_array_equal(result.outputs[program.outputs[0]], np.full((8, 4), 2.0))


def test_equal_tasks_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()
    monkeypatch.setattr(alone, "seconds_of", lambda *_: asked.append(1.0) or 1.0)
    made = plan(net.bind(n=8, m=4), "cpu-4", mesh=(1,), time_limit=20)
    values = {"x": np.ones((8, 4), np.float32), "w": np.eye(4, dtype=np.float32)}
    (result,) = run_plans([(made, values)], engine="local", device="numpy", alone=True)
    assert len(result.steps[-1].events) == 6
    assert len(asked) < 6


@tp.program
def maps(x: f32[Tensor, "n"]) -> Tensor:
    return tp.tanh(tp.sin(tp.cos(tp.exp(x))))


def test_what_is_done_within_another_is_priced_as_part_of_it() -> None:
    """Three tasks of one kernel of 9 us are predicted to take 9 us together: the others have no start of their own."""
    made = plan(maps.bind(n=8), "cpu-4", mesh=(1,), time_limit=20)
    numbers = [task.id for task in made.document.tasks if isinstance(task, Compute)]
    took = dict.fromkeys(((number, 0) for number in numbers), 5e-6) | {(number, 0): 1e-9 for number in numbers[:2]}
    times = TaskTimes(took | {(numbers[2], 0): 9e-6}, {}, 1.0, len(numbers), 0.0)
    found = {own.operation: own for own in operation_curves(made, times, 2e-6)}
    ops = [made.program.op_by_name[task.op] for task in made.document.tasks if isinstance(task, Compute)]
    owns = [found[made.program.graph.digest(op)] for op in ops]
    assert [own.start_s for own in owns] == [0.0, 0.0, None, None]
    assert [took for own in owns for _, took in own.points] == pytest.approx([1e-9, 1e-9, 7e-6, 3e-6])


def test_an_operation_that_was_done_within_another_once_has_no_start_anywhere() -> None:
    """Its points say all that it takes; what was known of it with a start gives way."""

    @tp.program
    def twice(x: f32[Tensor, "n"]) -> Tensor:
        return tp.exp(tp.exp(x))

    made = plan(twice.bind(n=8), "cpu-4", mesh=(1,), time_limit=20)
    one, other = [task.id for task in made.document.tasks if isinstance(task, Compute)]
    (own,) = operation_curves(made, TaskTimes({(one, 0): 1e-9, (other, 0): 6e-6}, {}, 1.0, 2, 0.0), 2e-6)
    assert own.start_s == 0.0
    assert own.points == ((8, pytest.approx(3e-6, rel=1e-3)),)
    known = Pace(1, 2e-6, (), operations=(OperationCurve(own.operation, ((8.0, 9e-6), (99.0, 20e-6))),))
    assert with_operations(known, [own]) == (own,)


def test_tasks_are_measured_alone_in_one_process_only() -> None:
    made = plan(net.bind(n=8, m=4), "cpu-4", mesh=(1,), time_limit=20)
    with pytest.raises(UsageError, match="local engine only"):
        run_plans([(made, {})], engine="torchrun", device="numpy", alone=True)


def test_a_device_that_replays_graphs_is_probed_with_one_rank_at_work(
    on_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "COPIED", 1 << 12)
    tier = here.host_tier(on_host)
    host = Host("gpu", "a GPU", "a GPU", 1, "hbm", 1 << 30, 1 << 30, False, True, "wire", graphs=True, behind=(tier,))
    machine = probed(host, ways_on("torchrun", on_host), quick=True)
    assert [pace.ranks for pace in machine.device.paces] == [1]
    kernels = {curve.kernel for curve in machine.device.paces[0].curves}
    assert kernels == {"matmul", "conv", "attention", "slopes", "elementwise", "reduce", "read"}
    assert [(table.kernel, table.axes) for table in machine.device.paces[0].shapes] == [
        ("attention", ((8, 16), (2, 8), (6, 10))),
        ("matmul", ((4, 8), (4, 8), (2, 4))),
        ("slopes", ((8, 16), (2, 8), (4, 8))),
    ]
    assert [each.name for each in machine.device.tiers] == ["hbm", "host", "disk"]
    assert (machine.device.compute_tier.name, machine.device.overlap, machine.links) == ("hbm", True, ())
    known, made = measured_program(machine, net.bind(n=8, m=4), device=on_host, quick=True, rewrite=True)
    assert [pace.ranks for pace in known.device.paces] == [1]
    digests = {own.operation for own in known.device.paces[0].operations}
    assert {made.program.graph.digest(op) for op in made.program.operations} <= digests
    path = tmp_path / "gpu.toml"
    path.write_text(machine_toml(machine), encoding="utf-8")
    assert plan(net.bind(n=8, m=4), load_machine(path), time_limit=20).check().ok


@tp.program
def joined(x: f32[Tensor, "n m"], v: param[f32[Tensor, "m k"]], w: param[f32[Tensor, "k k"]]) -> Tensor:
    wide = tp.einsum("nm,mk->nk", x, v, name="first") + 1.0
    return tp.einsum("nk,kl->nl", wide, w, name="second") + 1.0


def test_what_is_done_within_a_task_tells_it_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two additions are equal, but what is done within them is not."""
    asked = list[bool]()

    def seconds(device: object, run: object) -> float:
        asked.append(isinstance(run, Within))
        return 1e-9 if asked[-1] else float(len(asked))

    within = Within("later")
    real = Replayed.__init__

    def init(self: Replayed, resolved: Resolved, ranks: list[Rank]) -> None:
        real(self, resolved, ranks)
        names = {task.id: task.op for task in resolved.document.tasks if isinstance(task, Compute)}
        for place, bound in enumerate(self.steps):
            if names[bound.task.id] in ("first", "second"):
                self.steps[place] = replace(bound, run=within)

    monkeypatch.setattr(alone, "seconds_of", seconds)
    monkeypatch.setattr(Replayed, "__init__", init)
    made = plan(joined.bind(n=8, m=4, k=6), "cpu-4", mesh=(1,), time_limit=20)
    (result,) = run_plans([(made, random_inputs(made.program))], engine="local", device="numpy", alone=True)
    times = [event.end_s - event.start_s for event in result.steps[-1].events]
    assert len({round(took, 6) for took in times if took > 1e-6}) == 2
