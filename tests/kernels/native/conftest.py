"""The extension, compiled here, serving CPU tensors with a driver of Python's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from torch import Tensor, nn

from tapestry.kernels.convolution import choices, prepare
from tapestry.kernels.runtime import device
from tapestry.kernels.runtime.array import identities
from tapestry.kernels.tensors import autograd, convolution_calls, native_calls
from tapestry.kernels.tensors import extension as building

from ..tensors.test_autograd import H200
from .driver import BY_TORCH, STREAM, Driver, Prepare, described


@pytest.fixture(scope="session")
def extension() -> Any:
    if shutil.which(building.compiler()) is None:
        pytest.skip("there is no C++ compiler")
    return building.loaded(building.made())


@pytest.fixture
def driver(extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """CPU tensors are taken for CUDA's, and kernels compute as torch does."""
    found = Driver()
    kernels = Prepare(found)
    monkeypatch.setattr(convolution_calls, "array", described)
    monkeypatch.setattr(convolution_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(device, "properties", lambda number: H200)
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: False)
    monkeypatch.setattr(autograd, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(convolution_calls, "_plans", {})
    for name in ("forward", "input_gradient", "weight_gradient"):
        monkeypatch.setattr(prepare, f"{name}_steps", getattr(kernels, name))
    monkeypatch.setattr(native_calls, "_taken", True)
    monkeypatch.setattr(native_calls, "convolve", None)
    monkeypatch.setattr(native_calls, "_extension", None)
    monkeypatch.setattr(native_calls, "_begun", True)
    for kind in (Tensor, nn.Parameter):
        monkeypatch.setitem(identities, kind, identities[kind])
    native_calls.serve(extension, "cpu", found.functions)
    yield found
    extension.forget_convolutions()
    extension.serve("cpu", found.functions, *BY_TORCH)  # operators of graphs are computed there from some test on


@pytest.fixture
def taken(driver: Driver, extension: Any) -> Driver:
    """The operators of graphs are computed by the extension, or as before in Python, for the rest of this process."""
    extension.serve("cpu", driver.functions, *BY_TORCH)
    if not native_calls.__dict__.setdefault("_taken_by_tests", False):
        extension.take_over()
        native_calls.__dict__["_taken_by_tests"] = True
    return driver
