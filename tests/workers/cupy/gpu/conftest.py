"""What tests on a GPU that others use too need: to be alone with it, or to leave a process that lost it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .executed import gpus


@pytest.fixture
def alone() -> None:
    """No other test runs meanwhile: for those that take, or measure, all of a GPU."""


@pytest.fixture(autouse=True)
def _a_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process in which a kernel failed can use its GPU no more: it ends, and pytest-xdist goes on in another."""
    with Path(tempfile.gettempdir(), f"tapestry-gpu-tests-{os.getuid()}").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if "alone" in request.fixturenames else fcntl.LOCK_SH)
        yield
        if gpus() and "PYTEST_XDIST_WORKER" in os.environ and not _can_be_used():
            os._exit(70)


def _can_be_used() -> bool:
    """Whether the GPU answers this process, or was never asked, and no context is to be made for the question."""
    from cupy.cuda import driver, runtime

    try:
        if not driver.ctxGetCurrent():
            return True
    except driver.CUDADriverError:  # nothing was initialised
        return True
    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError:
        return False
    return True
