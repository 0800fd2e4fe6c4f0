"""A plan on other hardware than it was made for: it runs, and a warning says that its times do not hold."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, plan
from tapestry.planner.cli import main
from tapestry.workers import OtherHardware, register_device
from tapestry.workers.numpy.device import NumpyDevice


class Elsewhere(NumpyDevice):
    """What a computer has."""

    here = "NVIDIA A100-SXM4-80GB"

    @classmethod
    def model(cls) -> str:
        return cls.here


@tp.program
def doubled(x: f32[Tensor, "n"]) -> Tensor:
    return x * 2.0


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(doubled.bind(n=8), "h200", time_limit=5)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("elsewhere", f"{__name__}:Elsewhere")
    return "elsewhere"


X = {"x": np.arange(8, dtype=np.float32)}
BOTH = r"made for 'NVIDIA H200[^']*', and this is 'NVIDIA A100-SXM4-80GB'"


def test_it_runs_and_says_so(made: Plan, elsewhere: str) -> None:
    with pytest.warns(OtherHardware, match=BOTH):
        found = made.run(X, device=elsewhere)
    assert found.outputs["out"].tolist() == (X["x"] * 2).tolist()
    with pytest.warns(OtherHardware, match=BOTH), made.compile({}, device=elsewhere) as step:
        assert step(X)["out"].tolist() == (X["x"] * 2).tolist()


@pytest.mark.parametrize("here", ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H200 SXM"])
def test_names_of_one_model_are_told_apart_by_nobody(
    made: Plan, elsewhere: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elsewhere, "here", here)
    made.run(X, device=elsewhere)


def test_hosts_run_every_plan_without_a_word(made: Plan) -> None:
    made.run(X, device="numpy")


def test_the_command_says_it_in_a_line(
    made: Plan, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.save(tmp_path / "plan.json")
    arguments = ["tapestry", "run", str(tmp_path / "plan.json"), "--random", "0", "--device", elsewhere]
    monkeypatch.setattr("sys.argv", arguments)
    before = warnings.showwarning
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr()
    assert re.search(f"^warning: the plan was {BOTH}", said.err, re.MULTILINE)
    assert "warning" not in said.out
    assert warnings.showwarning is before
