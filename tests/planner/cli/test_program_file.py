"""Programs out of Python files: what is found, and the one message for what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tapestry.errors import UsageError
from tapestry.planner.cli.program_file import load_program
from tapestry.program import Program

NET = """
import tapestry as tp
from tapestry import Tensor, f32

@tp.program
def net(x: f32[Tensor, "n m"], *, scale: float = 2.0, twice: bool = False) -> Tensor:
    y = x * scale
    return y + y if twice else y

@tp.program
def broken(x: f32[Tensor, "n m"]) -> Tensor:
    return x + tp.sum(x, 7)

@tp.program
def crashing(x: f32[Tensor, "n m"]) -> Tensor:
    return {}["nothing"]

bound = net.bind(n=2, m=3)
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET, encoding="utf-8")
    return path


def test_a_program_is_bound_with_the_settings(file: Path) -> None:
    program = load_program(f"{file}:net", {"n": "4", "m": "3", "twice": "true"})
    assert program.tensor("x").shape == (4, 3)
    assert len(program.operations) == 2


def test_a_bound_program_is_taken_as_it_is(file: Path) -> None:
    assert isinstance(load_program(f"{file}:bound"), Program)
    with pytest.raises(UsageError, match="nothing left to set"):
        load_program(f"{file}:bound", {"n": "4"})


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_the_net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "other.py").write_text("from beside_the_net import net\n", encoding="utf-8")
    before = list(sys.path)
    assert load_program(f"{tmp_path / 'other.py'}:net", {"n": "1", "m": "1"}).name == "net"
    assert sys.path == before


def test_what_a_file_prints_does_not_reach_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loud.py").write_text(f"print('hello')\n{NET}", encoding="utf-8")
    load_program(f"{tmp_path / 'loud.py'}:bound")
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("nett", {}, ["no program 'nett'", "did you mean 'net'?", "broken, crashing, net"]),
        ("number", {}, ["'number' is not a program but of type int"]),
        ("net", {}, ["needs   n, m"]),
        ("net", {"n": "4"}, ["needs   m"]),
        ("net", {"n": "4", "m": "3", "k": "1"}, ["'k'"]),
        ("net", {"n": "four", "m": "3"}, ["n=four is not an integer"]),
        ("net", {"n": "-1", "m": "3"}, ["n=-1"]),
        ("net", {"n": "4", "m": "3", "twice": "maybe"}, ["twice=maybe is not true or false"]),
        ("broken", {"n": "4", "m": "3"}, ["7"]),
        ("crashing", {"n": "4", "m": "3"}, ["net.py:16", "KeyError", "'nothing'"]),
    ],
)
def test_programs_that_are_not_to_be_had(file: Path, name: str, settings: dict[str, str], said: list[str]) -> None:
    with pytest.raises(UsageError) as failed:
        load_program(f"{file}:{name}", settings)
    assert [part for part in said if part not in str(failed.value)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nx = = 2\n", [":2", "SyntaxError"]),
        ("import math\n\nmath.nothing\n", [":3", "AttributeError", "nothing"]),
        ("import no_such_module\n", [":1", "ModuleNotFoundError", "no_such_module"]),
        ("def f():\n    raise ValueError('odd')\n\nf()\n", [":2", "ValueError", "odd"]),
        ("import sys\nsys.exit(3)\n", [":2", "SystemExit", "3"]),
        ("import json\njson.loads('{')\n", [":2", "JSONDecodeError"]),
        ("from tapestry import UsageError\nraise UsageError('mine')\n", [":2", "mine"]),
        ("x = 1\n", ["no program 'net'", "the file holds no program"]),
        ("x = '\0'\n", ["does not import"]),
    ],
)
def test_files_that_do_not_import(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as failed:
        load_program(f"{path}:net")
    assert [part for part in [str(path), *said] if part not in str(failed.value)] == []


@pytest.mark.parametrize("spec", ["", "net.py", "net.py:", ":net"])
def test_texts_that_name_no_program(spec: str) -> None:
    with pytest.raises(UsageError, match=r"FILE\.py:PROGRAM"):
        load_program(spec)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such program file"):
        load_program(f"{tmp_path / 'none.py'}:net")
    (tmp_path / "net.txt").write_text(NET, encoding="utf-8")
    with pytest.raises(UsageError, match="not a Python file"):
        load_program(f"{tmp_path / 'net.txt'}:net")
