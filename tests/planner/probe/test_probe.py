"""The probe with a machine whose times are known: what is written is what it takes, and predictions are what is run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Task, Transfer
from tapestry.planner.format.events import Event
from tapestry.planner.machine import Machine
from tapestry.planner.machine.write import machine_toml
from tapestry.planner.probe.measure import Host, Ways, measured_on, probed, restated, with_program
from tapestry.planner.probe.programs import moves, work
from tapestry.planner.probe.sizes import QUICK
from tapestry.planner.probe.times import task_times
from tapestry.planner.views.text import plan_text

RANKS, GAP_S, MOVE_S = 4, 5e-6, 70e-6


@dataclass(frozen=True)
class Step:
    wall_s: float
    events: Sequence[Event]


def task_s(made: Plan, task: Task) -> float:
    """What a task takes on the fake machine."""
    if isinstance(task, Compute):
        return 10e-6 * (1 + [op.name for op in made.program.operations].index(task.op))
    return 1e-6 if isinstance(task, Transfer) and task.kind == "local" else MOVE_S


class Fake:
    """A machine in which operation k takes k + 1 times ten microseconds on every rank, every transfer between ranks
    `MOVE_S`, and one within them a microsecond.

    ``turns``: ranks run one after another. The first step takes much longer, and every fifth is disturbed. Between two
    tasks nothing happens for a while.
    """

    def __init__(self, *, turns: bool = False) -> None:
        self.turns = turns
        self.ran: list[Plan] = []

    def __call__(self, jobs: Sequence[tuple[Plan, Mapping[str, np.ndarray]]], repeat: int) -> list[list[Step]]:
        self.ran += [made for made, _ in jobs]
        return [[self.step(made, number) for number in range(repeat)] for made, _ in jobs]

    def step(self, made: Plan, number: int) -> Step:
        factor = 50.0 if not number else 7.0 if number % 5 == 2 else 1.0
        clock, events = [0.0] * len(made.document.devices), list[Event]()
        for task in made.document.tasks:
            took = factor * task_s(made, task)
            members = made.resolved.participants(task)
            meeting = max(clock[rank] for rank in members)
            for rank in members:
                alone = self.turns and not isinstance(task, Transfer)
                start = max(clock) if alone else meeting if isinstance(task, Transfer) else clock[rank]
                clock[rank] = start + took + GAP_S
                events.append(Event(rank, task.lane, task.id, "", start, start + took))
        return Step(max(clock), events)


def host(*, turns: bool = False) -> Host:
    return Host("fake", "a fake", "a core", RANKS, "host", 1 << 30, 1 << 30, turns, False, "wire")


def ways(fake: Fake) -> Ways:
    return Ways(fake, fake, fake)


def test_a_busy_computer_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose clock goes thirty times as fast as it plans."""
    monkeypatch.setattr("tapestry.planner.clock.now", lambda: 30 * time.monotonic())
    assert probed(host(), ways(Fake()), quick=True).device_count == RANKS


def test_tasks_that_are_interrupted_now_and_then_add_up_to_the_step() -> None:
    """Each task is held up in one step of four, never two in one step: their medians would miss all of it."""
    made = plan(net.bind(n=16, m=8, k=8), "cpu-4", mesh=(RANKS,), time_limit=20)
    tasks, steps = made.document.tasks, []
    for number in range(1 + 4 * len(tasks)):
        clock, events = 0.0, []
        for k, task in enumerate(tasks):
            took = 1e-3 + (20e-3 if number % len(tasks) == k else 0.0)
            events += [Event(rank, task.lane, task.id, "", clock, clock + took) for rank in range(RANKS)]
            clock += took
        steps.append(Step(clock, events))
    times = task_times(made.resolved, steps, turns=False)
    assert sum(times.tasks[task.id, 0] for task in tasks if (task.id, 0) in times.tasks) + sum(
        times.transfers.values()
    ) == pytest.approx(clock, rel=0.02)
    assert times.gap < 1e-4


@cache
def machine(turns: bool) -> Machine:
    return probed(host(turns=turns), ways(Fake(turns=turns)), quick=True)


@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]]) -> dict[str, Tensor]:
    a = tp.shard(tp.shard(tp.exp(tp.shard(x, mesh0="n")), mesh0="n") @ tp.replicate(w), mesh0="n")
    return {"y": tp.shard(tp.shard(tp.relu(a), mesh0="n") + 1.0, mesh0="k")}


