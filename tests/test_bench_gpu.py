"""`make bench-gpu` without a GPU: its processes, what they leave, and the page that is made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tapestry.planner import plan
from tapestry.planner.format.events import Event

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Iterator[dict[str, Any]]:
    """The scripts, as modules."""
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield {name: import_module(name) for name in ("gpu", "gpu_ours", "gpu_rows", "gpu_tables")}
    finally:
        sys.path[:] = before


def job(bench: dict[str, Any], name: str, code: str, gpus: int = 1, **more: Any) -> Any:
    return bench["gpu"].Job(name, gpus, ("-c", code), more.pop("limit_s", 60.0), **more)


def test_each_job_has_gpus_of_its_own_and_none_loses_the_others(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "import os, json; print(json.dumps({'on': os.environ['CUDA_VISIBLE_DEVICES']}))"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [
        job(bench, "plan", "print('{}'); print('{\"plan_s\": 1}')", gpus=0),
        job(bench, "one", said),
        job(bench, "hangs", "import time; print('{\"part\": 1}', flush=True); time.sleep(600)", limit_s=2.0),
        job(bench, "breaks", "raise SystemExit('out of luck')"),
        job(bench, "both", said, gpus=2, after=("plan",)),
        job(bench, "never", said, after=("breaks",)),
    ]
    results: dict[str, Any] = {"jobs": {}}
    bench["gpu"].run(jobs, 2, results, tmp_path / "r.json", monotonic() + 300)
    found = json.loads((tmp_path / "r.json").read_text())["jobs"]
    assert found["plan"]["plan_s"] == 1
    assert found["one"]["on"] in ("0", "1")
    assert sorted(found["both"]["on"].split(",")) == ["0", "1"]
    assert found["hangs"]["part"] == 1
    assert "failed" in found["hangs"]
    assert "out of luck" in found["breaks"]["failed"]
    assert found["never"] == {"failed": "breaks failed"}


def test_what_is_not_begun_in_time_is_said(bench: dict[str, Any], tmp_path: Path) -> None:
    results: dict[str, Any] = {"jobs": {}}
    bench["gpu"].run([job(bench, "late", "print('{}')")], 1, results, tmp_path / "r.json", monotonic() - 1)
    assert results["jobs"] == {"late": {"failed": "the time was over"}}


def test_a_second_run_goes_on_on_the_gpus_that_it_is_given(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "import os, json; print(json.dumps({'on': os.environ['CUDA_VISIBLE_DEVICES']}))"
    todo = [job(bench, "known", said), job(bench, "failed", said), job(bench, "other", said)]
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
    names = {job.name for job in bench["gpu"].jobs(tmp_path, "h200", 1, [])}
    assert {"llama1", "plan-llama1", "torch-llama"} <= names
    assert not {"llama2", "plan-llama2", "hand-8192"} & names


def test_every_row_has_a_program(bench: dict[str, Any]) -> None:
    for row in bench["gpu_rows"].ROWS:
        assert row.bound().operations


def test_figures_of_a_run(bench: dict[str, Any]) -> None:
    row = bench["gpu_rows"].BY_NAME["moe1"]
    made = plan(row.bound(), "h200")
    found = bench["gpu_ours"].figures(made, made.run(bench["gpu_ours"].values(made.program), device="numpy", repeat=4))
    assert found["steps"] == 4
    assert found["predicted_s"] == made.document.predicted.makespan_s
    assert {task[2] for task in found["tasks"]} == {op.name for op in made.program.operations}
    assert found["timeline"].startswith("<svg")


def test_time_in_which_a_rank_computes_nothing(bench: dict[str, Any]) -> None:
    events = [
        Event(0, "compute", 0, "a", 0.0, 2.0), Event(0, "comm", 1, "b", 1.0, 4.0),
        Event(0, "compute", 2, "c", 4.0, 5.0),
        Event(1, "compute", 0, "a", 0.0, 4.5), Event(1, "comm", 1, "b", 1.0, 4.0),
    ]  # fmt: skip
    assert bench["gpu_ours"].exposed(events, 5.0) == 2.0


def step(seconds: float, predicted: float, **more: Any) -> dict[str, Any]:
    return {
        "step_s": seconds, "predicted_s": predicted, "bound_s": 0.04, "predicted_exposed_s": 0.0, "exposed_s": 0.001,
        "bytes_moved": 2_000_000, "shardings": {"t by mesh0": 3, "whole": 1}, "timeline": "<svg/>",
        "tasks": [[0, "compute", "layers.0.q", 1e-4, 2e-4], [0, "compute", "layers.1.q", 1e-4, 2e-4]],
    } | more  # fmt: skip


def test_the_page(bench: dict[str, Any], tmp_path: Path) -> None:
    machine = {"gpu": "G", "torch": "2", "cuda": "13", "cupy": "14", "date": "2026-11-22"}
    jobs = {
        "torch-llama": {"torch eager": 0.06, "torch.compile": 0.055, "took_s": 9},
        "hand-8192": {"Megatron": 0.032, "Megatron, CUDA graph": 0.030, "context parallel": 0.020},
        "llama1": step(0.05, 0.049), "llama2": step(0.025, 0.0200), "llama2cut": step(0.028, 0.028),
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
    assert any("failed: MemoryError: no / room" in line for line in lines)
    assert any(line.startswith("| ConvNeXt-like, 16") and "40 one GPU | 2.00 | 1.9 x yes" in line for line in lines)
    assert "| layers.*.q | 2 | 200.0 | 400.0 | 2.00 |" in lines
    assert (tmp_path / "img" / "gpu-timeline.svg").read_text() == "<svg/>"
