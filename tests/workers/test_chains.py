"""Which tasks may be done as one: what others wait for, read or wait on, decides."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tapestry.planner.format import Compute, Copy, Document, Task
from tapestry.workers.chains import LONGEST, Links, chains_from


@dataclass(frozen=True)
class Sheet:
    """Tasks, and the buffers that are outputs."""

    tasks: tuple[Task, ...]
    outputs: tuple[str, ...] = ()

    @property
    def links(self) -> Links:
        names = {name: name for name in self.outputs}
        made = SimpleNamespace(tasks=self.tasks, outputs=names, states={}, buffers=())
        return Links.of(cast(Document, made))

    def chains(self) -> dict[int, list[int]]:
        found = chains_from(self.tasks, self.links)
        return {first: [task.id for task in chain] for first, chain in found.items()}


def task(number: int, reads: str, write: str, **more: Any) -> Compute:
    return Compute(number, more.pop("lane", "compute"), f"op{number}", "L", tuple(reads), write, **more)


def test_neighbours_that_read_one_another_are_a_chain() -> None:
    sheet = Sheet((task(0, "x", "a"), task(1, "ay", "b"), task(2, "b", "c")))
    assert sheet.chains() == {0: [0, 1, 2], 1: [1, 2]}
    first, second, _ = cast("tuple[Compute, ...]", sheet.tasks)
    assert sheet.links.stored([first, second]) == {"b"}


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ((task(0, "x", "a"), task(1, "y", "b")), "it reads nothing of the other"),
        ((task(0, "x", "a"), task(1, "y", "b"), task(2, "a", "c")), "another task stands between"),
        ((task(0, "x", "a"), task(1, "a", "b", lane="other")), "another lane"),
        ((task(0, "x", "a"), task(1, "ay", "b", waits=(7,)), task(7, "z", "y", lane="other")), "it waits for more"),
        ((task(0, "x", "a"), task(1, "a", "b"), task(2, "z", "w", lane="other", waits=(0,))), "somebody waits for it"),
        ((task(0, "x", "a"), Copy(1, "compute", "t", "a", "b", "L")), "a copy computes nothing"),
    ],
)
def test_what_breaks_a_chain(tasks: tuple[Task, ...], why: str) -> None:
    assert Sheet(tasks).chains() == {}, why


def test_tasks_beside_one_another_are_a_chain_with_what_reads_them() -> None:
    """Two of what reads the same; the second may wait for more: both are done where the last stands."""
    fetched = task(7, "z", "y", lane="other")
    sheet = Sheet((fetched, task(0, "x", "a"), task(1, "xy", "b", waits=(7,)), task(2, "ab", "c")))
    assert sheet.chains() == {0: [0, 1, 2], 1: [1, 2]}
    three = Sheet((task(0, "x", "a"), task(1, "xa", "b"), task(2, "x", "c"), task(3, "x", "d")))
    assert three.chains() == {0: [0, 1], 1: [1, 2], 2: [2, 3]}


def test_waits_of_the_first_are_waits_of_all() -> None:
    before = task(7, "z", "y", lane="other")
    sheet = Sheet((before, task(0, "xy", "a", waits=(7,)), task(1, "ay", "b", waits=(7, 0))))
    assert sheet.chains() == {0: [0, 1]}


def test_what_somebody_else_reads_or_what_lasts_is_stored() -> None:
    a, b, later = task(0, "x", "a"), task(1, "a", "b"), task(2, "ab", "c")
    assert Sheet((a, b)).links.stored([a, b]) == {"b"}
    assert Sheet((a, b, later)).links.stored([a, b]) == {"a", "b"}
    assert Sheet((a, b), outputs=("a",)).links.stored([a, b]) == {"a", "b"}


def test_a_chain_has_an_end() -> None:
    sheet = Sheet(tuple(task(k, x, y) for k, (x, y) in enumerate(pairwise("abcdefghijk"))))
    assert max(map(len, sheet.chains().values())) == LONGEST
