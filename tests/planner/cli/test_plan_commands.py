"""`tapestry plan | check | simulate | explain`: what they print, write and refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import SET

Tapestry = Callable[..., Any]


def test_plan_writes_the_plan_and_prints_what_it_found(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    ended = tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "-o", tmp_path / "plan.json")
    assert ended.code == 0
    assert ended.out.startswith("net on cpu-4, mesh 4\n")
    assert re.search(r"bound    within [0-9.]+% of the bound: no plan takes less than .* \(gap ", ended.out)
    assert "claimed  within 0.00% of" in ended.out
    assert "optimal" not in ended.out
    assert "matmul" in ended.out
    assert ended.err == f"wrote {tmp_path / 'plan.json'}\n"
    assert json.loads((tmp_path / "plan.json").read_bytes())["format"] == "tapestry.plan/3"


def test_plan_as_json_is_one_object_with_the_promised_keys(tapestry: Tapestry, net: str) -> None:
    ended = tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "--json", "--seed", 3)
    found = json.loads(ended.out)
    assert ended.code == 0
    assert found["format"] == "tapestry.plan/3"
    assert found["solver"].keys() >= {"status", "objective_s", "bound_s", "model_gap", "gap", "wall_s", "seed"}
    assert found["solver"]["seed"] == 3
    proved = {"bound_s", "gap", "chain"}
    assert {name.removeprefix("solver.") for name in found["claims"]} == found["solver"].keys() - proved
    assert found["predicted"].keys() == {"makespan_s", "compute_s", "exposed_transfer_s"}
    assert found["traffic"].keys() >= {"bytes_total", "bytes_by_kind", "bytes_by_link"}
    assert set(found["peak_bytes"]) == {"0", "1", "2", "3"}
    assert all(sharding.keys() >= {"partition", "ranks", "kind"} for sharding in found["shardings"].values())
    assert found["tasks"] > 0


def test_settings_may_follow_one_set_or_have_one_each(tapestry: Tapestry, net: str) -> None:
    one = tapestry("plan", net, "--machine", "cpu-4", "--mesh", "4", *SET)
    each = tapestry("plan", "--set", "n=64", "--set", "m=16", "--set", "k=32", net, "--machine", "cpu-4", "--mesh", "4")
    assert (one.code, each.code) == (0, 0)
    assert one.out == each.out


def test_pins_are_kept(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    pins = tmp_path / "pins.toml"
    pins.write_text("[[pin]]\nop = 'matmul*'\ncut = { mesh0 = 'k', mesh1 = 'n' }\n", encoding="utf-8")
    ended = tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "2x2", "--pin", pins, "--json")
    (cut,) = (sharding["partition"] for op, sharding in json.loads(ended.out)["shardings"].items() if "matmul" in op)
    assert sorted(cut.values()) == ["mesh0", "mesh1"]


def test_bytes_are_an_objective_of_their_own(tapestry: Tapestry, net: str) -> None:
    found = json.loads(
        tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "--objective", "bytes", "--json").out
    )
    assert found["solver"]["objective"] == "bytes"
    assert found["traffic"]["bytes_total"] == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--machine", "cpu-5"], "did you mean 'cpu-4'"),
        (["--machine", "cpu-4", "--mesh", "2y2"], "--mesh"),
        (["--machine", "cpu-4", "--mesh", "3x2"], "6 devices"),
        (["--machine", "cpu-4", "--memory", "hbm=1GiB"], "no memory tier 'hbm'"),
        (["--machine", "cpu-4", "--memory", "host=lots"], "--memory host"),
        (["--machine", "cpu-4", "--pin", "none.toml"], "none.toml"),
        (["--machine", "cpu-4", "--set", "q=3"], "'q'"),
        (["--machine", "cpu-4", "--set", "n=65"], "twice"),
        (["--machine", "cpu-4", "other.py:net"], "one FILE.py:PROGRAM"),
        (["--machine", "cpu-4", "--objective", "beauty"], "beauty"),
        (["--machine", "cpu-4", "--time-limit", "-1"], "--time-limit"),
        (["--machine", "cpu-4", "--jobs", "0"], "--jobs"),
        ([], "--machine"),
    ],
)
def test_bad_input_ends_with_2_and_writes_nothing(
    tapestry: Tapestry, net: str, tmp_path: Path, more: list[str], said: str
) -> None:
    ended = tapestry("plan", net, *SET, *more, "-o", tmp_path / "plan.json")
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []


def test_what_does_not_fit_ends_with_3_and_names_what_would(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    ended = tapestry(
        "plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "--memory", "host=100", "-o", tmp_path / "plan.json"
    )
    assert (ended.code, ended.out) == (3, "")
    assert "x" in ended.err
    assert not (tmp_path / "plan.json").exists()


def test_a_folder_that_is_not_there(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    ended = tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "-o", tmp_path / "none" / "plan.json")
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be written" in ended.err


def test_check_proves_what_plan_wrote(tapestry: Tapestry, plan_file: Path) -> None:
    assert tapestry("check", plan_file).out.startswith("ok")
    ended = tapestry("check", plan_file, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["ok"] is True


def test_check_of_a_plan_that_states_the_wrong_traffic_ends_with_1(tapestry: Tapestry, plan_file: Path) -> None:
    document = json.loads(plan_file.read_bytes())
    document["traffic"]["bytes_total"] += 1
    plan_file.write_text(json.dumps(document), encoding="utf-8")
    ended = tapestry("check", plan_file, "--json")
    assert ended.code == 1
    assert [verdict["code"] for verdict in json.loads(ended.out)["verdicts"]] == ["traffic"]


@pytest.mark.parametrize("command", ["check", "simulate", "explain"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "plan.json"),
        (lambda text: "", "plan.json"),
        (lambda text: "[]", "plan.json"),
        (lambda text: text.replace("tapestry.plan/3", "tapestry.plan/9"), "tapestry.plan/9"),
        (lambda text: text.replace('"buffers"', '"bufers"'), "bufers"),
        (lambda text: text.replace('"mesh"', '"mush"'), "mush"),
    ],
)
def test_files_that_are_no_plan_end_with_2(
    tapestry: Tapestry, plan_file: Path, command: str, change: Callable[[str], str], said: str
) -> None:
    text = plan_file.read_text(encoding="utf-8")
    assert change(text) != text
    plan_file.write_text(change(text), encoding="utf-8")
    ended = tapestry(command, plan_file)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.parametrize("command", ["check", "simulate", "explain"])
def test_a_plan_that_is_not_there(tapestry: Tapestry, command: str, tmp_path: Path) -> None:
    ended = tapestry(command, tmp_path / "none.json")
    assert (ended.code, ended.out) == (2, "")
    assert "No such file" in ended.err


def test_simulate(tapestry: Tapestry, plan_file: Path) -> None:
    assert "makespan_s" in tapestry("simulate", plan_file).out
    found = json.loads(tapestry("simulate", plan_file, "--json").out)
    assert found["makespan_s"] >= found["compute_s"] > 0
    assert set(found["busy_s"]) == {"0", "1", "2", "3"}


def test_explain(tapestry: Tapestry, plan_file: Path) -> None:
    assert "instead" in tapestry("explain", plan_file).out
    (row,) = json.loads(tapestry("explain", plan_file, "relu", "--json").out)["rows"]
    assert row["op"] == "relu"
    assert row["next_best"]["extra_s"] >= 0


def test_explain_names_the_kernels_of_a_device_that_is_not_here(
    tapestry: Tapestry, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "  kernel  general_" in tapestry("explain", plan_file, "--kernels", "cupy").out
    monkeypatch.setattr("tapestry.workers.cupy.machine.Machine.worth", 1)
    assert "  kernel  cublasLtMatmul, nothing below 0\n" in tapestry("explain", plan_file, "--kernels", "cupy").out
    (row,) = json.loads(tapestry("explain", plan_file, "relu", "--kernels", "cupy", "--json").out)["rows"]
    assert row["kernels"] == ["cublasLtMatmul, nothing below 0"]
    ended = tapestry("explain", plan_file, "--kernels", "numpy")
    assert (ended.code, ended.out) == (2, "")
    assert "these do: cupy" in ended.err


def test_explain_an_operation_that_is_not_there(tapestry: Tapestry, plan_file: Path) -> None:
    ended = tapestry("explain", plan_file, "rellu")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'relu'" in ended.err


SLOW = "import time\ntime.sleep(0.3)\n"


def test_a_program_that_takes_longer_to_read_than_there_is_time_is_planned_late(
    tapestry: Tapestry, net: str, tmp_path: Path
) -> None:
    file = tmp_path / "net.py"
    file.write_text(SLOW + file.read_text(encoding="utf-8"), encoding="utf-8")
    ended = tapestry("plan", net, *SET, "--machine", "cpu-4", "--mesh", "4", "--time-limit", 0.2, "--json")
    assert ended.code == 0
    assert re.search(r"reading the program took [0-9.]+ s of the 0.2 s: the plan is late", ended.err)
    assert json.loads(ended.out)["solver"]["status"] == "fallback"
