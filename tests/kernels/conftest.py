"""What the host compiler makes for tests of the kernels is kept, and shared by processes and runs."""

from __future__ import annotations

import pytest

from . import host_compiler


@pytest.fixture(scope="session", autouse=True)
def _old_libraries() -> None:
    host_compiler.forget()
