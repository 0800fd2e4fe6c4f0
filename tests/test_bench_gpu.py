"""`make bench-gpu` without a GPU: its processes, what they leave, and the page that is made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.planner.format.events import Event
from tapestry.reference import evaluate

from .files import BENCHMARKS, benchmarks


@pytest.fixture(scope="module")
def bench() -> Iterator[dict[str, Any]]:
    """The scripts, as modules."""
    with benchmarks("gpu", "gpu_jobs", "gpu_ours", "gpu_rows", "gpu_steps", "gpu_tables") as modules:
        yield modules


def job(bench: dict[str, Any], name: str, code: str, gpus: int = 1, **more: Any) -> Any:
    return bench["gpu_jobs"].Job(name, gpus, ("-c", f"{GATED}\n{code}"), more.pop("limit_s", 60.0), **more)


GATED = f"""
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {str(BENCHMARKS)!r})
if "--gate" in sys.argv:
    from gpu_jobs import passed
    passed(Path(sys.argv[-1]))
"""
SAID = """
on = os.environ["CUDA_VISIBLE_DEVICES"]
at_work = [Path(f"at-work-{number}") for number in on.split(",")]
assert not any(path.exists() for path in at_work), "somebody else is at work on this GPU"
for path in at_work:
    path.touch()
time.sleep(0.2)
for path in at_work:
    path.unlink()
