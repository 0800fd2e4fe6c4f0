"""Calls of torch tensors whose kernels run on the emulated machine, where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tapestry.kernels.normalization.stretches import Launch
from tapestry.kernels.runtime import device
from tapestry.kernels.tensors import autograd, native_calls

from . import host_compiler
from .normalization.launches import run as run_emulated


def kept_elsewhere() -> Any:
    """What autograd keeps comes back as `torch.autograd.graph.save_on_cpu` gives it, in torch's own order of memory."""
    return torch.autograd.graph.saved_tensors_hooks(
        lambda kept: torch.empty(kept.size(), dtype=kept.dtype).copy_(kept), lambda kept: kept
    )


class Emulated:
    """Launches of kernels of one source, each of which is noted by its name."""

    def __init__(self, make: Callable[[tuple[int, ...]], Any], kernels: Sequence[str], launched: list[str]) -> None:
        self.make, self.kernels, self.launched = make, kernels, launched

    def run(self, addresses: tuple[int, ...], _: int) -> None:
        kind, launches = self.make(addresses)
        machine = host_compiler.emulated(kind.source(), *self.kernels)
        for launch in launches:
            run_emulated(machine, launch, 3)
            self.launched.append(launch.kernel)


def emulated(monkeypatch: pytest.MonkeyPatch, calls: ModuleType, kernels: Sequence[str]) -> list[str]:
    """Have CPU tensors be direct, and the plans of a module of calls launch there; the names, as they are launched."""

    def prepared(kind: Any, launches: Sequence[Launch], _: int) -> tuple[Any, Sequence[Launch]]:
        return kind, launches

    host_compiler.compiler()
    names: list[str] = []
    moving = SimpleNamespace(launches=lambda make, _: Emulated(make, kernels, names))
    for name, stands_in in {"prepared": prepared, "moving": moving, "torch_stream": lambda _: 0, "_plans": {}}.items():
        monkeypatch.setattr(calls, name, stands_in)
    monkeypatch.setattr(native_calls, "_begun", True)  # no extension is made for calls without a GPU
    monkeypatch.setattr(autograd, "plain", lambda *tensors: True)
    monkeypatch.setattr(device, "properties", lambda number: SimpleNamespace(sms=2))
    return names
