"""`tapestry bench pack`: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.minimalloc import read_buffers

Tapestry = Callable[..., Any]


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "small.96.csv"
    path.write_text("id,lower,upper,size\na,0,2,64\nb,1,3,32\nc,2,4,64\n")
    return path


def test_packs_and_writes_the_offsets(tapestry: Tapestry, problem: Path, tmp_path: Path) -> None:
    solution = tmp_path / "solution.csv"
    ended = tapestry("bench", "pack", problem, "--json", "--solution-out", solution)
    assert ended.code == 0
    result = json.loads(ended.out)
    assert (result["status"], result["capacity"], result["peak"], result["lower_bound"]) == ("packed", 96, 96, 96)
    with solution.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "lower", "upper", "size", "offset"]
    assert check_packing(read_buffers(problem), {r["id"]: int(r["offset"]) for r in rows}, 96) == []


def test_what_cannot_be_packed_exits_3_with_the_witness(tapestry: Tapestry, problem: Path, tmp_path: Path) -> None:
    solution = tmp_path / "solution.csv"
    ended = tapestry("bench", "pack", problem, "--capacity", 95, "--solution-out", solution)
    assert ended.code == 3
    assert "96 units alive at 1, capacity 95: a, b" in ended.err
    assert not solution.exists()


def test_a_bad_file_exits_2_with_the_line(tapestry: Tapestry, problem: Path) -> None:
    problem.write_text(problem.read_text() + "d,5,5,1\n")
    ended = tapestry("bench", "pack", problem)
    assert ended.code == 2
    assert "small.96.csv:5" in ended.err
