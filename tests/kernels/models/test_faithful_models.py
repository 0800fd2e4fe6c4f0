"""benchmarks/faithful_models.py finds what fusing changes, and nothing where it changes nothing."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "faithful_models.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


class Model(nn.Module):
    """A block whose norm, residual and activation are one when it is fused."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU()
        self.drop, self.head = nn.Dropout(0.5), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.act(self.norm(self.conv(x)) + x)
        return {"features": y, "out": self.head(self.drop(y))}


IMAGES = torch.randn(2, 8, 9, 10, dtype=torch.float64).contiguous(memory_format=torch.channels_last)


def test_a_model_is_what_it_was(script: dict[str, Any]) -> None:
    found = script["compared"](Model(), IMAGES)
    assert found.beyond() == []
    assert found.inference > 0  # batch norms are folded in f32


def test_what_differs_is_found(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(model: nn.Module) -> None:
        model.conv.weight.data[0] += 1e-6  # type: ignore[union-attr]

    monkeypatch.setitem(script["compared"].__globals__, "fuse_for_training", changed)
    assert {"results", "gradients", "evaluated"} <= set(script["compared"](Model(), IMAGES).beyond())


def test_lines_and_exit_codes(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def created(name: str) -> tuple[nn.Module, Tensor]:
        if name == "none":
            raise ValueError("no such model")
        return Model(), IMAGES

    monkeypatch.setitem(script["main"].__globals__, "created", created)
    assert script["main"](["one"]) == 0
    assert script["main"](["one", "none"]) == 1
    said = capsys.readouterr().out
    assert "none: ValueError: no such model" in said
    assert said.endswith("1 models compared, 1 of all wrong\n")
