"""The CuPy device without a GPU: its kernels run on the host."""

from __future__ import annotations

import pytest

from tapestry.workers import register_device
from tapestry.workers.cupy.device import CupyDevice

from .host_machine import HostMachine


class OnHost(CupyDevice):
    """What tests open by name. The workspaces of plans for real GPUs are large: see `test_workspace`."""

    works_in_plan = False

    def __init__(self) -> None:
        super().__init__(HostMachine())


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the device whose kernels run here."""
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("on_host", f"{OnHost.__module__}:OnHost")
    return "on_host"


@pytest.fixture
def machine(on_host: str, monkeypatch: pytest.MonkeyPatch) -> HostMachine:
    """The machine of the device that "on_host" opens."""
    found = HostMachine()
    monkeypatch.setattr(OnHost, "__init__", lambda self: super(OnHost, self).__init__(found))
    return found
