"""`tapestry run`: inputs in, outputs out, values and bytes compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from .planned import planned

Tapestry = Callable[..., Any]

NET = """
import tapestry as tp
from tapestry import Tensor, f32, param

@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]]) -> Tensor:
    y = tp.relu(x @ w)
    return y
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    return planned(tmp_path_factory.mktemp("planned"), NET, "n=6", "m=4", "k=10")


@pytest.fixture
def plan_file(written: str, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(written, encoding="utf-8")
    return path


def test_a_run_on_random_inputs_agrees_with_the_reference(tapestry: Tapestry, plan_file: Path) -> None:
    ended = tapestry("run", plan_file, "--random", 1, "--verify", "--json")
    found = json.loads(ended.out)
    assert ended.code == 0
    assert found["bytes_moved"] == found["bytes_planned"]
    assert found["wall_s"] > 0
    assert found["predicted_s"] > 0
    assert found["max_abs_error"] <= 1e-5
    assert found["verified"] is True


def test_a_step_is_repeated_and_traced(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    ended = tapestry("run", plan_file, "--random", 1, "--repeat", 3, "--trace", trace, "--json")
    found = json.loads(ended.out)
    assert (ended.code, found["steps"]) == (0, 3)
    assert found["min_s"] <= found["median_s"] == found["wall_s"] <= found["max_s"]
    assert found["bytes_moved"] == found["bytes_planned"]  # of one step
    tasks = json.loads(plan_file.read_text())["tasks"]
    assert {task["task"] for task in found["tasks"]} == {task["id"] for task in tasks}
    assert all(task["measured_s"] > 0 for task in found["tasks"] if task["predicted_s"])
    events = json.loads(trace.read_text())["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.split()[0] for name in lanes} == {"predicted", "measured"}


STATES = """
import tapestry as tp
from tapestry import Tensor, f32, state

@tp.program
def count(x: f32[Tensor, "n"], total: state[f32[Tensor, "n"]], last: state[f32[Tensor, "n"]]) -> dict[str, Tensor]:
    tp.update(total, total + x)
    tp.update(last, total * 2.0)
    return {"double": x + x}
"""


@pytest.mark.parametrize(("engine", "ranks"), [("local", 4), ("torchrun", 2)])
def test_states_go_on_from_step_to_step(tapestry: Tapestry, tmp_path: Path, engine: str, ranks: int) -> None:
    (tmp_path / "count.py").write_text(STATES, encoding="utf-8")
    plan, given, out = tmp_path / "plan.json", tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    sizes = ("--set", "n=8", "--machine", "cpu-4", "--mesh", ranks)
    assert tapestry("plan", f"{tmp_path / 'count.py'}:count", *sizes, "-o", plan).code == 0
    x = np.arange(8, dtype=np.float32)
    save_file({"x": x, "total": np.ones(8, np.float32), "last": np.zeros(8, np.float32)}, given)
    ended = tapestry("run", plan, "--inputs", given, "--engine", engine, "--repeat", 4, "--outputs", out)
    assert ended.code == 0
    found = load_file(out)
    assert found["total"].tolist() == (1 + 4 * x).tolist()
    assert found["last"].tolist() == (2 * (1 + 3 * x)).tolist()
    assert found["double"].tolist() == (x + x).tolist()  # the input is where it was in every step
    refused = tapestry("run", plan, "--inputs", given, "--repeat", 2, "--verify")
    assert (refused.code, refused.out) == (2, "")
    assert "--verify compares one step, and 2 change the states total, last" in refused.err


def test_the_page_of_a_run(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    ended = tapestry("run", plan_file, "--random", 1, "--html", tmp_path / "run.html")
    assert ended.code == 0, ended.err
    page = (tmp_path / "run.html").read_text()
    assert "predicted: " in page
    assert "measured: " in page


def test_a_trace_that_cannot_be_written(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    ended = tapestry("run", plan_file, "--random", 1, "--trace", tmp_path / "none" / "trace.json")
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be written" in ended.err


def test_a_run_on_given_inputs_writes_its_outputs(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    x, w = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(40, dtype=np.float32).reshape(4, 10) - 20
    save_file({"x": x, "w": w}, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    ended = tapestry("run", plan_file, "--inputs", tmp_path / "in.safetensors", "--outputs", out)
    assert ended.code == 0
    assert "bytes_moved" in ended.out
    assert np.array_equal(load_file(out)["y"], np.maximum(x @ w, 0))


def test_a_plan_that_fails_its_check_does_not_run(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    document = json.loads(plan_file.read_text())
    document["tasks"].pop()  # well-formed still, but nothing computes the output
    del document["digests"]
    plan_file.write_text(json.dumps(document))
    out = tmp_path / "out.safetensors"
    ended = tapestry("run", plan_file, "--random", 1, "--outputs", out)
    assert ended.code == 1
    assert "fails its check" in ended.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "either --inputs F.safetensors or --random SEED"),
        (["--random", 0, "--inputs", "in.safetensors"], "either --inputs"),
        (["--random", -1], "--random"),
        (["--random", 0, "--engine", "magic"], "--engine"),
        (["--random", 0, "--repeat", 0], "--repeat"),
        (["--random", 0, "--device", "tpu"], "no device 'tpu'"),
        (["--inputs", "none.safetensors"], "none.safetensors: cannot be read"),
    ],
)
def test_bad_options_end_with_2(tapestry: Tapestry, plan_file: Path, more: list[object], said: str) -> None:
    ended = tapestry("run", plan_file, *more)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((6, 4), np.float32)}, "'w' is missing"),
        ({"x": np.zeros((6, 4), np.float32), "w": np.zeros((4, 9), np.float32)}, "'w' is of another dtype or shape"),
        ({"x": np.zeros((6, 4)), "w": np.zeros((4, 10), np.float32)}, "'x' is of another dtype or shape"),
        ({"x": np.zeros((6, 4)), "v": np.zeros(1)}, "holds 'v'"),
    ],
)
def test_wrong_inputs_end_with_2_and_nothing_is_written(
    tapestry: Tapestry, plan_file: Path, tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    save_file(arrays, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    ended = tapestry("run", plan_file, "--inputs", tmp_path / "in.safetensors", "--outputs", out)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert not out.exists()
