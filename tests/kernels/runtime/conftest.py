"""Every test compiles into a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tapestry.kernels.runtime import compiler


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh directory for compiled kernels, and a process that remembers none."""
    folder = tmp_path / "kernels"
    monkeypatch.setenv("TAPESTRY_CACHE", str(folder))
    compiler.forget()
    yield folder
    compiler.forget()
