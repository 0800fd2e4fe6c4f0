"""What the CuPy device says where it cannot be: one typed error, and "auto" passes it over."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tapestry.errors import UsageError
from tapestry.kernels.errors import KernelError, MissingCuPy, MissingGPU, WrongDevice
from tapestry.kernels.runtime import bindings
from tapestry.kernels.runtime.device import device_count
from tapestry.planner.format import Compute, Transfer
from tapestry.workers.cupy import cuda
from tapestry.workers.cupy.cuda import CudaMachine
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.lanes import issued
from tapestry.workers.device import Bound
from tapestry.workers.devices import open_device
from tapestry.workers.faults import Deadlock, Place


def gpus() -> int:
    try:
        return device_count()
    except KernelError:
        return 0


@pytest.mark.skipif(gpus() > 0, reason="there is a GPU")
def test_no_gpu_is_said_once_and_typed() -> None:
    assert not CupyDevice.present()
    with pytest.raises(MissingGPU, match="no GPU can be used here") as caught:
        open_device("cupy")
    assert "nvidia-smi" in str(caught.value)


def test_without_cupy_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api.runtime", None)
    bindings.runtime.cache_clear()
    try:
        with pytest.raises(MissingCuPy, match=r"pip install .*cuda13"):
            open_device("cupy")
    finally:
        bindings.runtime.cache_clear()


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="more ranks on this host than it has GPUs") as caught:
        cuda._device()
    assert caught.value.sides == {"local rank": "3", "GPUs": 2}


def test_a_gpu_without_bf16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        name, capability = "an old one", (7, 5)

    class Api:
        def setDevice(self, number: int) -> None:
            return

    monkeypatch.setattr(cuda, "runtime", Api)
    monkeypatch.setattr(cuda, "_device", lambda: 0)
    monkeypatch.setattr(cuda, "device_architecture", lambda device: "sm_75")
    monkeypatch.setattr(cuda, "properties", lambda device: Old)
    with pytest.raises(WrongDevice, match=r"needs a newer GPU"):
        CudaMachine()


def bound(task: int, lane: str, *waits: int) -> Bound:
    made = Compute(task, lane, "op", "L0", (), "y", waits)
    return Bound(made, Place(0, task, "op", "y"), lambda: None)


def test_tasks_are_asked_for_behind_what_they_wait_for() -> None:
    tasks = [bound(0, "a", 2), bound(1, "a"), bound(2, "b"), bound(3, "b", 1), bound(4, "c", 99)]
    assert [one.task.id for one in issued(tasks)] == [2, 0, 1, 3, 4]


def test_transfers_are_asked_for_behind_what_they_wait_for() -> None:
    def moved(task: int, *waits: int) -> Bound:
        made = Transfer(task, "comm", "y", "shift", "y", "y>0", "L0", "L1", None, waits)
        return Bound(made, Place(0, task, "shift y", "y"), lambda: None)

    tasks = [bound(0, "a"), bound(1, "a"), bound(2, "a"), moved(3, 1), moved(4, 0), bound(5, "a", 3), moved(6)]
    assert [one.task.id for one in issued(tasks)] == [0, 1, 3, 4, 2, 5, 6]


def test_a_circle_of_waits_is_a_deadlock() -> None:
    circle: list[Any] = [bound(0, "a", 1), bound(1, "b", 0)]
    with pytest.raises(Deadlock, match="2 have not run"):
        issued(circle)
