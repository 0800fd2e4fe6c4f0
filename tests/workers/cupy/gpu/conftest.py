"""A process in which a kernel has failed can use its GPU no more: it ends, so that pytest-xdist goes on in another."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .executed import gpus


@pytest.fixture(autouse=True)
def _a_gpu_that_can_be_used() -> Iterator[None]:
    yield
    if gpus() and "PYTEST_XDIST_WORKER" in os.environ:
        from cupy.cuda import runtime

        try:
            runtime.deviceSynchronize()
        except runtime.CUDARuntimeError:
            os._exit(70)
