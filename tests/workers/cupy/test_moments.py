"""Tasks between the moments that a graph notes."""

from __future__ import annotations

import pytest

from tapestry.planner.format import Compute, Task, Transfer
from tapestry.workers.cupy.moments import APART_S, noted, spans

LONG, SHORT = 2 * APART_S, APART_S / 4


def task(number: int, lane: str = "compute", waits: tuple[int, ...] = ()) -> tuple[Task, str]:
    return Compute(number, lane, "op", "L", (), "b", waits), lane


def moved(number: int, waits: tuple[int, ...] = ()) -> tuple[Task, str]:
    return Transfer(number, "comm", "x", "send", "a", "b", "L", "L", None, waits), "comm"


def test_long_tasks_have_moments_of_their_own() -> None:
    assert noted([task(0), task(1)], [LONG, LONG]) == [True, True]


def test_short_ones_share_one() -> None:
    assert noted([task(k) for k in range(6)], [SHORT] * 6) == [False, False, False, True, False, True]


def test_transfers_and_what_lanes_wait_for_have_one() -> None:
    tasks = [task(0), moved(1, (0,)), task(2), task(3, waits=(1,)), task(4)]
    assert noted(tasks, [SHORT] * 5) == [True, True, True, False, True]


def test_a_task_begins_when_what_it_waits_for_has_ended() -> None:
    tasks = [task(0), moved(1, (0,)), task(2), task(3, waits=(1,))]
    found = spans(tasks, [SHORT] * 4, {0: 2.0, 1: 7.0, 2: 3.0, 3: 8.0}, 1.0)
    assert found == [(1.0, 2.0), (2.0, 7.0), (2.0, 3.0), (7.0, 8.0)]


def test_time_is_shared_as_it_was_taken_one_by_one() -> None:
    found = spans([task(k) for k in range(3)], [1.0, 2.0, 1.0], {2: 9.0}, 1.0)
    assert found == [(1.0, 3.0), (3.0, 7.0), (7.0, 9.0)]


def test_ranks_that_take_turns_have_tasks_of_the_same_number() -> None:
    tasks = [(task(0)[0], ""), (task(0)[0], ""), (task(1, waits=(0,))[0], "")]
    assert noted(tasks, [SHORT] * 3) == [False, False, True]
    assert [end for _, end in spans(tasks, [1.0] * 3, {2: 3.0}, 0.0)] == pytest.approx([1.0, 2.0, 3.0])
