"""What commands write: every option that names a file goes by the same rules."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tapestry = Callable[..., Any]

NET = """
import tapestry as tp
from tapestry import Tensor, f32

@tp.program
def net(x: f32[Tensor, "n"]) -> Tensor:
    return tp.relu(x)
"""
PACKING = "id,lower,upper,size\na,0,2,4\nb,1,3,4\n"


def commands(folder: Path) -> list[tuple[Any, ...]]:
    net, plan = f"{folder / 'net.py'}:net", folder / "plan.json"
    return [
        ("plan", net, "--machine", "cpu-4", "--mesh", "4", "--set", "n=8", "-o"),
        ("run", plan, "--random", 0, "--outputs"),
        ("show", plan, "--html"),
        ("show", plan, "--svg"),
        ("show", plan, "--trace"),
        ("show", net, "--set", "n=8", "--svg"),
        ("bench", "pack", folder / "packing.csv", "--solution-out"),
    ]


@pytest.fixture
def folder(tapestry: Tapestry, tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "packing.csv").write_text(PACKING, encoding="utf-8")
    assert tapestry(*commands(tmp_path)[0], tmp_path / "plan.json").code == 0
    return tmp_path


def test_nothing_is_replaced_that_should_stay(tapestry: Tapestry, folder: Path) -> None:
    (folder / "there").write_text("kept", encoding="utf-8")
    (folder / "link").symlink_to(folder / "there")
    before = {path.name for path in folder.iterdir()}
    for command in commands(folder):
        ended = tapestry(*command, folder / "there")
        assert (ended.code, ended.out) == (2, ""), command
        assert "there: is there already" in ended.err
        for force in ([], ["--force"]):
            ended = tapestry(*command, folder / "link", *force)
            assert ended.code == 2, command
            assert "link: is a symbolic link" in ended.err
            assert tapestry(*command, "/dev/null", *force).code == 0, command
            assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
            assert "No space left on device" in tapestry(*command, "/dev/full", *force).err
        assert (folder / "there").read_text(encoding="utf-8") == "kept"
        assert {path.name for path in folder.iterdir()} == before


def test_force_replaces_a_file(tapestry: Tapestry, folder: Path) -> None:
    for command in commands(folder):
        (folder / "there").write_text("old", encoding="utf-8")
        ended = tapestry(*command, folder / "there", "--force")
        assert ended.code == 0, ended
        assert ended.err.endswith("there\n")
        assert (folder / "there").read_bytes() != b"old"
