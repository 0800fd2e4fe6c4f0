"""Every notebook runs from top to bottom, says what its text says, and is kept with the outputs of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from .course import FOLDER, NOTEBOOKS, compared, printed, ran, read

pytestmark = pytest.mark.long


def rerun(name: str) -> Any:
    """The notebook as it runs today, after a look at whether that is how it is kept."""
    book, kept = ran(FOLDER / name), read(FOLDER / name)
    nbformat.validate(kept)
    assert compared(kept) == compared(book), "run make docs-notebooks"
    return book


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_notebook_is_left_out(path: Path) -> None:
    assert f'rerun("{path.name}")' in Path(__file__).read_text(encoding="utf-8")


def test_plan_and_see() -> None:
    book = rerun("01-plan-and-see.ipynb")
    pictures = [o.data for cell in book.cells if cell.cell_type == "code" for o in cell.outputs if "data" in o]
    assert [set(data) for data in pictures] == [{"image/svg+xml", "text/plain"}] * 2
    assert "moved by all-to-all" in pictures[1]["image/svg+xml"]
    said = printed(book)
    assert "{'t': 'mesh0'}" in said
    assert "0.00 GiB moved, 5.3" in said
    assert "no sharding fits in 256 MiB of hbm on each device" in said
    assert "largest error" in said


def test_rewrites() -> None:
    said = printed(rerun("02-rewrites.ipynb"))
    assert "streaming_softmax at matmul_4" in said
    assert "looking 1 ahead: 2575 -> 2575 million" in said
    assert "looking 2 ahead: 2575 -> 1800 million" in said
    assert "proved on " in said
    assert "triple computes something else" in said


def test_train() -> None:
    said = printed(rerun("03-train.ipynb"))
    assert "1 devices: 0 bytes moved a step" in said
    assert "the same to 1e-5: True" in said


def test_debug_a_plan() -> None:
    said = printed(rerun("06-debug-a-plan.ipynb"))
    assert "ok: 2 ranks, 2 operations" in said
    assert "missing: task 1, rank 1, tensor image: blur reads buffer image where nothing was written" in said
    assert "['missing', 'overlap', 'predicted', 'race']" in said
    assert "CheckFailed: the plan fails its check: race" in said
    assert "overlap: task 1, rank 0" in said
    assert "mesh     2 -> 4" in said


def test_your_model() -> None:
    text = printed(rerun("04-your-model.ipynb"))
    assert "holds what encoder does not read: head.weight, head.bias" in text
    assert "the same to 1e-5: True" in text
    assert "wrong" not in text


def test_memory() -> None:
    text = printed(rerun("05-memory.ipynb"))
    assert "0 of 76 operations are there again" in text
    assert "ok: 8 ranks" in text
    assert "give --memory hbm=" in text
