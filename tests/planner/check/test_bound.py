"""A stated bound holds for every plan of the program on the machine, or it is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import Code, check
from tapestry.planner.format import Document, LowerBound
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.sharding.bound import lower_bound_seconds
from tapestry.program import Program
from tapestry.space import Grid, IntSet, Region


@tp.program
def net(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.tanh(tp.relu(x) @ w)


@tp.op
def below(x: f32[Tensor, "t c"]) -> f32[Tensor, "t c"]:
    t, c, s = tp.indices("t c s")
    return tp.sum[s](x[s, c], where=s <= t)


@tp.program
def causal(x: f32[Tensor, "t c"]) -> Tensor:
    return below(tp.exp(x)) + 1.0


CASES = [net.bind(n=8, c=16, k=8), net.bind(n=512, c=256, k=512), causal.bind(t=24, c=64)]


def regions(program: Program, op: str, ranks: int, busy: list[int]) -> list[Region]:
    """The first dimension cut evenly among some of the ranks; the others have nothing to do."""
    extents = [dim.extent for dim in program.op_by_name[op].dims]
    found = [Region() for _ in range(ranks)]
    for k, rank in enumerate(busy):
        first = IntSet.interval(k * extents[0] // len(busy), (k + 1) * extents[0] // len(busy))
        found[rank] = Region.of(Grid((first, *(IntSet.interval(0, n) for n in extents[1:]))))
    return found


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CASES), st.sampled_from(["cpu-4", "h200x8"]), st.data())
def test_no_plan_on_any_subset_of_the_ranks_is_faster(program: Program, machine: str, data: st.DataObject) -> None:
    some = st.lists(st.sampled_from(range(4)), min_size=1, max_size=4, unique=True)
    shards = {op.name: regions(program, op.name, 4, data.draw(some)) for op in program.operations}
    made = plan_partitions(program, load_machine(machine), shards)
    assert lower_bound_seconds(program, load_machine(machine), 4) <= made.simulate().makespan_s
    assert check(stating(made, lower_bound_seconds(program, load_machine(machine), 4))).ok


def stating(made: Plan, bound: float) -> Document:
    """The plan with another bound, and the gap that goes with it."""
    makespan = made.document.predicted.makespan_s
    return msgspec.structs.replace(made.document, bound=LowerBound(bound, (makespan - bound) / makespan))


@pytest.mark.parametrize("mesh", [(1,), (4,), (2, 2)])
@pytest.mark.parametrize("program", CASES, ids=["small", "large", "causal"])
def test_the_bound_of_a_plan_is_proved_and_a_higher_one_is_not(program: Program, mesh: tuple[int, ...]) -> None:
    made = plan(program, "cpu-4", mesh=mesh)
    assert made.document.bound is not None
    bound = made.document.bound.bound_s
    assert bound > 0
    assert made.check().ok, made.check()
    assert check(stating(made, bound / 2)).ok
    assert check(stating(made, bound * 1.001)).codes == {Code.BOUND}


def test_one_rank_alone_may_beat_all_of_them_and_the_bound_knows() -> None:
    """Small work on many devices is all starts; a bound that charged every device for its start would be wrong."""
    program = CASES[0]
    on_one = plan_partitions(
        program, load_machine("h200x8"), {op.name: regions(program, op.name, 8, [0]) for op in program.operations}
    )
    everywhere = len(program.operations) * on_one.machine.device.launch_overhead_s
    assert check(stating(on_one, everywhere)).codes == {Code.BOUND}


def test_a_gap_that_is_none_is_refused() -> None:
    made = plan(CASES[0], "cpu-4")
    bound = made.document.bound
    assert bound is not None
    for gap in (-1.0, 0.0, bound.gap / 2):
        assert check(msgspec.structs.replace(made.document, bound=LowerBound(bound.bound_s, gap))).codes == {Code.GAP}
