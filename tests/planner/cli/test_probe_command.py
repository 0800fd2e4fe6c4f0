"""`tapestry machine probe`: a machine file of this computer, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapestry.planner import load_machine
from tapestry.planner.probe import here, measure
from tapestry.planner.probe.sizes import Heads, Sizes

Tapestry = Callable[..., Any]

TINY = Sizes(
    products=((4, 4, 4), (8, 8, 8)),
    elements=(16, 64),
    row=8,
    images=((6, 2),),
    queries=(8,),
    heads=Heads(1, 8, "f32", causal=False),
    moved=(256, 1024),
    dtypes=("f32",),
)

NET = """
import tapestry as tp
from tapestry import Tensor, f32, param

@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]]) -> Tensor:
    return tp.relu(x @ w)
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "QUICK", TINY)


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:net"


def test_a_probe_writes_a_machine_to_plan_on(tapestry: Tapestry, tmp_path: Path, net: str) -> None:
    file, plan = tmp_path / "mine.toml", tmp_path / "plan.json"
    sizes = ["--set", "n=8", "m=4", "k=4"]
    ended = tapestry("machine", "probe", net, *sizes, "--quick", "--engine", "local", "--ranks", 2, "-o", file)
    assert (ended.code, ended.out) == (0, "")
    machine = load_machine(file)
    assert (machine.name, machine.device_count, machine.device.overlap) == ("mine", 2, False)
    assert [pace.ranks for pace in machine.device.paces] == [1, 2]
    assert len(machine.device.paces[1].operations) == 2
    assert 'name = "net.matmul"' in file.read_text(encoding="utf-8")
    assert "2 at work" in tapestry("machine", "show", file).out
    assert tapestry("plan", net, *sizes, "--machine", file, "-o", plan).code == 0
    assert tapestry("check", plan).code == 0
    again = tapestry(
        "machine", "probe", net, "--set", "n=16", "m=4", "k=4", "--engine", "local", "--quick", "--add-to", file
    )
    assert again.code == 0
    assert again.out.count("[[device.at_work.operations]]") == 4


def test_of_devices_that_are_known_transfers_alone_are_measured(tapestry: Tapestry, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    options = ["--quick", "--engine", "local", "--ranks", 4, "--devices-from", "cpu-4"]
    ended = tapestry("machine", "probe", *options, "-o", file)
    assert (ended.code, ended.out) == (0, "")
    machine = load_machine(file)
    assert machine.device_count == 4
    assert machine.device == load_machine("cpu-4").device
    assert {(curve.collective, curve.ranks) for curve in machine.links[0].curve} >= {
        ("all_gather", 4), ("all_reduce", 4), ("reduce_scatter", 4), ("shift", 4),
    }  # fmt: skip


def test_a_probe_that_is_ended_half_way_leaves_no_file(
    tapestry: Tapestry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(here, "run_plans", ended)
    found = tapestry("machine", "probe", "--quick", "--ranks", 2, "-o", tmp_path / "mine.toml")
    assert found.code not in (0, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "none/mine.toml"], "cannot be written: No such file or directory"),
        (["-o", "taken.toml"], "is there already"),
        (["--ranks", 0], "--ranks"),
        (["--device", "tpu"], "no device 'tpu'"),
        (["--engine", "magic"], "--engine"),
        (["--set", "n=4"], "--set is of a program, and none is given"),
        (["--add-to", "taken.toml"], "--add-to adds a program"),
        (["--add-to", "taken.toml", "--devices-from", "cpu-4"], "--add-to and --devices-from"),
        (["--ranks", 1, "--devices-from", "cpu-4"], "of one rank nothing is left to measure"),
        (["--devices-from", "nowhere"], "nowhere"),
        (["net.py:net", "--set", "n=8", "m=4", "k=4", "--devices-from", "rates.toml"], "has no paces"),
        (["none.py:net"], "no such program file"),
        (["net.py:net", "--set", "n=8", "m=4", "k=4", "--add-to", "none.toml"], "cannot be read"),
        (["net.py:net", "--set", "n=8", "m=4", "k=4", "--add-to", "rates.toml"], "was not probed: it has no paces"),
    ],
)
def test_bad_options_end_with_2_before_anything_is_measured(
    tapestry: Tapestry, tmp_path: Path, net: str, monkeypatch: pytest.MonkeyPatch, options: list[object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(here, "run_plans", lambda *_, **__: pytest.fail("something was run"))
    (tmp_path / "taken.toml").write_text("mine", encoding="utf-8")
    packaged = Path(__file__).parents[3] / "planner" / "machines" / "cpu-4.toml"
    (tmp_path / "rates.toml").write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
    ended = tapestry("machine", "probe", "--quick", *options)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert (tmp_path / "taken.toml").read_text(encoding="utf-8") == "mine"
