"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry.errors import UsageError
from tapestry.planner.format import atomic


def test_content_replaces_content(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    atomic.write_atomically(path, "ölder")
    atomic.write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    atomic.write_atomically(tmp_path / "a", "a")
    (tmp_path / "b").write_text("b", encoding="utf-8")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    atomic.write_atomically(path, "old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left on device"):
        atomic.write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none/plan\.json: cannot be written: No such file"):
        atomic.write_atomically(tmp_path / "none" / "plan.json", "x")
    assert list(tmp_path.iterdir()) == []
