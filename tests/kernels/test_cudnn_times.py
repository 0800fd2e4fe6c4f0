"""`benchmarks/cudnn_times.py` where there is no GPU: shares of processes, and what a second run adds."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tapestry.kernels.cost.cudnn import Layer

from ..files import ROOT, benchmark

LAYERS = [Layer(2, 8, 8 * number, 8, 3) for number in range(1, 5)]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, with four layers and a clock that says a layer's channels."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found, timing = benchmark("cudnn_times"), ModuleType("gpu_timing")
    timing.Pool, timing.median_us = lambda *given: None, lambda call, calls: float(call(0))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpu_timing", timing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(found, "layers", lambda: iter(LAYERS))
    monkeypatch.setattr(found, "calls_of", lambda layer, memory: [lambda i: layer.channels + 0.5] * 3)
    return found


def run(times: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["cudnn_times.py", *map(str, arguments)])
    assert times.main() == 0


def test_what_is_known_is_not_measured_again(
    times: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "times.json"
    times.write(path, [(LAYERS[1], [1.0, 2.0, 3.0])])
    run(times, monkeypatch, path)
    expected = {layer: [layer.channels + 0.5] * 3 for layer in LAYERS} | {LAYERS[1]: [1.0, 2.0, 3.0]}
    assert dict(times.rows_of(path)) == expected


def test_processes_share_the_layers(times: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, asked = tmp_path / "times.json", []

    def started(command: list[str]) -> Any:
        asked.append(command)
        run(times, monkeypatch, *command[2:])
        return type("Process", (), {"wait": lambda self: 0})()

    monkeypatch.setattr(times.subprocess, "Popen", started)
    run(times, monkeypatch, path, "--jobs", 3)
    assert len(asked) == 3
    assert {layer for layer, _ in times.rows_of(path)} == set(LAYERS)
    assert [file.name for file in tmp_path.glob("*.json")] == ["times.json"]


def test_layers_of_one_group(times: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, again = ([*islice(times.dense_layers(), 200)] for _ in range(2))
    assert found == again
    assert len(set(found)) == 200
    for layer in found:
        out = layer.channels_out or layer.channels
        assert layer.width == layer.channels
        assert layer.channels % 8 == out % 8 == 0
        assert max(layer.channels, out) <= 128
        assert layer.n * layer.extent**2 * max(layer.channels, out) <= times.MOST_ELEMENTS
    assert any(layer.channels_out for layer in found)
    path = tmp_path / "times.json"
    run(times, monkeypatch, path, "--dense", 5)
    assert [layer for layer, _ in times.rows_of(path)] == found[:5]
