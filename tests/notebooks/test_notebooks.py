"""Every notebook runs from top to bottom, says what its text says, and is committed without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def ran(path: Path) -> Any:
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    return book


def printed(book: Any) -> str:
    return "".join(o.text for cell in book.cells if cell.cell_type == "code" for o in cell.outputs if "text" in o)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert all(not cell.outputs and cell.execution_count is None for cell in book.cells if cell.cell_type == "code")


def test_plan_and_see() -> None:
    book = ran(FOLDER / "01-plan-and-see.ipynb")
    pictures = [o.data for cell in book.cells if cell.cell_type == "code" for o in cell.outputs if "data" in o]
    assert [set(data) for data in pictures] == [{"image/svg+xml", "text/plain"}] * 2
    assert "moved by all-to-all" in pictures[1]["image/svg+xml"]
    said = printed(book)
    assert "{'t': 'mesh0'}" in said
    assert "0.00 GiB moved, 5.3" in said
    assert "no sharding fits in 256 MiB of hbm on each device" in said
    assert "largest error" in said


def test_rewrites() -> None:
    said = printed(ran(FOLDER / "02-rewrites.ipynb"))
    assert "streaming_softmax at matmul_4" in said
    assert "looking 1 ahead: 2575 -> 2575 million" in said
    assert "looking 2 ahead: 2575 -> 1800 million" in said
    assert "proved on " in said
    assert "triple computes something else" in said


def test_train() -> None:
    said = printed(ran(FOLDER / "03-train.ipynb"))
    assert "1 devices: 0 bytes moved a step" in said
    assert "the same to 1e-5: True" in said


def test_debug_a_plan() -> None:
    said = printed(ran(FOLDER / "06-debug-a-plan.ipynb"))
    assert "ok: 2 ranks, 2 operations" in said
    assert "missing: task 1, rank 1, tensor image: blur reads buffer image where nothing was written" in said
    assert "['missing', 'predicted', 'race']" in said
    assert "CheckFailed: the plan fails its check: race" in said
    assert "overlap: task 1, rank 0" in said
    assert "mesh     2 -> 4" in said
