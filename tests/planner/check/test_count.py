"""Traffic counted by sets equals traffic counted element by element, and the closed forms of the usual patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.check import count, wellformed
from tapestry.planner.check.report import Findings
from tapestry.planner.format.document import Document, LayoutText, Transfer
from tapestry.program import Program

from . import traffic, writing
from .elements import write

SHAPE = (3, 4)
ELEMENTS = [(a, b) for a in range(SHAPE[0]) for b in range(SHAPE[1])]
chosen = st.frozensets(st.sampled_from(ELEMENTS))


@st.composite
def transfers(draw: st.DrawFn) -> Document:
    """One transfer between any regions, partial or not, among all ranks or some; what is needed, somebody has."""
    ranks = draw(st.integers(1, 4))
    have = draw(st.lists(chosen, min_size=ranks, max_size=ranks))
    need = draw(st.lists(chosen, min_size=ranks, max_size=ranks))
    parts = draw(st.none() | st.lists(st.integers(0, 2), min_size=ranks, max_size=ranks).map(tuple))
    among = draw(st.none() | st.sets(st.integers(0, ranks - 1), min_size=1).map(sorted).map(tuple))
    sheet = writing.Sheet(_product(), ranks)
    whole = sheet.layout("0:3,0:4")
    there = frozenset[tuple[int, int]]().union(*(have[rank] for rank in among or range(ranks)))
    y, z = sheet.buffer("y", "y", whole), sheet.buffer("z", "y", whole)
    monoid = None if parts is None else "sum"
    sheet.layouts |= {
        "have": LayoutText(tuple(map(write, have)), parts),
        "need": LayoutText(tuple(write(region & there) for region in need)),
    }
    sheet.transfer("sends", "y", y, z, "have", "need", monoid=monoid, ranks=among)
    return sheet.done({"y": "z"})


def _product() -> Program:
    tensors = (
        writing.tensor("x", 3, 2, role="param"),
        writing.tensor("w", 2, 4, role="param"),
        writing.tensor("y", 3, 4),
    )
    return Program("product", tensors, (writing.matmul("mm", "x", "w", "y", 3, 2, 4),), ("y",))


@given(transfers())
def test_sets_and_elements_agree(document: Document) -> None:
    case = wellformed.read(document, findings := Findings())
    assert case is not None, findings.report()
    (task,) = document.tasks
    assert isinstance(task, Transfer)
    assert sum(count.received(case, task)) == traffic.moved(document, task)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("kind", "times"),
    [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2), ("broadcast", 1), ("all_to_all", None)],
)
def test_closed_forms(ranks: int, kind: str, times: int | None) -> None:
    """(P - 1) V to gather, scatter or broadcast; twice that to all-reduce; (1 - 1/P) V for an all-to-all."""
    n = 5 if times else ranks * ranks
    shape = (n, n)
    tensors = (
        writing.tensor("x", n, 2, role="param"),
        writing.tensor("w", 2, n, role="param"),
        writing.tensor("y", *shape),
    )
    program = Program("product", tensors, (writing.matmul("mm", "x", "w", "y", n, 2, n),), ("y",))
    sheet = writing.Sheet(program, ranks)
    cuts = [(r * n // ranks, (r + 1) * n // ranks) for r in range(ranks)]
    whole = f"0:{n},0:{n}"
    by_rows = [f"{a}:{b},0:{n}" if a < b else "empty" for a, b in cuts]
    by_columns = [f"0:{n},{a}:{b}" if a < b else "empty" for a, b in cuts]
    parts = tuple(range(ranks))
    have, need = {
        "all_gather": (LayoutText(tuple(by_rows)), LayoutText((whole,) * ranks)),
        "reduce_scatter": (LayoutText((whole,) * ranks, parts), LayoutText(tuple(by_rows))),
        "all_reduce": (LayoutText((whole,) * ranks, parts), LayoutText((whole,) * ranks)),
        "broadcast": (LayoutText((whole, *["empty"] * (ranks - 1))), LayoutText((whole,) * ranks)),
        "all_to_all": (LayoutText(tuple(by_rows)), LayoutText(tuple(by_columns))),
    }[kind]
    sheet.layouts |= {"whole": LayoutText((whole,) * ranks), "have": have, "need": need}
    y, z = sheet.buffer("y", "y", "whole"), sheet.buffer("z", "y", "whole")
    sheet.transfer(kind, "y", y, z, "have", "need", monoid="sum" if have.parts else None)
    case = wellformed.read(sheet.done({"y": "z"}), Findings())
    (task,) = sheet.tasks
    assert case is not None
    assert isinstance(task, Transfer)
    expected = (ranks - 1) * n * n * times if times else n * n - n * n // ranks
    assert sum(count.received(case, task)) == expected
