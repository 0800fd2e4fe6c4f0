"""What the host compiler makes for tests of the kernels is kept, and shared by processes and runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tapestry.kernels.runtime import kept

from . import host_compiler
from .processes import another_process


@pytest.fixture(scope="session", autouse=True)
def _old_libraries() -> None:
    host_compiler.forget()


@pytest.fixture(autouse=True)
def _nothing_chosen_is_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests change what chooses: what they make of it is not for other processes to read."""
    if "choices_on_disk" not in request.fixturenames:
        monkeypatch.setattr(kept, "_store", lambda: None)


@pytest.fixture
def choices_on_disk() -> None:
    """Of tests that set a directory of their own."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choices_on_disk: None) -> Iterator[Path]:
    """Where what is chosen, or timed, in a test is kept: there is nothing there yet."""
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path))
    another_process()
    yield tmp_path
    another_process()
