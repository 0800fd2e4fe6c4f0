"""`make bench-models` where there is no GPU: the measurements on a small model on the CPU, and the page."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from tapestry.kernels import warm_up

from ..files import ROOT, benchmark


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, on CPU tensors, of a `timm` that has one small model: its matrix product alone is left."""

    def created(name: str, **settings: Any) -> nn.Module:
        layers = [nn.Conv2d(3, 16, 3, 4, 1), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, 2, 1, groups=2), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(16, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 1000))

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found, timm = benchmark("models"), ModuleType("timm")
    steps = sys.modules["model_steps"]
    timm.create_model, timm.__version__ = created, "1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    for name, value in {
        "DEVICE": "cpu",
        "LOSS_STEPS": 2,
        "ROUNDS": 1,
        "HOST_ROUNDS": 1,
        "SETTLING": 0,
        "SECONDS": 1e-6,
        "ISSUES": 1,
    }.items():
        monkeypatch.setattr(steps, name, value)
    monkeypatch.setattr(found, "DEVICE", "cpu")
    monkeypatch.setattr(found, "captured", lambda step, compiled=False: step)
    monkeypatch.setattr(found, "missing", lambda: None)
    for what in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, what, lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1 << 29)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1 << 31)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(warm_up, "warm_up", lambda model, example: [])
    monkeypatch.setitem(found.MODELS, "efficientnet_b0", steps.Model(2, 16, goal=1.25))
    return found


