"""The checker on plans that read and write where the data say, cut in every way, and on faults planted in them.

What such a plan promises is the hull: all rows of a shard are there, each row is some rank's, contributions are folded.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, int64
from tapestry.planner.check import Code, check
from tapestry.planner.format.document import Compute, Document, LayoutText, Transfer

from .bases import cut


@tp.op
def next_row(table: int64[Tensor, "v d"], ids: int64[Tensor, "t"]) -> int64[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table[ids[t] % table.shape[0], d]


@tp.program
def lookup(table: int64[Tensor, "v d"], ids: int64[Tensor, "t"]) -> Tensor:
    return next_row(table, ids)


@tp.program
def segments(x: int64[Tensor, "t d"], ids: int64[Tensor, "t"]) -> Tensor:
    return tp.segment_sum(x, ids % 4, 3)


def rows_cut() -> Document:
    """Two rows of the table on each of two ranks, which contribute what they have of each id."""
    return cut(lookup.bind(v=4, d=1, t=3), next_row="at_v")


def ids_cut() -> Document:
    """All rows of the table go to both ranks, which look up ids of their own."""
    return cut(lookup.bind(v=3, d=1, t=4), next_row="t")


def updates_cut() -> Document:
    """Each rank folds its own updates into all places."""
    return cut(segments.bind(t=4, d=1), segment_sum="t")


def places_cut() -> Document:
    """All updates go to both ranks, which fold what is asked into places of their own."""
    return cut(segments.bind(t=3, d=1), segment_sum="segment")


@pytest.mark.parametrize("made", [rows_cut, ids_cut, updates_cut, places_cut])
def test_plans_cut_every_way_are_proved(made: Callable[[], Document]) -> None:
    report = check(made())
    assert report.ok, str(report)


def altered(document: Document, op: str, tensor: str, regions: tuple[str, str]) -> Document:
    """With other shards of an operation, or with another need in the transfer of a tensor."""
    k = next(
        k
        for k, task in enumerate(document.tasks)
        if (isinstance(task, Compute) and task.op == op) or (isinstance(task, Transfer) and task.tensor == tensor)
    )
    task, layouts = document.tasks[k], {**document.layouts, "other": LayoutText(regions, None)}
    changed = replace(task, shards="other") if isinstance(task, Compute) else replace(task, need="other")
    return replace(document, layouts=layouts, tasks=(*document.tasks[:k], changed, *document.tasks[k + 1 :]))


PLANTED = {
    "a row of the table is nobody's": (rows_cut, "next_row", "", ("0:3,0:1,0:2", "0:3,0:1,3:4"), Code.UNCOVERED),
    "a row of the table is everybody's": (rows_cut, "next_row", "", ("0:3,0:1,0:2", "0:3,0:1,1:4"), Code.OVERCOVERED),
    "a rank selects rows that it lacks": (rows_cut, "next_row", "", ("0:3,0:1,0:3", "0:3,0:1,3:4"), Code.MISSING),
    "a row that an id may ask for is not moved": (ids_cut, "", "table", ("0:2,0:1", "0:3,0:1"), Code.MISSING),
    "an id is looked up nowhere": (ids_cut, "next_row", "", ("0:2,0:1,0:3", "3:4,0:1,0:3"), Code.UNCOVERED),
    "an update is folded twice": (updates_cut, "segment_sum", "", ("0:3,0:1,0:3", "0:3,0:1,2:4"), Code.OVERCOVERED),
    "an update that may be meant is not moved": (places_cut, "", "x", ("0:2,0:1", "0:3,0:1"), Code.MISSING),
    "the place of an update is not known": (places_cut, "", "remainder", ("0:2", "0:3"), Code.MISSING),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    made, op, tensor, regions, code = PLANTED[fault]
    report = check(altered(made(), op, tensor, regions))
    assert code in report.codes, str(report)


def test_contributions_that_are_not_folded_are_found() -> None:
    document = rows_cut()
    tasks = tuple(
        replace(task, monoid=None) if isinstance(task, Transfer) and task.monoid else task for task in document.tasks
    )
    assert not check(replace(document, tasks=tasks)).ok
