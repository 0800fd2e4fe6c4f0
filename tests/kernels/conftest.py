"""Tests of the kernels share what the host compiler makes, in one process or in many."""

from __future__ import annotations

import os

import pytest

from . import host_compiler


@pytest.fixture(scope="session", autouse=True)
def _libraries_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "libraries"
    folder.mkdir(exist_ok=True)
    host_compiler.share(folder)