def test_every_part_is_measured_and_kept(models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, results = tmp_path / "models.md", tmp_path / "r.json"
    page.write_text("before <!-- models: begin --> old <!-- models: end --> after", encoding="utf-8")
    asked = ["--only", "efficientnet_b0", "--modes", "first", "fused", "loss", "--results", str(results)]
    monkeypatch.setattr(sys, "argv", ["models.py", *asked, "--doc", str(page)])
    assert models.main() == 0
    case = json.loads(results.read_text(encoding="utf-8"))["models"]["efficientnet_b0"]
    assert (case["taken"], case["left"]) == (2, 1)
    assert case["loss"]["ours"] == 0  # cuDNN's second run has its tensors in another order
    assert {"first_cudnn_s", "fuse_s", "warm_up_s", "first_ours_s"} <= set(case)
    assert set(case["fused_graph_ms"]) == {"cudnn", "fused"}
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before")
    assert text.endswith("after")
    assert "old" not in text
    assert "efficientnet_b0, 2 | 2 of 3 |" in text
    assert "| model | cuDNN | ours: `fuse_for_training` | then `warm_up` | then the first step | kernels |" in text
    assert "Not measured in this run: convnext_tiny" in text


def test_training_with_convolutions_alone_and_with_norms(models: ModuleType, tmp_path: Path) -> None:
    measured = models.Measurement("efficientnet_b0", lambda case: None)
    measured.run(["graph", "eager", "memory"], monotonic() + 100)
    assert measured.case["norms"] == 1
    assert measured.case["excitations"] == 0
    assert measured.case["biases"] == 2
    contenders = {"cudnn", "ours", "norms", "everything"}
    assert set(measured.case["training_graph_ms"]) == set(measured.case["training_eager_ms"]) == contenders
    assert measured.case["memory_bytes"] == dict.fromkeys(contenders, 3 << 29)
    assert set(measured.case["inference_eager_ms"]) == {"cudnn", "ours"}
    measured.case["training_graph_ms"] = {"cudnn": 3.0, "ours": 2.0, "norms": 1.0, "everything": 0.5}
    measured.case["training_eager_ms"] = {"cudnn": 6.0, "ours": 4.0}  # of before there were norms
    measured.case["training_compile_ms"] = {"cudnn": 5.0, "ours": 2.5, "everything": 2.0}
    measured.case["memory_bytes"] |= {"ours": 1 << 30, "everything": 1 << 29}
    page = tmp_path / "page.md"
    page.write_text("<!-- models: begin --> <!-- models: end -->", encoding="utf-8")
    found = {"machine": models.machine() | {"cudnn_benchmark": False}, "models": {"efficientnet_b0": measured.case}}
    models.write_page(found, page)
    text = page.read_text(encoding="utf-8")
    cells = "3.0 | 2.0 | 1.50 | 1.0 | 3.00 | 0.5 | 6.00 | 1.25 | 6.0 | 4.0 | 1.50 | 5.0 | 2.5 | 2.00 | 2.0 | 2.50 |"
    assert f"| efficientnet_b0, 2 | 2 of 3 | 1 | 0 | 2 | {cells}" in text
    assert "| efficientnet_b0 | 1.50 | 1.00 | 0.67 | 1.50 | 1.00 | 0.50 | 0.33 |" in text


def test_models_of_others_have_a_table_of_their_own(models: ModuleType, tmp_path: Path) -> None:
    name, page = next(iter(models.UNSEEN)), tmp_path / "page.md"
    page.write_text("<!-- models of others: begin --> <!-- models of others: end -->", encoding="utf-8")
    case = {"taken": 1, "left": 2, "batch": 64, "training_graph_ms": {"cudnn": 3.0, "ours": 2.0}}
    models.write_page({"machine": models.machine() | {"cudnn_benchmark": False}, "models": {name: case}}, page, True)
    text = page.read_text(encoding="utf-8")
    assert f"| {name}, 64 | 1 of 3 | 3.0 | 2.0 | 1.50 |" in text  # no goal, and nothing that was not measured
    assert "| model, batch | layers | graph: cuDNN | ours | × |" in text
    assert set(models.KNOWN) == {*models.MODELS, *models.UNSEEN}


def test_training_with_everything(models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Excite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reduce, self.expand = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x * torch.sigmoid(self.expand(self.reduce(x.mean((2, 3), keepdim=True))))
            return out

    def created(name: str, **settings: Any) -> nn.Module:
        layers = [nn.Conv2d(3, 16, 3, 4, 1), nn.BatchNorm2d(16), Excite(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(16, 1000))

    monkeypatch.setattr(sys.modules["timm"], "create_model", created)
    measured = models.Measurement("efficientnet_b0", lambda case: None)
    measured.run(["loss"], monotonic() + 100)
    assert (measured.case["excitations"], measured.case["biases"]) == (1, 3)  # two of the module, and the last layer's
    loss = measured.case["loss"]
    assert {"cudnn_again", "ours", "norms", "everything"} < set(loss)
    assert loss["everything"] < 1e-2 * loss["first"]
    assert 0 < loss["everything_exact"] < 1e-2 * loss["first"]


def test_other_ways_of_training(models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda model, images: model)
    measured = models.Measurement("efficientnet_b0", lambda case: None)
    measured.run(["halves", "callables"], monotonic() + 100)
    for what in ("halves_graph_ms", "halves_eager_ms", "callables_ms"):
        assert set(measured.case[what]) == {"cudnn", "everything"}
        measured.case[what] = {"cudnn": 3.0, "everything": 2.0}
    assert next(measured.theirs.model.parameters()).dtype is torch.float32
    page = tmp_path / "page.md"
    page.write_text("<!-- models: begin --> <!-- models: end -->", encoding="utf-8")
    found = {"machine": models.machine() | {"cudnn_benchmark": False}, "models": {"efficientnet_b0": measured.case}}
    models.write_page(found, page)
    assert f"| efficientnet_b0, 2 |{' 3.0 | 2.0 | 1.50 |' * 3}" in page.read_text(encoding="utf-8")


def test_what_is_compiled_is_what_is_called(models: ModuleType) -> None:
    """A compiled module has a length, which raises for modules that have none."""
    measured = models.Measurement("efficientnet_b0", lambda case: None)

    class Compiled(nn.Module):
        def __len__(self) -> int:
            raise TypeError("no length")

        def forward(self, x: Any) -> Any:
            calls.append(x)
            return measured.ours.model(x)

    calls: list[Any] = []
    measured.ours.training(Compiled())()
    measured.ours.inference(Compiled())()
    assert len(calls) == 2


def test_a_part_that_fails_is_noted_and_a_late_one_left_out(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(models.Measurement, "graph", broken)
    case: dict[str, Any] = {}
    measured = models.Measurement("efficientnet_b0", case.update)
    measured.run(["graph"], monotonic() + 100)
    measured.run(["loss"], monotonic() - 1)
    assert case["graph_failed"] == "RuntimeError: out of luck"
    assert case["left_out"] == ["loss"]


def test_what_was_measured_is_not_measured_again(
    models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, ran = tmp_path / "r.json", []

    def run(self: Any, modes: list[str], deadline: float) -> None:
        ran.append(modes)
        self.note({models.MODES[mode]: {"cudnn": 2.0, "ours": 1.0} for mode in modes})

    def measure(names: list[str], limit: float, jobs: int, note: Any, profile: Any, contenders: list[str]) -> None:
        for name in names:
            ran.append(["compile"])
            ready = contenders if len(ran) > 2 else ["cudnn"]  # ours were not ready at first
            times = dict.fromkeys(ready, 2.0)
            note(name, {"training_compile_ms": times})

    monkeypatch.setattr(models.Measurement, "run", run)
    monkeypatch.setattr(sys.modules["model_compile"], "measure", measure)
    for modes in (["eager"], ["eager", "compile"], ["compile"], ["compile"]):
        asked = ["--only", "efficientnet_b0", "--modes", *modes, "--results", str(results)]
        monkeypatch.setattr(sys, "argv", ["models.py", *asked])
        assert models.main() == 0
    assert ran == [["eager"], ["compile"], ["compile"]]
    case = json.loads(results.read_text(encoding="utf-8"))["models"]["efficientnet_b0"]
    assert set(case) == {"inference_eager_ms", "training_compile_ms"}


def test_without_a_gpu_it_says_so(models: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(models, "missing", lambda: "timm is not installed")
    monkeypatch.setattr(sys, "argv", ["models.py"])
    assert models.main() == models.NO_GPU
    assert "timm is not installed" in capsys.readouterr().err


@pytest.fixture
def compiling(models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Training of compiled models, where compiling is nothing."""
    found = sys.modules["model_compile"]
    monkeypatch.setattr(found, "DEVICE", "cpu")
    monkeypatch.setattr(found, "captured", lambda step, compiled=False: step)
    monkeypatch.setattr(torch, "compile", lambda model: model)
    return found


def test_compiled_contenders_write_what_they_find_as_it_comes(
    compiling: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "part.json"
    compiled = compiling.Compiled("efficientnet_b0", part)
    assert compiled.ready() >= 0

    def uncapturable(step: Any, compiled: bool) -> Any:
        raise RuntimeError("copies from the host")

    monkeypatch.setattr(compiling, "captured", uncapturable)
    compiled.timed()
    found = json.loads(part.read_text(encoding="utf-8"))
    assert (found["taken"], found["left"], found["batch"]) == (2, 1, 2)
    assert found["compile_graph_failed"] == "copies from the host"
    assert set(found["training_compile_ms"]) == set(found["training_compile_issue_ms"]) == set(compiling.CONTENDERS)
    monkeypatch.setattr(compiling, "captured", lambda step, compiled=False: step)
    compiled.timed()
    assert set(json.loads(part.read_text(encoding="utf-8"))["training_compile_graph_ms"]) == set(compiling.CONTENDERS)


CHILD = """
import json, sys, time
name, part, *rest = sys.argv[1:]
if "--ahead" in rest:
    if name == "slow" and rest[-1] == "ours":
        time.sleep(600)
    open(part, "w").write(json.dumps({"compile_s": 1.0}))
else:
    assert rest[-2] == "--profile"
    open(part, "w").write(json.dumps({"training_compile_ms": {"cudnn": 2.0, "ours": 1.0, "everything": 0.5}}))
    time.sleep(600 if name == "hanging" else 0)
"""


def test_what_is_not_compiled_in_time_is_not_timed_and_what_is_found_is_kept(
    compiling: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, found = tmp_path / "child.py", {}
    child.write_text(CHILD, encoding="utf-8")
    monkeypatch.setattr(compiling, "__file__", str(child))
    names = ["quick", "slow", "hanging"]
    profiles = tmp_path / "profiles"
    compiling.measure(names, 8.0, 3, lambda name, case: found.update({name: case}), profiles)
    took = {"cudnn": 1.0, "ours": 1.0, "everything": 1.0}
    times = {"training_compile_ms": {"cudnn": 2.0, "ours": 1.0, "everything": 0.5}, "compile_s": took}
    assert found == {"quick": times, "hanging": times, "slow": {"compile_s": {"cudnn": 1.0, "everything": 1.0}}}


def test_models_that_are_noted_at_once_leave_a_whole_file(models: ModuleType, tmp_path: Path) -> None:
    """Of whatever length each of them is."""
    results = tmp_path / "r.json"
    found: dict[str, Any] = {"models": {}}

    def note(number: int) -> None:
        for turn in range(40):
            models.keep(found, f"model {number}", {"ms": [1.0] * (turn * 37 * (number + 1) % 500)}, results)
            json.loads(results.read_text(encoding="utf-8"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, range(4)))
    kept = json.loads(results.read_text(encoding="utf-8"))["models"]
    assert sorted(kept) == [f"model {number}" for number in range(4)]
