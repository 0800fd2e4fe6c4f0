"""Exit codes and messages, whatever goes wrong inside a command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tapestry.errors import CheckFailed, Infeasible, TapestryError, TimeLimit, UsageError
from tapestry.planner.cli.guard import guarded

Tapestry = Callable[..., Any]


def failing(error: BaseException) -> Callable[[], None]:
    @guarded
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TapestryError("t"), 1),
        (CheckFailed("c"), 1),
        (UsageError("u"), 2),
        (Infeasible("i"), 3),
        (TimeLimit("l"), 4),
        (KeyboardInterrupt(), 130),
        (typer.Exit(7), 7),
        (ZeroDivisionError("z"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPESTRY_DEBUG", raising=False)
    with pytest.raises(typer.Exit) as left:
        failing(error)()
    assert left.value.exit_code == code


def test_what_is_not_expected_is_one_line_that_asks_for_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAPESTRY_DEBUG", raising=False)
    with pytest.raises(typer.Exit):
        failing(ValueError("two\nlines"))()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "error: internal: ValueError: two lines (a bug: please report it; TAPESTRY_DEBUG=1 shows where it arose)"
    ]


def test_debugging_lets_errors_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPESTRY_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())()


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["machine", "nonsense"], ["machine", "show"], ["machine", "list", "--nonsense"]]
)
def test_a_wrong_command_line(tapestry: Tapestry, arguments: list[str]) -> None:
    ended = tapestry(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Error" in ended.err


def test_help_loads_neither_solvers_nor_arrays() -> None:
    code = (
        "import sys\nsys.argv = ['tapestry', '--help']\nfrom tapestry.planner.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print([m for m in ('torch', 'ortools', 'cupy', 'islpy', 'numpy', 'scipy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    assert "Usage: tapestry" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


SLEEPY = """
import sys, time
try:
    print("started", flush=True)
    time.sleep(60)
finally:
    print("cleaned up", flush=True)
"""


def test_a_command_that_is_terminated_cleans_up(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY, encoding="utf-8")
    command = [sys.executable, "-c", "from tapestry.planner.cli import main; main()"]
    command += ["plan", str(tmp_path / "sleepy.py") + ":net", "--machine", "cpu-4", "--mesh", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # a program's words go to stderr
        assert process.stderr is not None
        assert process.stderr.readline() == "started\n"
        process.terminate()
        assert process.stderr.read() == "cleaned up\nerror: terminated\n"
    assert process.returncode == 143
