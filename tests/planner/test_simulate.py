"""Timelines worked out by hand: lanes in order, waits, meetings, and work that hides transfers."""

from __future__ import annotations

import msgspec
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.planner import Plan
from tapestry.planner.format import Compute, Document, Transfer
from tapestry.planner.machine import Machine, load_machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.simulate import simulate
from tapestry.planner.timeline import Timeline
from tapestry.space import Box, Region

# 1 us a launch, 1e9 element operations a second, 1 GB/s of memory; links of 1 GB/s that answer after 10 us.
MACHINE = """
name = "toy"
description = "round numbers"
hosts = 1
devices_per_host = 4
[device]
name = "toy"
launch_overhead_us = 1
[device.peak]
elementwise.f64_gflops = 1
[[device.tiers]]
name = "host"
capacity_gb = 1
read_gb_per_s = 1
write_gb_per_s = 1
[[links]]
kind = "wire"
scope = "host"
gb_per_s = 1.0
latency_us = 10
"""
US = 1e-6


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    path = tmp_path_factory.mktemp("machines") / "toy.toml"
    path.write_text(MACHINE, encoding="utf-8")
    return load_machine(path)


@tp.program
def two(x: f32[Tensor, "n"], y: f32[Tensor, "n"]) -> tuple[Tensor, Tensor]:
    """Two independent operations, then one that reads the first whole."""
    a = tp.relu(x)
    b = -y
    c = a + a[::-1]
    return b, c


PROGRAM = two.bind(n=1000)


def halves(extent: int = 1000) -> list[Region]:
    return [Box((0,), (extent // 2,)).region(), Box((extent // 2,), (extent,)).region()]


def planned(machine: Machine, **shards: list[Region]) -> Plan:
    """All operations cut in halves over two ranks, unless said otherwise; x lies where the first reads it."""
    partition = {op.name: shards.get(op.name, halves()) for op in PROGRAM.operations}
    return plan_partitions(PROGRAM, machine, partition, homes={"x": partition[names()[0]]})


def spans(timeline: Timeline, rank: int, lane: str) -> list[tuple[str, float, float]]:
    """(name, start, end) in microseconds, in order."""
    found = [(e.name, round(e.start_s / US, 6), round(e.end_s / US, 6)) for e in timeline.at([rank]) if e.lane == lane]
    return sorted(found, key=lambda span: span[1])


def names() -> list[str]:
    return [op.name for op in PROGRAM.operations]


def test_work_is_bytes_over_bandwidth_and_a_launch(machine: Machine) -> None:
    """relu on 500 f32 elements: 4 KB through memory at 1 GB/s is 4 us, and 1 us to start it."""
    timeline = planned(machine).simulate()
    assert spans(timeline, 0, "compute")[0] == (names()[0], 0.0, 5.0)


def test_a_transfer_hides_behind_independent_work(machine: Machine) -> None:
    """c needs all of a: 2 KB over the wire take 10 + 2 us, from 5 us on; negation runs meanwhile."""
    timeline = planned(machine).simulate()
    for rank in (0, 1):
        assert spans(timeline, rank, "comm") == [("a", 5.0, 17.0)]
        relu, other, add = spans(timeline, rank, "compute")
        assert relu[1:] == (0.0, 5.0)
        assert other[1:] == (5.0, 10.0)
        assert add[1:] == (17.0, 17.0 + 1 + 6)  # 4 KB of a read, 2 KB of c written
    assert timeline.makespan_s == pytest.approx(24 * US)
    assert timeline.compute_s == pytest.approx((5 + 5 + 7) * US)
    assert timeline.exposed_transfer_s == pytest.approx(7 * US)


def test_a_transfer_starts_when_the_last_participant_is_ready(machine: Machine) -> None:
    uneven = [Box((0,), (900,)).region(), Box((900,), (1000,)).region()]
    timeline = planned(machine, **{names()[0]: uneven}).simulate()
    for rank in (0, 1):
        ((_, start, end),) = spans(timeline, rank, "comm")
        assert start == round(1 + 900 * 8 / 1000, 6)  # when rank 0 has computed its 900 elements
        assert end == round(start + 10 + 900 * 4 / 1000, 6)  # rank 1 receives 900 elements


def test_redundant_work_needs_no_transfer(machine: Machine) -> None:
    whole = [Box((0,), (1000,)).region()] * 2
    made = plan_partitions(
        PROGRAM, machine, {op.name: whole for op in PROGRAM.operations}, homes={"x": whole, "y": whole}
    )
    timeline = made.simulate()
    assert made.document.traffic.bytes_total == 0
    assert timeline.makespan_s == pytest.approx((9 + 9 + 9) * US)
    assert timeline.exposed_transfer_s == 0


def without_waits(document: Document) -> Document:
    tasks = tuple(msgspec.structs.replace(task, waits=()) for task in document.tasks)
    return msgspec.structs.replace(document, tasks=tasks)


def test_only_waits_and_lanes_order_tasks(machine: Machine) -> None:
    """Without waits every lane starts at once: a plan that `check` refuses, but a timeline all the same."""
    timeline = simulate(without_waits(planned(machine).document))
    assert spans(timeline, 0, "comm") == [("a", 0.0, 12.0)]
    assert [span[1:] for span in spans(timeline, 0, "compute")] == [(0.0, 5.0), (5.0, 10.0), (10.0, 17.0)]


def test_the_order_of_the_list_is_no_order_of_time(machine: Machine) -> None:
    """What waits for a task further down the list starts when that has ended."""
    document = planned(machine).document
    tasks = document.tasks
    lanes = [[task for task in tasks if task.lane == lane] for lane in ("compute", "comm")]
    turned = msgspec.structs.replace(document, tasks=(*lanes[0], *lanes[1]))
    assert turned.tasks != tasks
    assert simulate(turned).makespan_s == simulate(document).makespan_s


def test_tasks_that_wait_for_one_another_are_refused(machine: Machine) -> None:
    document = planned(machine).document
    first, last = document.tasks[0], document.tasks[-1]
    changed = (msgspec.structs.replace(first, waits=(last.id,)), *document.tasks[1:])
    with pytest.raises(UsageError, match=f"task {first.id} waits for task {last.id}"):
        simulate(msgspec.structs.replace(document, tasks=changed))


def test_a_task_of_some_ranks_takes_no_time_on_others(machine: Machine) -> None:
    document = planned(machine).document
    tasks = tuple(
        msgspec.structs.replace(task, ranks=(0,)) if isinstance(task, Compute) and task.op == names()[1] else task
        for task in document.tasks
    )
    timeline = simulate(msgspec.structs.replace(document, tasks=tasks))
    assert [span[0] for span in spans(timeline, 1, "compute")] == [names()[0], names()[2]]


def test_the_document_says_what_the_simulation_says(machine: Machine) -> None:
    made = planned(machine)
    timeline = made.simulate()
    assert made.document.predicted.makespan_s == timeline.makespan_s
    assert made.document.predicted.compute_s == timeline.compute_s
    assert sum(isinstance(task, Transfer) for task in made.document.tasks) == 1
