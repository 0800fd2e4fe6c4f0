"""The benchmark of timm's layers, but for what needs timm or a GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import astuple
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.cost.measurements import problem_of


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    sys.modules.pop("timm_layers", None)
    return import_module("timm_layers")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.grouped = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3, 2, 1, groups=4)
        self.odd = nn.Conv2d(32, 36, 3, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.odd(self.grouped(self.stem(x)))
        return out


def test_layers_are_those_that_the_kernels_compute(bench: ModuleType) -> None:
    with torch.device("meta"):
        model = Net()
    (found,) = bench.grouped(model, (3, 34, 34))
    expected = ConvolutionProblem(
        1, 32, 32, 16, 4, 3, 3, (2, 2), (1, 1), (1, 1, 1, 1), "bf16", channels_out=32
    )  # fmt: skip
    assert found == expected
    assert problem_of(json.loads(json.dumps(astuple(found)))) == found


def test_the_same_seed_draws_the_same_layers(bench: ModuleType) -> None:
    layers = [
        ConvolutionProblem(1, h, h, 64, 8, 3, 3, padding=(1, 1, 1, 1), dtype="bf16") for h in (7, 14, 28, 56, 512)
    ]
    found = bench.drawn(layers, 4, 3)
    assert found == bench.drawn(layers, 4, 3) != bench.drawn(layers, 4, 4)
    assert len(found) == 4
    for problem in found:
        assert bench.ELEMENTS[0] <= problem.n * problem.h**2 * 64 <= bench.ELEMENTS[1]


def test_layers_of_no_model_are_those_that_the_kernels_compute(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bench.others(60, 5)
    assert found == bench.others(60, 5) != bench.others(60, 6)
    assert all(problem.octets and problem.n == 1 for problem in found)
    for what in ("width", "width_out", "stride", "dilation", "r", "dtype"):
        assert len({getattr(problem, what) for problem in found}) > 1
    path = tmp_path / "layers.json"
    monkeypatch.setattr(sys, "argv", ["timm_layers.py", "others", str(path), "--many", "60", "--seed", "5"])
    assert bench.main() == 0
    assert [problem_of(values) for values, _ in json.loads(path.read_text())] == found


def test_the_summary_counts_what_is_taken(bench: ModuleType) -> None:
    row = {"problem": [1], "pass": "forward", "times": [4.0, 2.0], "cudnn": 3.0, "left": False, "refused": 0}
    said = bench.summary([row, row | {"left": True, "times": [2.0, 2.0], "refused": 1}])
    assert "2 passes, 1 cuts gave other numbers" in said
    assert "| forward | 2 | 0.87 | 41.4 % | 100 % |" in said  # of 3 / 4 and 1, of 2 and 1
    assert "more than 2 %: 1." in said
