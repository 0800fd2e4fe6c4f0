"""CuPy's low-level bindings, imported when they are first asked for, and what is said when they are missing."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ..errors import MissingCuPy, MissingGPU, MissingNVRTC

_INSTALL = 'pip install "tapestry-planner[cuda13]" (driver 580 or newer) or "tapestry-planner[cuda12]"'


def _binding(name: str) -> Any:
    try:
        return importlib.import_module(f"cupy_backends.cuda.{name}")
    except ImportError as error:
        raise MissingCuPy(
            "kernels are compiled and launched through CuPy",
            expected="the module cupy_backends (installed with CuPy)",
            came=f"{type(error).__name__}: {error}",
            hint=_INSTALL,
        ) from error


@functools.cache
def nvrtc() -> Any:
    """The run-time compiler's bindings; needs no GPU. Raises `MissingCuPy` or `MissingNVRTC`."""
    module = _binding("libs.nvrtc")
    try:
        module.getVersion()
    except Exception as error:  # CuPy loads the library at the first call, and says why not in several ways
        raise MissingNVRTC(
            "the run-time compiler cannot be loaded",
            expected="NVRTC of the CUDA version that CuPy was built for",
            came=f"{type(error).__name__}: {error}",
            hint=_INSTALL,
        ) from error
    return module


@functools.cache
def runtime() -> Any:
    """The CUDA runtime's bindings, on a machine with a usable GPU. Raises `MissingCuPy` or `MissingGPU`."""
    module = _binding("api.runtime")
    try:
        count = module.getDeviceCount()
    except Exception as error:
        raise _no_gpu(f"{type(error).__name__}: {error}") from error
    if not count:
        raise _no_gpu("no device")
    return module


def _no_gpu(came: str) -> MissingGPU:
    return MissingGPU(
        "no GPU can be used here",
        expected="an NVIDIA GPU and its driver, visible to this process",
        came=came,
        hint="check nvidia-smi and CUDA_VISIBLE_DEVICES; kernels can be compiled, not run, without one",
    )


@functools.cache
def driver() -> Any:
    """The driver's bindings, on a machine with a usable GPU. Raises as `runtime` does."""
    runtime()
    return _binding("api.driver")
