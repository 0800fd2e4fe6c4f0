"""The contest's files: read as they are, refused with the place where they are wrong."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tapestry.planner.cli.app import app
from tapestry.planner.solvers.assign import FORBIDDEN, solve
from tapestry.planner.solvers.assign.check import check_choice
from tapestry.planner.solvers.assign.plain.iopddl import UnreadableFile, choice_text, read_choice, read_problem

RIGHT: dict[str, Any] = {
    "problem": {
        "name": "small",
        "nodes": {
            "intervals": [[0, 4], [2, 6], [5, 5]],
            "costs": [[3, 1], [0, 5, 2], [4]],
            "usages": [[2, 8], [3, 1, 2], [100]],
        },
        "edges": {
            "nodes": [[0, 1], [2, 0], [0, 1]],
            "costs": [[0, 1, 2, 3, 4, 5], [7, 10**18], [0, 0, 0, 0, 0, 10**19]],
        },
        "usage_limit": 9,
    }
}


def written(folder: Path, content: object) -> Path:
    path = folder / "problem.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path, RIGHT))
    assert [problem.costs[v].tolist() for v in range(3)] == [[3, 1], [0, 5, 2], [4]]
    assert problem.matrix(0).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert problem.matrix(1).tolist() == [[7, FORBIDDEN]]
    assert problem.matrix(2)[1, 2] == FORBIDDEN
    assert problem.limits.tolist() == [9]
    assert solve(problem).cost == 3 + 0 + 4 + 0 + 7


def test_gzip_makes_no_difference(tmp_path: Path) -> None:
    packed = tmp_path / "problem.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(RIGHT).encode()))
    assert solve(read_problem(packed)).choice == solve(read_problem(written(tmp_path, RIGHT))).choice


def set_at(*place: str | int) -> Callable[[object], Callable[[dict[str, Any]], None]]:
    def to(value: object) -> Callable[[dict[str, Any]], None]:
        def change(content: dict[str, Any]) -> None:
            inner: Any = content["problem"]
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value

        return change

    return to


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (set_at("nodes", "costs", 1)([1, 2]), "edge 0"),
        (set_at("nodes", "costs", 1)([]), "node 1"),
        (set_at("nodes", "usages", 1)([1, 2]), "usage 1"),
        (set_at("nodes", "usages", 1, 2)(-1), "usage 1"),
        (set_at("nodes", "usages")([[1, 2]]), "nodes.usages"),
        (set_at("nodes", "intervals")([[0, 1]]), "nodes.intervals"),
        (set_at("nodes", "intervals", 0)([5, 4]), "usage 0"),
        (set_at("nodes", "intervals", 0)([5]), "$.problem.nodes.intervals[0]"),
        (set_at("nodes", "costs", 0, 1)(float("nan")), "byte"),
        (set_at("nodes", "costs", 0, 1)(1.5), "$.problem.nodes.costs[0][1]"),
        (set_at("nodes", "costs", 0, 1)("1"), "$.problem.nodes.costs[0][1]"),
        (set_at("nodes", "costs", 0, 1)(None), "$.problem.nodes.costs[0][1]"),
        (set_at("nodes", "usages", 0, 1)(10**30), "nodes.usages"),
        (set_at("edges", "nodes", 1)([0, 3]), "edge 1"),
        (set_at("edges", "nodes", 1)([-1, 0]), "edge 1"),
        (set_at("edges", "nodes", 1)([0, 1, 2]), "$.problem.edges.nodes[1]"),
        (set_at("edges", "nodes")([[0, 1]]), "edges"),
        (set_at("edges", "costs", 1)([7]), "edge 1"),
        (set_at("usage_limit")(-1), "usage_limit"),
        (set_at("usage_limit")(float("inf")), "byte"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], place: str
) -> None:
    content = copy.deepcopy(RIGHT)
    change(content)
    with pytest.raises(UnreadableFile) as refused:
        read_problem(written(tmp_path, content))
    assert place in str(refused.value)
    assert "problem.json" in str(refused.value)


@pytest.mark.parametrize("key", ["nodes", "edges", "usage_limit"])
def test_a_missing_part_is_named(tmp_path: Path, key: str) -> None:
    content = copy.deepcopy(RIGHT)
    del content["problem"][key]
    with pytest.raises(UnreadableFile, match=key):
        read_problem(written(tmp_path, content))


def test_a_truncated_gzip_stream_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(RIGHT).encode())
    for length in (len(whole) // 2, len(whole) - 3, 12):
        path = tmp_path / "problem.json.gz"
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableFile, match="gzip stream is broken"):
            read_problem(path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_problem(tmp_path / "nothing.json")


def test_a_choice_survives_writing(tmp_path: Path) -> None:
    (tmp_path / "choice.json").write_text(choice_text((2, 0, 1)), encoding="utf-8")
    assert read_choice(tmp_path / "choice.json") == (2, 0, 1)


def test_the_command_writes_a_choice_that_stands(tmp_path: Path) -> None:
    path, out = written(tmp_path, RIGHT), tmp_path / "choice.json"
    result = CliRunner().invoke(app, ["bench", "iopddl", str(path), "--solution-out", str(out), "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert (printed["status"], printed["cost"], printed["bound"]) == ("optimal", 14, 14)
    assert check_choice(read_problem(path), read_choice(out)) == (14, [])


def test_the_command_says_why_there_is_no_choice(tmp_path: Path) -> None:
    content = copy.deepcopy(RIGHT)
    content["problem"]["usage_limit"] = 2
    result = CliRunner().invoke(app, ["bench", "iopddl", str(written(tmp_path, content))])
    assert result.exit_code == 3
    assert "at instant 2 2 nodes (node 0, node 1) need at least 3 of memory, of which there is 2" in result.stderr


def test_the_command_refuses_a_wrong_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "iopddl", str(written(tmp_path, "{"))])
    assert result.exit_code == 2
    assert "not JSON" in result.stderr
