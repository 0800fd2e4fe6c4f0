"""Which tasks may be done at once: what they touch, and who waits for them, decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tapestry.planner.format import Buffer, Compute, Copy, Resolved, Task
from tapestry.workers.device import Bound, Device, Runner, Within
from tapestry.workers.neighbours import neighbours


def task(number: int, reads: str, write: str, **more: Any) -> Compute:
    return Compute(number, more.pop("lane", "compute"), f"op{number}", "L", tuple(reads), write, **more)


def groups(tasks: Sequence[Task], within: Mapping[int, str] = {}, most: int = 9, **at: int) -> list[list[int]]:
    """The tasks that are done at once, by a device that does at most so many. Buffers are of 8 bytes, each where its
    letter stands in the alphabet, but for those that are told to lie ``at`` another's place.
    """
    names = {letter for one in tasks if isinstance(one, Compute) for letter in (*one.reads, one.write)}
    places = {name: Buffer(name, name, "L", "hbm", at.get(name, 8 * ord(name)), 8) for name in names}
    made = SimpleNamespace(tasks=tasks, outputs={}, states={}, buffers=())
    plan = cast(Resolved, SimpleNamespace(document=made, buffers=places))
    device = cast(Device, SimpleNamespace(fit=lambda runs: len(runs) <= most))
    runs: dict[int, Runner] = {one.id: Within(within[one.id]) if one.id in within else str for one in tasks}  # type: ignore[dict-item]
    bound = cast("Mapping[int, Bound]", {number: SimpleNamespace(run=run) for number, run in runs.items()})
    return [[one.id for done in group for one in done.tasks] for group in neighbours(tasks, bound, plan, device)]


def test_neighbours_that_touch_nothing_of_each_other_are_done_at_once() -> None:
    assert groups((task(0, "a", "x"), task(1, "ab", "y"), task(2, "c", "z"))) == [[0, 1, 2]]


def test_as_many_as_the_device_does_at_once() -> None:
    assert groups([task(k, "a", letter) for k, letter in enumerate("uvwxyz")], most=3) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ((task(0, "a", "x"), task(1, "x", "y")), "one reads what the other wrote"),
        ((task(0, "a", "x"), task(1, "b", "a")), "one writes what the other reads"),
        ((task(0, "a", "x"), task(1, "b", "x")), "both write the same"),
        ((task(0, "a", "x"), task(1, "b", "y", lane="other")), "another lane"),
        ((task(0, "a", "x"), Copy(1, "compute", "t", "a", "c", "L"), task(2, "b", "y")), "a copy stands between"),
        ((task(0, "a", "x"), task(1, "b", "y", onto="z")), "it is folded onto what is there"),
        ((task(7, "c", "b", lane="other"), task(0, "a", "x"), task(1, "b", "y", waits=(7,))), "it waits for more"),
        ((task(0, "a", "x"), task(1, "b", "y"), task(2, "x", "w", lane="other", waits=(0,))), "somebody waits for it"),
    ],
)
def test_what_keeps_tasks_apart(tasks: tuple[Task, ...], why: str) -> None:
    assert groups(tasks) == [], why


def test_what_lies_over_an_operand_of_another_is_not_written_beside_it() -> None:
    assert groups((task(0, "a", "x"), task(1, "b", "y"))) == [[0, 1]]
    assert groups((task(0, "a", "x"), task(1, "b", "y")), y=8 * ord("a") + 7) == []


def test_others_may_wait_for_the_last_and_all_for_what_the_first_waits_for() -> None:
    before, after = task(7, "c", "d", lane="other"), task(8, "y", "w", lane="other", waits=(1,))
    assert groups((before, task(0, "a", "x", waits=(7,)), task(1, "d", "y", waits=(7,)), after)) == [[0, 1]]


def test_what_is_done_within_another_goes_with_it() -> None:
    tasks = (task(0, "a", "u"), task(1, "u", "x"), task(2, "b", "v"), task(3, "v", "y"))
    assert groups(tasks, {0: "op1", 2: "op3"}) == [[0, 1, 2, 3]]
    assert groups((*tasks[:2], task(2, "u", "v"), tasks[3]), {0: "op1", 2: "op3"}) == []
