"""Places of slots: where there is memory enough, nothing waits for one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor
from tapestry.planner import Plan, load_machine
from tapestry.planner.format import Compute
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.lowering.memory import ALIGN
from tapestry.planner.search.candidates import best_candidate, fitting, least_peak
from tapestry.planner.search.explicit import decisions_of, plan_partitions
from tapestry.program import Program
from tapestry.space import Box, Region
from tapestry.testing import partitions

MACHINE, RANKS = load_machine("h200x8"), 4
AHEAD = (24, 12, 6, 3, 1, 0)


@tp.program
def layers(*, widths: tuple[int, ...], rows: int) -> Tensor:
    """Products and what is made of them; then back through the same weights, with what was kept on the way."""
    x, kept = tp.input("x", "f32", (rows, widths[0])), []
    for k, shape in enumerate(pairwise(widths)):
        kept.append((x, tp.param(f"w{k}", "f32", shape)))
        x = tp.exp(tp.einsum("nc,ck->nk", x, kept[-1][1], name=f"product{k}"), name=f"exp{k}")
    for k, (y, w) in enumerate(reversed(kept)):
        x = tp.multiply(tp.einsum("nk,ck->nc", x, w, name=f"back{k}"), y, name=f"slope{k}")
    return x


def quarters(*extents: int, axis: int = 0) -> list[Region]:
    """Equal parts along an axis."""

    def part(low: int, high: int) -> Region:
        ends = [(low, high) if k == axis else (0, n) for k, n in enumerate(extents)]
        return Box(tuple(low for low, _ in ends), tuple(high for _, high in ends)).region()

    return [part(*ends) for ends in pairwise(extents[axis] * rank // RANKS for rank in range(RANKS + 1))]


def without_waiting_for_memory(made: Plan) -> float:
    """Seconds of the tasks in their order, where each waits for what it reads alone."""
    timeline = made.simulate()
    ranks = {rank: k for k, alike in enumerate(timeline.classes) for rank in alike}
    writers: dict[str, list[int]] = {}
    ends: dict[int, dict[int, float]] = {}
    lanes: dict[tuple[str, int], float] = {}
    for task, run in zip(made.document.tasks, timeline.runs, strict=True):
        compute = isinstance(task, Compute)
        reads, write = (task.reads, task.write) if isinstance(task, Compute) else ((task.source,), task.target)
        mine = ranks if task.ranks is None else task.ranks
        before = [ends[writer] for name in reads for writer in writers.get(name, ())]
        start = {r: max([lanes.get((task.lane, r), 0.0), *(end.get(r, 0.0) for end in before)]) for r in mine}
        if not compute:
            start = dict.fromkeys(start, max(start.values()))
        ends[task.id] = {r: at + run.ends[ranks[r]] - run.starts[ranks[r]] for r, at in start.items()}
        lanes |= {(task.lane, r): end for r, end in ends[task.id].items()}
        writers.setdefault(write, []).append(task.id)
    return max(end for mine in ends.values() for end in mine.values())


programs = st.lists(st.integers(1, 6), min_size=2, max_size=5).map(
    lambda widths: layers.bind(widths=tuple(64 * n for n in widths), rows=256)
)
schedules = st.builds(Schedule, st.sampled_from(AHEAD), st.booleans(), st.booleans())


@settings(max_examples=40, deadline=None)
@given(programs, schedules, st.data())
def test_no_task_waits_for_memory_where_there_is_enough(
    program: Program, schedule: Schedule, data: st.DataObject
) -> None:
    shards = data.draw(partitions(program, RANKS))
    homes = {tensor.name: quarters(*tensor.shape) for tensor in program.of_role("param")}
    made = plan_partitions(program, MACHINE, shards, homes=homes, schedule=schedule)
    assert made.check().ok, str(made.check())
    assert made.document.predicted.makespan_s <= without_waiting_for_memory(made) * (1 + 1e-12)


@pytest.mark.parametrize("scarce", [False, True])
def test_no_schedule_that_is_tried_is_shorter_than_the_one_that_is_taken(*, scarce: bool) -> None:
    program = layers.bind(widths=(2048, 8192, 2048, 8192, 2048), rows=512)
    shards = {op.name: quarters(*op.extents.values(), axis=k // 2 % 2) for k, op in enumerate(program.operations)}
    homes = {tensor.name: quarters(*tensor.shape) for tensor in program.of_role("param")}
    question, decisions = decisions_of(program, MACHINE, shards, homes, {})
    if scarce:
        least = min(least_peak(question, decisions, Schedule(ahead)) for ahead in AHEAD)
        machine = MACHINE.with_memory({question.tier: least + ALIGN})
        question, decisions = decisions_of(program, machine, shards, homes, {})
    tried = [fitting(question, decisions, Schedule(ahead)) for ahead in AHEAD]
    assert (None in tried) is scarce
    best = best_candidate(question, decisions, 0.0)
    assert best.peak <= question.capacity
    assert best.timeline.makespan_s <= min(other.timeline.makespan_s for other in tried if other is not None)


@tp.program
def thrice(*, rows: int) -> Tensor:
    x = tp.input("x", "f32", (rows,))
    return tp.exp(tp.exp(tp.exp(x)))


def test_results_take_the_places_of_operands_on_ranks_that_are_not_equally_fast() -> None:
    program = thrice.bind(rows=1 << 16)
    parts = [Box((0,), (1 << 12,)).region(), Box((1 << 12,), (1 << 16,)).region()]
    made = plan_partitions(program, MACHINE, {op.name: parts for op in program.operations}, homes={"x": parts})
    tasks = [task for task in made.document.tasks if isinstance(task, Compute)]
    assert [task.over for task in tasks] == [task.reads[0] for task in tasks]
