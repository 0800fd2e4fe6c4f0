"""docs/models.md says first what its tables say in full, and shows it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")
# What the summary's rows are of: the table's title, and the column that holds how many times as fast.
COLUMNS = {
    "training, in a CUDA graph": ("Training, forward", (7, 9, 11)),
    "training, eager": ("Training, forward", (15, 17, 19)),
    "training, compiled": ("Training, forward", (22,)),
    "training, compiled, in a CUDA graph": ("Training, forward", (25,)),
    "fused, in a CUDA graph": ("Inference, ms", (3,)),
    "fused, eager": ("Inference, ms", (6,)),
    "under autocast, eager, layers replaced alone": ("Inference, ms", (13,)),
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(title: str) -> list[list[str]]:
    _, rest = PAGE.split(title, 1)
    lines = rest[rest.index("\n| ---") :].split("\n")[2:]
    return [cells(line) for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]]


@pytest.mark.parametrize("row", COLUMNS)
def test_the_least_and_the_most_are_those_of_the_tables(row: str) -> None:
    title, columns = COLUMNS[row]
    said = next(cells(line) for line in PAGE.split("\n") if line.startswith(f"| {row} |"))[1:]
    for summary, column in zip(said, columns, strict=False):
        times = [float(line[column]) for line in table(title) if line[column] not in ("-", "")]
        least, most = (float(part.split(" ")[0]) for part in summary.split(" to "))
        assert (least, most) == (min(times), max(times))


def test_the_picture_is_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs-figures` draws it again."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    drawn = runpy.run_path(str(ROOT / "benchmarks/model_chart.py"))["drawn"](PAGE)
    assert drawn == (ROOT / "docs/img/models.svg").read_text(encoding="utf-8")
    for row in table("Training, forward"):
        assert f">{row[0]}</text>" in drawn
        assert f">{float(row[10]):.1f} ms for {float(row[5]):.1f}</text>" in drawn
