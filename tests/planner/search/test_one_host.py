"""Long programs are planned on one host first; where links between hosts let the others save little, that is all."""

from __future__ import annotations

from typing import Any

import pytest

from tapestry.planner import Plan, plan
from tapestry.planner.machine import Machine
from tapestry.planner.search import one_host, pipeline
from tapestry.planner.sharding import between
from tapestry.planner.sharding.assignment import OutOfTime

from ..training_step import trained
from .named import Described


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The meshes that are looked at as a whole; every program is long."""
    monkeypatch.setattr(one_host, "MANY", 0)
    monkeypatch.setattr(one_host, "PLACED", 0)
    found: list[tuple[int, ...]] = []
    whole = pipeline.answered

    def noted(question: Any) -> Any:
        found.append(question.mesh.shape)
        return whole(question)

    monkeypatch.setattr(pipeline, "answered", noted)
    return found


def machine(between: float) -> Machine:
    """Two hosts of two ranks each, with so many GB/s a rank between them."""
    return Described(4, hosts=2, tflops=0.01, gb_per_s=10.0, latency_us=1.0, between=between).machine()


def stepped(between: float, mesh: tuple[int, ...] = (2, 2), **options: Any) -> Plan:
    return plan(trained.bind(n=512, c=64, layers=2), machine(between), mesh=mesh, time_limit=600, **options)


def test_slow_links_leave_a_program_to_one_host(asked: list[tuple[int, ...]]) -> None:
    made = stepped(0.001)
    assert not asked
    assert made.check().ok, str(made.check())
    assert made.document.claims.status == "optimal"
    assert {rank for task in made.document.tasks for rank in task.ranks or range(4)} == {0, 1}


def test_no_more_is_found_where_all_ranks_are_looked_at(
    asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stepped(0.001).document.predicted.makespan_s
    monkeypatch.setattr(one_host, "SAVING", -1e9)
    every = stepped(0.001).document.predicted.makespan_s
    assert asked == [(2, 2)]
    assert made <= 1.001 * every


def test_fast_links_ask_all_ranks(asked: list[tuple[int, ...]]) -> None:
    made, alone = stepped(10.0), stepped(10.0, (2,))
    assert asked == [(2, 2), (2,)]
    assert made.document.predicted.makespan_s < 0.8 * alone.document.predicted.makespan_s


def test_memory_that_is_scarce_asks_all_ranks(asked: list[tuple[int, ...]]) -> None:
    """More of it may save what is moved to make do with less."""
    peaks = stepped(0.001).document.peak_bytes
    stepped(0.001, memory=int(1.2 * max(max(each.values()) for each in peaks.values())))
    assert asked == [(2, 2)]


def test_of_a_short_program_all_ranks_are_asked(asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_host, "MANY", 1000)
    stepped(0.001)
    assert asked == [(2, 2)]


def test_where_the_time_ends_while_hosts_are_counted_there_is_a_plan(
    asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> Any:
        raise OutOfTime

    monkeypatch.setattr(between, "Translation", late)
    assert stepped(0.001).check().ok
    assert asked == [(2, 2)]
