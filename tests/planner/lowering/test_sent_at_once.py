"""What is read much later may be sent when it is made: gradients are, under the backward pass that goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tapestry.planner import Machine, Plan, plan
from tapestry.planner.format import Compute
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.space import Box, Region

from ..search.named import Described
from ..training_step import trained

RANKS, LAYERS = 2, 3


def described(hosts: int = 1) -> Machine:
    """Hosts of two devices that compute and transfer at the same time."""
    found = Described(2 * hosts, hosts=hosts, tflops=0.01, gb_per_s=10.0, latency_us=1.0, between=0.02).machine()
    return replace(found, device=replace(found.device, overlap=True))


def lowered(program: Program, *, at_once: bool) -> Plan:
    """Everything cut along its first dimension, contributions folded at a reader that has its rows alone."""

    def slabs(*extents: int) -> list[Region]:
        if not extents:
            return [Box((), ()).region()] * RANKS
        n, *rest = extents
        ends = [n * rank // RANKS for rank in range(RANKS + 1)]
        return [Box((first, *(0 for _ in rest)), (end, *rest)).region() for first, end in pairwise(ends)]

    shards = {op.name: slabs(*op.extents.values()) for op in program.operations}
    homes = {t.name: slabs(*t.shape) for t in program.of_role("input", "param", "state")}
    schedule = Schedule(listed=True, at_once=at_once)
    return plan_partitions(program, described(), shards, homes=homes, schedule=schedule)


def waits(made: Plan) -> dict[str, int]:
    """By value that is sent, how many tasks compute between the one that makes it and its first transfer."""
    after: dict[str, int] = {}
    found: dict[str, int] = {}
    program = made.program
    buffers = {buffer.name: buffer.tensor for buffer in made.document.buffers}
    computed = 0
    for task in made.document.tasks:
        if isinstance(task, Compute):
            computed += 1
            after[program.op_by_name[task.op].output] = computed
        elif (name := buffers[task.source]) in after:
            found.setdefault(name, computed - after[name])
    return found


def test_values_are_sent_behind_the_task_that_makes_them() -> None:
    program = trained.bind(n=64, c=16, layers=LAYERS)
    made, late = lowered(program, at_once=True), lowered(program, at_once=False)
    assert made.check().ok, str(made.check())
    assert late.check().ok, str(late.check())
    assert set(waits(made)) == set(waits(late))
    assert not any(waits(made).values())
    assert any(waits(late).values())


def test_gradients_cross_slow_links_under_the_backward_pass() -> None:
    """Data parallel over two hosts: of what the network takes, which is most of what is sent, little is waited for."""
    made = plan(trained.bind(n=2048, c=64, layers=8), described(hosts=2), mesh=(2, 2), time_limit=600)
    assert made.check().ok, str(made.check())
    moved = sum(event.end_s - event.start_s for event in made.simulate().events if event.lane == "comm") / 4
    assert moved > 0.25 * made.document.predicted.makespan_s
    assert made.document.predicted.exposed_transfer_s < 0.1 * moved
