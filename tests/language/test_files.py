"""Files appear whole or not at all, and nothing is lost that was not meant to be."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tapestry.errors import UsageError
from tapestry.files import demand_writable, write_file


def test_content_replaces_content_where_it_may(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_file(path, "ölder")
    with pytest.raises(UsageError, match=r"plan\.json: is there already\n  hint   --force replaces it"):
        write_file(path, b"newer")
    assert path.read_bytes() == "ölder".encode()
    write_file(path, b"new", b"er", replace=True)
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    write_file(tmp_path / "a", "a")
    (tmp_path / "b").write_text("b", encoding="utf-8")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    write_file(path, "old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write_file(path, "new", replace=True)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_half_way_leaves_nothing(tmp_path: Path) -> None:
    class Interrupting(str):
        __slots__ = ()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "plan.json", "half", Interrupting())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    for write in (write_file, demand_writable):
        with pytest.raises(UsageError, match=r"none/plan\.json: cannot be written: No such file"):
            write(tmp_path / "none" / "plan.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
def test_a_device_stays_a_device(replace: bool) -> None:
    write_file("/dev/null", "gone", replace=replace)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(UsageError, match="/dev/full: cannot be written: No space left on device"):
        write_file("/dev/full", "x", replace=replace)


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_and_what_it_points_to_stay(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    if there:
        target.write_text("kept", encoding="utf-8")
    for replace in (False, True):
        with pytest.raises(UsageError, match="link: is a symbolic link, which is not written through"):
            write_file(link, "new", replace=replace)
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "kept" if there else not target.exists()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: it is a folder"):
        write_file(tmp_path, "x", replace=True)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe", list[str]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text(encoding="utf-8")))
    reader.start()
    write_file(path, "through ", "it")
    reader.join()
    assert read == ["through it"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_file_that_comes_between_the_look_and_the_write_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    made = os.link

    def late(scratch: Path, target: Path) -> None:
        path.write_text("theirs", encoding="utf-8")
        made(scratch, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(UsageError, match="is there already"):
        write_file(path, "ours")
    assert path.read_text(encoding="utf-8") == "theirs"
    assert list(tmp_path.iterdir()) == [path]
