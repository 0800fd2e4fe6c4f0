"""What the host compiler makes for tests of the kernels is kept, and shared by processes and runs."""

from __future__ import annotations

import pytest

from tapestry.kernels.runtime import kept

from . import host_compiler


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
