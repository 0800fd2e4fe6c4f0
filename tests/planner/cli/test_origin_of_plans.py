"""`tapestry plan --rewrites` and what `tapestry check` says of the program that was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tapestry = Callable[..., Any]

NET = """
import tapestry as tp
from tapestry import Tensor, f32

@tp.program
def net(x: f32[Tensor, "n m"], *, by: int = 1) -> Tensor:
    return tp.exp(x + by)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:net"


@pytest.fixture
def plan_file(tapestry: Tapestry, net: str, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    ended = tapestry("plan", net, "n=64", "m=8", "--machine", "cpu-4", "--mesh", "2", "--rewrites", "-o", path)
    assert ended.code == 0
    assert "2 operations as written are 1: 1 fuse_pointwise" in ended.out
    return path


def test_check_says_what_it_proved_and_what_not(tapestry: Tapestry, plan_file: Path) -> None:
    ended = tapestry("check", plan_file)
    assert ended.code == 0
    assert "the embedded program is proved, not that it is the one written" in ended.out


def test_given_the_program_that_is_proved_too(tapestry: Tapestry, plan_file: Path, net: str) -> None:
    ended = tapestry("check", plan_file, "--program", net, "--set", "n=64", "--set", "m=8")
    assert ended.code == 0
    assert "made again, 1 rewrites give the embedded program; executed, both compute the same" in ended.out
    found = json.loads(tapestry("check", plan_file, "--program", net, "--set", "n=64", "--set", "m=8", "--json").out)
    assert found["origin"].startswith("the program as written")


def test_another_program_is_refused(tapestry: Tapestry, plan_file: Path, net: str) -> None:
    ended = tapestry("check", plan_file, "--program", net, "--set", "n=64", "--set", "m=8", "--set", "by=2")
    assert ended.code == 1
    assert "the plan was not made from this program" in ended.err
