"""How the extension is made, and launches at fixed addresses that it repeats."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tapestry.kernels.tensors import extension as building
from tapestry.kernels.tensors import native_calls

from .driver import STREAM, Driver, Launch
from .steps import operands


def test_calls_that_are_given_their_results(driver: Driver, extension: Any) -> None:
    """Fixed addresses: what is launched again without Python, and what a call is known by."""
    ran: list[tuple[int, ...]] = []
    launch = Launch(driver, lambda *given: ran.append(given), (5, 6, 7))
    again = native_calls.repeated([launch, Launch(driver, lambda *given: ran.append(given), (8, 9))])
    assert again is not None
    assert again(STREAM) == 0
    assert (ran, driver.ran) == ([(5, 6, 7), (8, 9)], ["native", "native"])
    driver.status = 700
    assert again(STREAM) == 700
    with pytest.raises(TypeError):
        again("a stream")
    x, _ = operands()
    known = extension.identity(x)
    assert known == extension.identity(x.detach()) == extension.identity(nn.Parameter(x))
    others = [x.clone(), x[:1], x.view(torch.float16), x.permute(0, 2, 3, 1), x.flatten()]
    assert len({known, *map(extension.identity, others)}) == 6
    for unfit in (x.to("meta"), x.to_sparse(), 3, None):
        with pytest.raises(TypeError):
            extension.identity(unfit)


def test_without_a_compiler_calls_stay_in_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path))
    for command, why in (("/no/such/compiler", "No such file"), ("false", "exit 1")):
        monkeypatch.setenv("CXX", command)
        with pytest.raises(building.NotBuilt, match=why):
            building.made()
    monkeypatch.setattr(native_calls, "_functions", tuple)
    monkeypatch.setattr(native_calls, "convolve", None)
    native_calls._serve(building.made)
    assert native_calls.convolve is None
    assert native_calls.state().startswith("off: false")
    with pytest.raises(building.NotBuilt):
        building.loaded(b"no library")
