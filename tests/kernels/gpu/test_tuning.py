"""Tuning on a GPU: every cut that is timed is right, what was fastest is what runs. Skipped where there is none."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels import torch as tk
from tapestry.kernels.convolution import tuned
from tapestry.kernels.convolution.recipes import PASSES, walk
from tapestry.kernels.cost.contenders import contenders
from tapestry.kernels.cost.gpu import described_gpu
from tapestry.kernels.models import tuning
from tapestry.kernels.runtime.device import properties
from tapestry.kernels.tensors import convolution_calls, library
from tapestry.kernels.tensors.geometry import Geometry

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SOURCE = """
import torch
from torch import nn

def made():
    torch.manual_seed(0)
    steps = {"padding": 1, "bias": False}
    layers = [
        nn.Conv2d(96, 96, 3, groups=12, padding=1), nn.ReLU(), nn.Conv2d(96, 96, 3, groups=4, stride=2, **steps),
        nn.ReLU(), nn.Conv2d(96, 96, 5, groups=96, padding=2, bias=False), nn.ReLU(),
        nn.Conv2d(96, 96, 3, groups=4, **steps), nn.Conv2d(96, 96, 3, groups=32, **steps),
    ]
    return nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
"""
LATER = """
import torch
from tapestry.kernels import torch as tk
from tapestry.kernels.tensors import convolution_calls
from tapestry.kernels.convolution import tuned
model = made()
print(len(tk.replace_convolutions(model).taken))
asked = []
known = tuned.left
def left(*given):
    asked.append(known(*given))
    return asked[-1]
tuned.left = left
x = torch.randn(16, 96, 28, 28, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
with torch.autocast("cuda", torch.bfloat16):
    y = model(x)
y.float().square().mean().backward()
print(len(asked), all(one is not None for one in asked))
"""


@pytest.fixture(autouse=True)
def planned_anew(folder: Path) -> Iterator[None]:
    convolution_calls.forget()
    yield
    convolution_calls.forget()


def _model() -> nn.Module:
    found: dict[str, object] = {}
    exec(SOURCE, found)
    model = found["made"]()  # type: ignore[operator]
    assert isinstance(model, nn.Module)
    return model


def _step(model: nn.Module, x: Tensor, lowered: bool = True) -> list[Tensor]:
    with torch.autocast("cuda", torch.bfloat16, enabled=lowered):
        y = model(x)
    return [y.detach(), *torch.autograd.grad(y.float().square().mean(), (x, *model.parameters()))]


def test_what_was_fastest_runs_and_is_right() -> None:
    model, x = _model(), torch.randn(16, 96, 28, 28, device="cuda").to(memory_format=torch.channels_last)
    x.requires_grad_()
    expected, by_cudnn = _step(copy.deepcopy(model), x, lowered=False), _step(copy.deepcopy(model), x)
    tk.replace_convolutions(model)
    with torch.autocast("cuda", torch.bfloat16):
        report = tk.tune(model, x, cuts=4)
    assert {row.what for row in report.passes} == set(PASSES)
    assert len(report.passes) == 15
    gpu = described_gpu(properties(0))
    for row in report.passes:
        assert row.refused == (), row
        assert 0 < row.tuned <= row.untuned, row
        assert row.cudnn > 0, row
        assert convolution_calls.left_on(row.problem, row.what, gpu) is row.left, row
        if row.what == "weight_gradient":
            assert tuned.gradient_cut(row.problem, gpu) is not None
        elif row.problem.narrow:
            assert tuned.cut(walk(row.problem, row.what).problem, row.what, gpu) is not None
        else:
            assert tuned.way(row.problem, row.what, gpu, fused=False) is not None
    for found, wanted, theirs in zip(_step(model, x), expected, by_cudnn, strict=True):
        ours, usual = ((one.float() - wanted).norm() for one in (found, theirs))
        assert float(ours) <= 1.5 * float(usual) + 1e-3 * float(wanted.norm())
    first = report.passes[0]
    assert len(contenders(first.problem, first.what, gpu, 4)) == first.cuts
    made = subprocess.run(
        [sys.executable, "-c", SOURCE + LATER], capture_output=True, text=True, check=False, timeout=300
    )
    assert made.stdout.split()[-1:] == ["True"], made.stdout + made.stderr


@pytest.mark.parametrize("theirs", [1.0, 3.0])
def test_whoever_the_clock_says_is_faster_computes(monkeypatch: pytest.MonkeyPatch, theirs: float) -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=8, bias=False)).cuda().bfloat16()
    x = torch.randn(8, 64, 28, 28, device="cuda").bfloat16().to(memory_format=torch.channels_last)
    tk.replace_convolutions(model)
    before, seen = model(x), []
    by_cudnn = tuning.Operands.by_cudnn

    def noted(operands: tuning.Operands) -> tuning.Call:
        seen.append(by_cudnn(operands))
        return seen[-1]

    monkeypatch.setattr(tuning.Operands, "by_cudnn", noted)
    monkeypatch.setattr(tuning.Clock, "us", lambda clock, call: theirs if call in seen else 2.0)
    (row,) = tk.tune(model, x, passes=("forward",), cuts=2).passes
    assert (row.tuned, row.cudnn, row.left) == (2.0, theirs, theirs < 2.0)
    computed: list[int] = []
    by_torch = library.forward
    monkeypatch.setattr(library, "forward", lambda *given: computed.append(1) or by_torch(*given))
    with torch.no_grad():
        y = convolution_calls.forward(x, model[0].weight, None, Geometry((1, 1), (1, 1, 1, 1), (1, 1), 8))
    assert len(computed) == row.left
    for made in (y, model(x)):
        torch.testing.assert_close(made.float(), before.float(), rtol=0.02, atol=0.02)