@pytest.mark.parametrize("turns", [False, True])
def test_what_was_run_is_predicted_to_take_what_it_took(turns: bool) -> None:
    fake = Fake(turns=turns)
    known, made = with_program(machine(turns), net.bind(n=16, m=8, k=8), fake, turns=turns, quick=True)
    # Two plans were run, of other transfers: the gap after one that only one of them has is shared out among the rest.
    assert made.document.predicted.makespan_s == pytest.approx(fake.step(made, 1).wall_s, rel=0.03)
    assert made.check().ok
    digests = {made.program.graph.digest(op) for op in made.program.operations}
    (pace,) = (pace for pace in known.device.paces if pace.ranks == RANKS)
    assert digests <= {own.operation for own in pace.operations}


def test_of_the_plans_that_were_run_the_quickest_is_kept() -> None:
    """The plan of least traffic is run too: here whatever else the planner thinks of takes a hundred times as long."""

    class Favouring(Fake):
        def step(self, made: Plan, number: int) -> Step:
            found = super().step(made, number)
            return (
                found if made.document.tasks == self.ran[0].document.tasks else Step(100 * found.wall_s, found.events)
            )

    fake = Favouring()
    made = with_program(machine(False), net.bind(n=16, m=8, k=8), fake, turns=False, quick=True)[1]
    assert fake.ran[0].document.claims.objective == "bytes"
    assert made.document.tasks == fake.ran[0].document.tasks


def test_a_probed_machine_has_a_pace_for_one_rank_and_for_all() -> None:
    found = machine(False)
    assert [pace.ranks for pace in found.device.paces] == [1, RANKS]
    kernels = {curve.kernel for pace in found.device.paces for curve in pace.curves}
    assert kernels == {"matmul", "conv", "attention", "elementwise", "reduce"}
    kinds = {curve.collective for curve in found.links[0].curve}
    assert kinds == {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "shift", "broadcast", "sends"}


def test_a_probed_machine_is_a_machine_file(tmp_path: Path) -> None:
    path = tmp_path / "fake.toml"
    path.write_text(machine_toml(machine(False)), encoding="utf-8")
    assert load_machine(path).device.paces[1].ranks == RANKS


def test_one_rank_has_no_links() -> None:
    alone = Host("one", "one", "a core", 1, "host", 1 << 30, 1 << 30, False, True, "wire")
    found = probed(alone, ways(Fake()), quick=True)
    assert (found.links, found.device_count, found.device.overlap) == ((), 1, True)


def test_the_first_step_and_disturbed_ones_do_not_count() -> None:
    made = plan(net.bind(n=16, m=8, k=8), "cpu-4", mesh=(RANKS,), time_limit=20)
    fake = Fake()
    times = task_times(made.resolved, [fake.step(made, k) for k in range(6)], turns=False)
    assert times.gap == pytest.approx(GAP_S)
    for task in made.document.tasks:
        found = times.transfers[task.id] if isinstance(task, Transfer) else times.tasks[task.id, 0]
        assert found == pytest.approx(task_s(made, task))


def test_ranks_that_take_turns_each_wait_for_all() -> None:
    made = plan(net.bind(n=16, m=8, k=8), "cpu-4", mesh=(RANKS,), time_limit=20)
    fake = Fake(turns=True)
    times = task_times(made.resolved, [fake.step(made, k) for k in range(2)], turns=True)
    for task in made.document.tasks:
        if not isinstance(task, Transfer):
            assert times.tasks[task.id, 2] == pytest.approx(RANKS * task_s(made, task))


def test_programs_have_an_operation_of_every_class_and_size() -> None:
    program = work(2, QUICK)
    dense = len(QUICK.dtypes) * (len(QUICK.products) + len(QUICK.images) + 4 * len(QUICK.elements))
    assert len(program.operations) == dense + 2 * len(QUICK.queries)
    moved, pins = moves(2, QUICK)
    assert len(pins) == len(moved.operations) == 16 * len(QUICK.moved)


def test_the_same_tasks_are_restated_for_another_machine() -> None:
    known, fake = machine(False), Fake()
    made = plan(net.bind(n=16, m=8, k=8), known, mesh=(RANKS,), time_limit=20)
    steps = [fake.step(made, k) for k in range(2)]
    again = restated(made, measured_on(known, made, steps, turns=False))
    assert again.document.tasks == made.document.tasks
    assert again.document.predicted.makespan_s == pytest.approx(fake.step(made, 1).wall_s, rel=0.02)
    assert again.check().ok
    assert (again.document.claims.status, again.document.claims.searched) == ("measured", False)
    assert "objective" not in plan_text(again)  # no model chose it
    assert "objective" in plan_text(made)
