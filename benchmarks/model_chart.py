"""`make docs-figures`: the training steps of docs/models.md as a picture, docs/img/models.svg.

It is drawn from the page's own table, so that both say the same.

    python benchmarks/model_chart.py [PAGE]
"""

from __future__ import annotations

import sys
from pathlib import Path

from chart import bar_chart  # type: ignore[import-not-found, unused-ignore]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
TITLE = "Training, forward and backward, ms"
COLUMNS = {"cuDNN": "graph: cuDNN", "convolutions alone": "ours", "everything": "everything"}  # the first of that name


def drawn(page: str) -> str:
    """The picture of a page's table of training steps in a CUDA graph."""
    head, _, *rows = page[page.index(TITLE) :].partition("\n|")[2].split("\n")
    names = _cells(head)
    shares, said = {}, {}
    for row in rows:
        if not row.startswith("|"):
            break
        cells = _cells(row)
        times = {name: float(cells[names.index(column)]) for name, column in COLUMNS.items()}
        shares[cells[0]] = {name: time / times["cuDNN"] for name, time in times.items()}
        said[cells[0]] = f"{times['everything']:.1f} ms for {times['cuDNN']:.1f}"
    return str(bar_chart("A step of training in a CUDA graph, one H200", shares, said))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def main() -> None:
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    (page.parent / "img" / "models.svg").write_text(drawn(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
