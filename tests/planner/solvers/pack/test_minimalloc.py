"""Reading and writing the benchmark's CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry.errors import UsageError
from tapestry.planner.solvers.pack import Buffer
from tapestry.planner.solvers.pack.minimalloc import capacity_of, read_buffers, solution_text

GOOD = "id,lower,upper,size\na,0,3,4\nb 2,3,9,0\n"


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "problem.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_reads_the_buffers_in_order(tmp_path: Path) -> None:
    expected = [Buffer("a", 0, 3, 4), Buffer("b 2", 3, 9, 0)]
    assert read_buffers(written(tmp_path, GOOD)) == expected
    assert read_buffers(written(tmp_path, GOOD.replace("\n", "\r\n"))) == expected


def test_writes_the_columns_and_the_offset(tmp_path: Path) -> None:
    buffers = read_buffers(written(tmp_path, GOOD))
    found = solution_text(buffers, {"b 2": 7, "a": 0})
    assert found == "id,lower,upper,size,offset\na,0,3,4,0\nb 2,3,9,0,7\n"


@pytest.mark.parametrize(
    ("text", "place", "complaint"),
    [
        ("", ":1", "header"),
        ("id,lower,upper\na,0,1\n", ":1", "header"),
        ("id,upper,lower,size\na,0,1,1\n", ":1", "header"),
        ("id,lower,upper,size\na,0,1\n", ":2", "3 fields"),
        ("id,lower,upper,size\na,0,1,2,3\n", ":2", "5 fields"),
        ("id,lower,upper,size\na,0,1,1\n\nb,0,1,1\n", ":3", "0 fields"),
        ("id,lower,upper,size\na,0,1,1\nb,0,1,-1\n", ":3", "negative"),
        ("id,lower,upper,size\na,4,4,1\n", ":2", "not below"),
        ("id,lower,upper,size\na,0,1,1.5\n", ":2", "size is not an integer"),
        ("id,lower,upper,size\na,x,1,1\n", ":2", "lower is not an integer"),
        ("id,lower,upper,size\na,0,nan,1\n", ":2", "upper is not an integer"),
        ("id,lower,upper,size\na,0,1,٣\n", ":2", "size is not an integer"),
        ("id,lower,upper,size\na,0,1,99999999999999999999\n", ":2", "18 digits"),
        ("id,lower,upper,size\n,0,1,1\n", ":2", "empty"),
        ("id,lower,upper,size\na,0,1,1\nb,0,1,1\na,5,6,1\n", ":4", "twice"),
        (b"id,lower,upper,size\n\xff,0,1,1\n", "", "cannot be read"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path: Path, text: str | bytes, place: str, complaint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=complaint) as refused:
        read_buffers(path)
    assert refused.value.where == f"{path}{place}"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_buffers(tmp_path / "none.csv")


@pytest.mark.parametrize(("name", "capacity"), [("A.1048576.csv", 1048576), ("A.7.csv", 7), ("A.csv", 1048576)])
def test_the_capacity_stands_in_the_name(name: str, capacity: int) -> None:
    assert capacity_of(Path(name)) == capacity
