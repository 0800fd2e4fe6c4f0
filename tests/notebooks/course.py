"""The notebooks: run from top to bottom, and kept with what they print and draw.

python -m tests.notebooks.course          # run them all and write their outputs
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# What a cell with this tag prints depends on how quick the computer is, or on how it rounds: it is not compared.
VARIES = "varies"
# Plans are made to the end on a busy computer too: what is printed is the same.
PATIENT = (
    "from inspect import unwrap; from tapestry.planner.interface import plan; "
    "unwrap(plan).__kwdefaults__['time_limit'] = 600.0; del unwrap, plan"
)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def ran(path: Path) -> Any:
    """The notebook with the outputs of today, in a form that is the same for the same outputs."""
    book = read(path)
    here = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(
        book, timeout=1800, kernel_name="python3", record_timing=False, coalesce_streams=True, resources=here,
        extra_arguments=[f"--IPKernelApp.exec_lines={PATIENT}"],
    ).execute()  # fmt: skip
    for cell in code(book):
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def code(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def printed(book: Any) -> str:
    return "".join(said(cell) for cell in code(book))


def said(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if "text" in output)


def compared(book: Any) -> list[tuple[str, list[list[str]]]]:
    """What each cell prints, and the kinds of what it draws; nothing of cells that are tagged."""
    return [
        (said(cell), [sorted(output.data) for output in cell.outputs if "data" in output])
        for cell in code(book)
        if VARIES not in cell.metadata.get("tags", ())
    ]


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        nbformat.write(ran(notebook), notebook)