print(json.dumps({"on": on}))
"""


def test_each_job_has_gpus_of_its_own_and_none_loses_the_others(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(bench["gpu_jobs"], "ROOT", tmp_path)
    jobs = [
        job(bench, "plan", "print('{}'); print('{\"plan_s\": 1}')", gpus=0),
        job(bench, "one", SAID),
        job(bench, "hangs", "print('{\"part\": 1}', flush=True); time.sleep(600)", limit_s=2.0),
        job(bench, "breaks", "raise SystemExit('out of luck')"),
        job(bench, "both", SAID, gpus=2, after=("plan",)),
        job(bench, "other", SAID),
        job(bench, "never", SAID, after=("breaks",)),
    ]
    found: dict[str, Any] = {}
    ended: list[str] = []
    bench["gpu_jobs"].run(jobs, 2, found, monotonic() + 300, ended.append)
    assert sorted(ended) == sorted(found)
    assert ended[0] == "plan"
    assert found["plan"]["plan_s"] == 1
    assert found["other"]["on"] in ("0", "1")
    assert found["one"]["on"] in ("0", "1")
    assert sorted(found["both"]["on"].split(",")) == ["0", "1"]
    assert found["hangs"]["part"] == 1
    assert "failed" in found["hangs"]
    assert "out of luck" in found["breaks"]["failed"]
    assert found["never"] == {"failed": "breaks failed"}


def test_what_is_not_begun_in_time_is_said(bench: dict[str, Any]) -> None:
    found: dict[str, Any] = {}
    bench["gpu_jobs"].run([job(bench, "late", "print('{}')")], 1, found, monotonic() - 1, lambda name: None)
    assert found == {"late": {"failed": "the time was over"}}


def test_what_is_never_ready_holds_the_others_up_for_a_while_only(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench["gpu_jobs"], "ROOT", tmp_path)
    monkeypatch.setattr(bench["gpu_jobs"], "READY_S", 6.0)
    jobs = [bench["gpu_jobs"].Job("stuck", 1, ("-c", "import time; time.sleep(600)"), 60.0), job(bench, "one", SAID)]
    found: dict[str, Any] = {}
    bench["gpu_jobs"].run(jobs, 1, found, monotonic() + 300, lambda name: None)
    assert "failed" in found["stuck"]
    assert found["one"]["on"] == "0"


def test_a_second_run_goes_on_on_the_gpus_that_it_is_given(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench["gpu_jobs"], "ROOT", tmp_path)
    todo = [job(bench, "known", SAID), job(bench, "failed", SAID), job(bench, "other", SAID)]
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"jobs": {"known": {"step_s": 1.0}, "failed": {"failed": "code 1"}}}))
    monkeypatch.setattr(bench["gpu"], "here", lambda: ({}, 1))
    monkeypatch.setattr(bench["gpu"], "jobs", lambda *_: todo)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(sys, "argv", ["gpu.py", str(path), "--jobs", "known", "failed"])
    assert bench["gpu"].main() == 0
    found = json.loads(path.read_text())["jobs"]
    assert found["known"] == {"step_s": 1.0}
    assert found["failed"]["on"] == "3"
    assert "other" not in found


def test_rows_of_two_gpus_are_left_out_where_there_is_one(bench: dict[str, Any], tmp_path: Path) -> None:
    names = {job.name for job in bench["gpu"].jobs(tmp_path, "h200", "h200x8", 1, [])}
    assert {"llama1", "plan-llama1"} <= names
    assert not {"llama2", "plan-llama2", "hand-8192"} & names


def test_every_row_has_a_program(bench: dict[str, Any]) -> None:
    for row in bench["gpu_rows"].ROWS:
        assert row.bound().operations


class Ticking:
    """A contender whose clock goes on by so many seconds a step; how many steps of whom, in turn."""

    def __init__(self, name: str, seconds: list[float], order: list[tuple[str, int]]) -> None:
        self.name, self.seconds, self.order = name, cycle(seconds), order
        self.now, self.steps = 0.0, 0

    def begin(self) -> None:
        self.now, self.steps = 0.0, 0

    def step(self) -> None:
        self.now += next(self.seconds)
        self.steps += 1

    def mark(self) -> Callable[[], float]:
        return partial(float, self.now)

    def wait(self) -> None:
        self.order.append((self.name, self.steps))


def test_contenders_take_turns_and_the_first_turn_does_not_count(bench: dict[str, Any]) -> None:
    order: list[tuple[str, int]] = []
    first = [9.0] * 14  # the steps before the first turn, and that
    slow, quick = Ticking("slow", [*first, *[0.5] * 1000], order), Ticking("quick", [0.001], order)
    found = bench["gpu_steps"].seconds({"slow": slow, "quick": quick})
    assert found == {"slow": pytest.approx(0.5), "quick": pytest.approx(0.001)}
    assert order[4:] == [("slow", 8), ("quick", 400)] * bench["gpu_steps"].TURNS


def test_figures_of_a_run(bench: dict[str, Any]) -> None:
    ours = bench["gpu_ours"]
    made = plan(bench["gpu_rows"].BY_NAME["moe1small"].bound(), "h200")
    held = ours.Ours(made, ours.values(made.program), "numpy", "local")
    steps = held.noted()
    found = ours.figures(made, held, 0.25, steps)
    assert found["step_s"] == 0.25
    assert found["noted_s"] in {step.wall_s for step in steps}
    assert found["predicted_s"] == made.document.predicted.makespan_s
    assert {task[2] for task in found["tasks"]} == {op.name for op in made.program.operations}
    assert found["timeline"].startswith("<svg")


def test_values_are_finite_and_of_ordinary_size(bench: dict[str, Any]) -> None:
    """What a chip takes for others says little."""
    ordinary = bench["gpu_ours"].ordinary
    assert ordinary(np.array([[1.5, -2e5], [0.0, 3.0]], np.float32))
    assert not ordinary(np.array([1.0, np.nan]))
    assert not ordinary(np.array([1.0, -np.inf]))
    assert not ordinary(np.array([1.0, 1e8]))
    for row in ("digits1", "moe1small"):
        program = bench["gpu_rows"].BY_NAME[row].bound()
        assert all(ordinary(value) for value in bench["gpu_ours"].values(program).values())


@tp.program
def doubled_twice(x: tp.f32[Tensor, "n=64"]) -> Tensor:
    return tp.exp(tp.exp(x) + 1.0)


def test_inputs_are_the_same_in_every_step(bench: dict[str, Any]) -> None:
    """No plan uses their memory for something else."""
    made = plan(bench["gpu_ours"].kept(doubled_twice.bind()), "h200", mesh=(1,), rewrite=False)
    inputs = random_inputs(made.program)
    held = bench["gpu_ours"].Ours(made, inputs, "numpy", "local")
    for _ in range(3):
        held.step()
        held.wait()
    [(tensor, buffer)] = made.document.outputs.items()
    array, run = held.held.gathered(tensor, buffer, near=False)
    run()
    np.testing.assert_allclose(array, evaluate(made.program, inputs)[tensor], rtol=1e-6)


def test_time_in_which_each_rank_computes_nothing(bench: dict[str, Any]) -> None:
    events = [
        Event(0, "compute", 0, "a", 0.0, 2.0), Event(0, "comm", 1, "b", 1.0, 4.0),
        Event(0, "compute", 2, "c", 4.0, 5.0),
        Event(1, "compute", 0, "a", 0.0, 4.5), Event(1, "comm", 1, "b", 1.0, 4.0),
    ]  # fmt: skip
    assert bench["gpu_ours"].exposed(events, 5.0) == [2.0, 0.5]


def step(seconds: float, predicted: float, **more: Any) -> dict[str, Any]:
    return {
        "step_s": seconds, "predicted_s": predicted, "bound_s": 0.04, "predicted_exposed_s": 0.0, "exposed_s": 0.001,
        "bytes_moved": 2_000_000, "shardings": {"t by mesh0": 3, "whole": 1}, "timeline": "<svg/>",
        "tasks": [task for layer in "01" for task in tasks_of(f"layers.{layer}")],
    } | more  # fmt: skip


def tasks_of(layer: str) -> list[list[Any]]:
    """Tasks of rank 0, two of which are done within a third, and one of another rank."""
    return [
        [0, "compute", f"{layer}.q", 1e-4, 2e-4, "cublasLtMatmul"],
        [0, "compute", f"{layer}.gate", 3e-4, 0.0, f"within {layer}.gated"],
        [0, "comm", f"shift {layer}.k", 1e-4, 1e-4, ""],
        [0, "compute", f"{layer}.up", 3e-4, 1e-6, f"within {layer}.gated"],
        [0, "compute", f"{layer}.gated", 1e-4, 7e-4, "paired"],
        [1, "compute", f"{layer}.q", 1.0, 1.0, "cublasLtMatmul"],
    ]


def test_the_page(bench: dict[str, Any], tmp_path: Path) -> None:
    machine = {"gpu": "G", "torch": "2", "cuda": "13", "cupy": "14", "date": "2026-11-22"}
    jobs = {
        "hand-8192": {"Megatron": 0.032, "Megatron, CUDA graph": 0.030, "context parallel": 0.020},
        "llama1": step(0.05, 0.049, others={"torch eager": 0.06, "torch.compile": 0.055}),
        "llama2": step(0.025, 0.0200, exposed_s=0.004, exposed_least_s=0.003), "llama2cut": step(0.028, 0.028),
        "convnet16x1": step(0.040, 0.040), "convnet16x2": step(0.020, 0.020),
        "corners1": {"failed": "code 1: Traceback\nMemoryError: no | room"},
    }  # fmt: skip
    page = tmp_path / "gpu.md"
    bench["gpu_tables"].write_page({"machine": machine, "jobs": jobs}, page)
    lines = page.read_text().splitlines()
    (one,) = (line for line in lines if "torch.compile" in line and "| 1 |" in line)
    assert one.split(" | ")[2:8] == ["50", "49", "1.02", "55 torch.compile", "1.10", "<= 51 yes, 1 x yes"]
    two, cut = (
        line.split(" | ") for line in lines if "8,192 tokens" in line and "wanted" not in line and "| 2 | 2" in line
    )
    assert two[4:8] == ["**1.25**", "20 context parallel", "0.80", "<= 27.5 yes, 1 x **no**"]
    assert cut[5] == "30 Megatron, CUDA graph"
    waits = [line.split(" | ")[2:6] for line in lines if "8,192 tokens" in line and "t by mesh0" in line]
    assert waits == [["0", "4", "3", "2"], ["0", "1", "", "2"]]
    assert any("failed: MemoryError: no / room" in line for line in lines)
    assert any(line.startswith("| ConvNeXt-like, 16") and "40 one GPU | 2.00 | 1.9 x yes" in line for line in lines)
    assert "| layers.*.q | 2 | 200.0 | 400.0 | 2.00 |" in lines
    assert "| layers.*.gate, up, gated | 2 | 1400.0 | 1402.0 | 1.00 |" in lines
    assert not any(line.startswith("| layers.*.up") for line in lines)
    assert (tmp_path / "img" / "gpu-timeline.svg").read_text() == "<svg/>"
