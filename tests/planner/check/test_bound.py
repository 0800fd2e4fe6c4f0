"""A stated bound holds for every plan of the program on the machine, or it is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import Code, check, wellformed
from tapestry.planner.check.bound import kinds_of, least_seconds
from tapestry.planner.check.report import Findings
from tapestry.planner.format import Document, LowerBound
from tapestry.planner.machine.embed import machine_from_json
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.sharding.bound import lower_bound
from tapestry.planner.simulate import simulate
from tapestry.program import Program
from tapestry.serialize import program_from_json
from tapestry.space import Grid, IntSet, Region

from . import plans


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


CASES = [net.bind(n=8, c=16, k=8), net.bind(n=512, c=256, k=512), causal.bind(t=24, c=64), causal.bind(t=512, c=64)]


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
    bound = lower_bound(program, load_machine(machine), 4)
    assert bound.seconds <= made.simulate().makespan_s
    assert check(stating(made, bound.seconds, bound.chain)).ok


def stating(made: Plan, bound: float, chain: float = 0.0) -> Document:
    """The plan with another bound, and the gap that goes with it."""
    makespan = made.document.predicted.makespan_s
    return msgspec.structs.replace(made.document, bound=LowerBound(bound, (makespan - bound) / makespan, chain))


@pytest.mark.parametrize("mesh", [(1,), (4,), (2, 2)])
@pytest.mark.parametrize("program", CASES, ids=["small", "large", "causal", "long"])
def test_the_bound_of_a_plan_is_proved_and_a_higher_one_is_not(program: Program, mesh: tuple[int, ...]) -> None:
    made = plan(program, "cpu-4", mesh=mesh)
    assert made.document.bound is not None
    bound, chain = made.document.bound.bound_s, made.document.bound.chain
    assert bound > 0
    assert made.check().ok, made.check()
    assert check(stating(made, bound / 2, chain)).ok
    assert check(stating(made, bound * 1.001, chain)).codes == {Code.BOUND}


def test_one_rank_alone_may_beat_all_of_them_and_the_bound_knows() -> None:
    """Small work on many devices is all starts; a bound that charged every device for its start would be wrong."""
    program = CASES[0]
    on_one = plan_partitions(
        program, load_machine("h200x8"), {op.name: regions(program, op.name, 8, [0]) for op in program.operations}
    )
    everywhere = len(program.operations) * on_one.machine.device.launch_overhead_s
    assert check(stating(on_one, everywhere)).codes == {Code.BOUND}


def test_a_gap_that_is_none_is_refused() -> None:
    made = plan(CASES[0], "cpu-4", mesh=(4,))
    bound = made.document.bound
    assert bound is not None
    for gap in (-1.0, 0.0, bound.gap / 2):
        other = LowerBound(bound.bound_s, gap, bound.chain)
        assert check(msgspec.structs.replace(made.document, bound=other)).codes == {Code.GAP}


def test_a_chain_of_small_operations_takes_a_start_each() -> None:
    """However few points they have, and on however many devices: each waits for the one before."""
    made = plan(net.bind(n=8, c=8, k=8), "h200x8", mesh=(8,))
    starts = len(made.program.operations) * made.machine.device.launch_overhead_s
    bound = made.document.bound
    assert bound is not None
    assert bound.bound_s > 0.99 * starts
    assert made.check().ok


def test_tensors_without_axes_are_links_of_the_chain() -> None:
    """Planner and checker count a start and the bytes of each of six roots of one number."""

    @tp.program
    def roots(x: f32[Tensor, ""]) -> Tensor:
        for _ in range(6):
            x = tp.sqrt(x)
        return x

    made = plan(roots.bind(), "cpu-4", mesh=(4,))
    assert made.check().ok, str(made.check())


@pytest.mark.parametrize("name", plans.ALL)
@pytest.mark.parametrize("start_s", [1e-9, 1e-8, 1e-7])
def test_no_plan_written_by_hand_is_faster(name: str, start_s: float) -> None:
    """In chunks and stages, with work repeated or reductions split: whatever the weight of the chain."""
    document = plans.ALL[name]()
    device = {**document.machine["device"], "launch_overhead_s": start_s}
    document = msgspec.structs.replace(document, machine={**document.machine, "device": device})
    program, machine = program_from_json(document.program), machine_from_json(document.machine)
    makespan = simulate(document).makespan_s
    assert lower_bound(program, machine, len(document.devices)).seconds <= makespan
    case = wellformed.read(document, Findings())
    assert case is not None
    for weight in (0.0, 0.1, 0.5, 0.9, 0.999):
        assert least_seconds(case, kinds_of(case), weight) <= makespan * (1 + 1e-9)
