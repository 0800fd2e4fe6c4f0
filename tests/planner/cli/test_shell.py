"""What a shell user expects: versions, short help, completion, streams in place of files, errors as data."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tapestry as tp
from tapestry.planner import load_plan

from .conftest import Tapestry

NET = Path(__file__).parents[3] / "examples" / "mlp.py"
SET = ("--set", "n=16", "d=8", "hidden=8", "k=4", "--machine", "cpu-4", "--mesh", "2")


def piped(command: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, with `tapestry` as the command."""
    line = f'set -o pipefail; tapestry() {{ {sys.executable} -m tapestry "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


def test_version_and_short_help(tapestry: Tapestry) -> None:
    assert tapestry("--version").out == f"tapestry {tp.__version__}\n"
    assert tapestry("-h").out == tapestry("--help").out
    assert "--machine" in tapestry("plan", "-h").out


def test_shells_complete_it(tapestry: Tapestry) -> None:
    assert "--install-completion" in tapestry("--help").out


@pytest.mark.long
def test_a_plan_goes_through_a_pipe() -> None:
    sizes = " ".join(SET)
    found = piped(f"tapestry plan {NET}:forward {sizes} -o - | tee >(tapestry explain - >/dev/null) | tapestry check -")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("ok: 2 ranks")
    assert "predicted" in found.stderr  # the summary does not get in the way


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    found = piped(f"tapestry plan {NET}:forward {' '.join(SET)} --json | head -c 10")
    assert found.stdout == '{\n  "forma'
    assert "Traceback" not in found.stderr


def test_a_drawing_on_stdout_is_nothing_else(tapestry: Tapestry, tmp_path: Path) -> None:
    assert tapestry("plan", f"{NET}:forward", *SET, "-o", tmp_path / "plan.json").code == 0
    svg = tapestry("show", tmp_path / "plan.json", "--svg", "-").out
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")


def test_stdin_that_is_no_plan_is_one_error(tapestry: Tapestry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    found = tapestry("explain", "-")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: stdin: ")


def test_stdout_takes_one_document(tapestry: Tapestry) -> None:
    found = tapestry("plan", f"{NET}:forward", *SET, "-o", "-", "--json")
    assert found.code == 2
    assert "both write to stdout" in found.err


def test_an_error_is_json_where_json_was_asked_for(tapestry: Tapestry) -> None:
    found = tapestry("explain", "none.json", "--json")
    said = json.loads(found.out)
    assert (said["error"], said["exit_code"], said["where"]) == ("UsageError", found.code, "none.json")
    assert said["what"] in found.err


def test_a_plan_written_to_stdout_is_the_plan(tapestry: Tapestry, tmp_path: Path) -> None:
    ended = tapestry("plan", f"{NET}:forward", *SET, "-o", "-")
    (tmp_path / "plan.json").write_text(ended.out)
    assert load_plan(tmp_path / "plan.json").check().ok
