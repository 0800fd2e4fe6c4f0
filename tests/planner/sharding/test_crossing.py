"""No plan is below what must be computed on one rank or wait for a transfer: against all plans of small chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Machine, Plan, load_machine, plan
from tapestry.planner.check import Code, check, crossing, wellformed
from tapestry.planner.check.bound import kinds_of as kinds_of_case
from tapestry.planner.check.report import Findings
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.sharding.crossing import _Stretches, crossing_seconds
from tapestry.planner.sharding.kinds import kinds_of
from tapestry.planner.simulate import simulate
from tapestry.planner.testing import plans
from tapestry.program import Operation, Program
from tapestry.space import Grid, IntSet, Region

from ..check import plans as by_hand
from ..check.test_bound import stating


@tp.program
def chain(x: f32[Tensor, "t n"], *, count: int = 3) -> Tensor:
    """Products that follow one another."""
    for k in range(count):
        n = x.shape[1]
        x = tp.einsum("tn,nm->tm", x, tp.param(f"w{k}", "f32", (n, n), axes=("n", "m")), name=f"layer{k}")
    return x


@tp.program
def branched(x: f32[Tensor, "t n"]) -> Tensor:
    """What is normed is read again afterwards."""
    y = tp.rms_norm(x, tp.param("scale", "f32", (x.shape[1],)))
    return x + tp.einsum("tn,nm->tm", y, tp.param("w", "f32", (x.shape[1], x.shape[1]), axes=("n", "m")), name="layer")


@tp.program
def attended(x: f32[Tensor, "t n"], *, causal: bool = False) -> Tensor:
    """Attention of one head."""
    q, k, v = (x[:, None, :] * float(scale) for scale in (1, 2, 3))
    return tp.attention(q, k, v, causal=causal, name="attention")


@tp.program
def seen(x: f32[Tensor, "t n"], *, causal: bool = True) -> Tensor:
    """A layer of attention."""
    n = x.shape[1]
    q, k, v = (
        tp.einsum("tn,nhe->the", x, tp.param(name, "f32", (n, 2, n // 2), axes=("n", "h", "e")), name=name)
        for name in "qkv"
    )
    back = tp.param("o", "f32", (2, n // 2, n), axes=("h", "e", "n"))
    return tp.einsum("the,hen->tn", tp.attention(q, k, v, causal=causal, name="attention"), back, name="out")


ROW, ROWS = chain.bind(t=1, n=256), chain.bind(t=8, n=128, count=2)
OTHERS = [
    branched.bind(t=2, n=256),
    seen.bind(t=4, n=64),
    attended.bind(t=16, n=64),
    attended.bind(t=16, n=64, causal=True),
]
LATENCIES = [0.0, 3e-6, 2e-5, 1e-3]


def machine(latency_s: float, hosts: int = 1, far_s: float = 0.0) -> Machine:
    """Two ranks a host; a transfer takes its latency."""
    base = load_machine("cpu-4")
    near = replace(base.links[0], gb_per_s=1e3, latency_s=latency_s, curve=())
    links = (near, replace(near, kind="wire", scope="cluster", latency_s=far_s)) if hosts > 1 else (near,)
    return replace(base, hosts=hosts, devices_per_host=2, links=links)


def shares(extents: Sequence[int], able: Sequence[int], ranks: int) -> Iterator[list[Region]]:
    """All of a box on each rank alone; cut along each axis that can be."""
    whole = Region.of(Grid(tuple(IntSet.interval(0, extent) for extent in extents)))
    for chosen in range(ranks):
        yield [whole if rank == chosen else Region() for rank in range(ranks)]
    for axis in able:
        if (extent := extents[axis]) >= ranks:
            spans = [IntSet.interval(k * extent // ranks, (k + 1) * extent // ranks) for k in range(ranks)]
            others = [IntSet.interval(0, extent) for extent in extents]
            yield [Region.of(Grid((*others[:axis], span, *others[axis + 1 :]))) for span in spans]


def cuts(op: Operation, ranks: int) -> list[list[Region]]:
    """The same of an operation's points, and all of them on every rank."""
    extents = list(op.extents.values())
    found = list(shares(extents, [k for k, dim in enumerate(op.dims) if dim.cut], ranks))
    return [*found, [Region.of(Grid(tuple(IntSet.interval(0, extent) for extent in extents)))] * ranks]


def every_plan(program: Program, on: Machine) -> Iterator[Plan]:
    """Operations on one rank, cut along one dimension or repeated, wherever the input lies."""
    ranks, (given,) = on.device_count, program.of_role("input")
    homes = shares(given.shape, range(len(given.shape)), ranks)
    for home, *chosen in product(homes, *(cuts(op, ranks) for op in program.operations)):
        parts = {op.name: mine for op, mine in zip(program.operations, chosen, strict=True)}
        yield plan_partitions(program, on, parts, homes={given.name: home})


def proved(program: Program, on: Machine) -> float:
    return crossing_seconds(program, kinds_of(program, on, on.device_count), on, on.device_count)


@cache
def quickest(name: str, latency_s: float) -> float:
    program = {"row": ROW, "rows": ROWS}[name]
    return min(made.simulate().makespan_s for made in every_plan(program, machine(latency_s)))


@pytest.mark.parametrize("latency_s", LATENCIES)
@pytest.mark.parametrize(("name", "program"), [("row", ROW), ("rows", ROWS)])
def test_no_plan_of_a_chain_on_two_ranks_is_below(name: str, program: Program, latency_s: float) -> None:
    assert proved(program, machine(latency_s)) <= quickest(name, latency_s)


def test_where_transfers_take_long_what_is_proved_is_one_rank_alone() -> None:
    """But for most of the last operation; where they take no time, nothing is."""
    assert proved(ROW, machine(1e-3)) > 2 / 3 * quickest("row", 1e-3)
    assert proved(ROW, machine(3e-6)) < 0.7 * proved(ROW, machine(1e-3))
    assert quickest("row", 0.0) < 0.8 * quickest("row", 1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_what_attention_reads_is_needed(causal: bool) -> None:
    """Of queries all heads; of keys and values all tokens, or one where a mask leaves others out."""
    program, on = seen.bind(t=2, n=256, causal=causal), machine(1e-3)
    one = plan(program, on, mesh=(1,), time_limit=600).document.predicted.makespan_s
    assert 0.8 * one < proved(program, on) <= one


def test_a_stretch_need_not_wait_where_one_rank_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound by which every stretch waits for a transfer is above a plan."""
    monkeypatch.setattr(_Stretches, "_takes", lambda stretches, alone: max(start for _, start in stretches.levels))
    assert proved(ROW, machine(1e-3)) > quickest("row", 1e-3)


def test_the_operation_that_a_stretch_begins_with_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of it may be computed before: a bound that counts it is above a plan."""
    back = _Stretches._back

    def with_first(stretches: _Stretches, end: int) -> Iterator[tuple[int, float]]:
        op = stretches.program.operations
        for start, seconds in back(stretches, end):
            yield start, seconds + (stretches._step(op[start], frozenset({1}))[0] if start >= 0 else 0.0)

    monkeypatch.setattr(_Stretches, "_back", with_first)
    assert proved(ROW, machine(1e-3)) > quickest("row", 1e-3)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([ROW, ROWS, *OTHERS]), st.sampled_from(LATENCIES), st.sampled_from(LATENCIES), st.data())
def test_no_plan_on_two_hosts_is_below(program: Program, near_s: float, more_s: float, data: st.DataObject) -> None:
    """Operations on some of the ranks, cut or repeated."""
    on, parts = machine(near_s, hosts=2, far_s=near_s + more_s), {}
    for op in program.operations:
        ranks = data.draw(st.sampled_from([[0, 1, 2, 3], [0, 1], [2, 3], [1, 2]]))
        mine = data.draw(st.sampled_from(cuts(op, len(ranks))))
        parts[op.name] = [mine[ranks.index(rank)] if rank in ranks else Region() for rank in range(4)]
    (given,) = program.of_role("input")
    home = data.draw(st.sampled_from([*shares(given.shape, range(len(given.shape)), 4)]))
    made = plan_partitions(program, on, parts, homes={given.name: home})
    assert proved(program, on) <= made.simulate().makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("name", by_hand.ALL)
@pytest.mark.parametrize("latency_s", [1e-9, 1e-7, 1e-5])
def test_no_plan_written_by_hand_is_below(name: str, latency_s: float) -> None:
    """In chunks, turns and stages, with work repeated or reductions split."""
    document = by_hand.ALL[name]()
    links = [{**link, "latency_s": latency_s} for link in document.machine["links"]]
    device = {**document.machine["device"], "launch_overhead_s": 1e-9}
    document = structs.replace(document, machine={**document.machine, "links": links, "device": device})
    case = wellformed.read(document, Findings())
    assert case is not None
    assert crossing.seconds(case, kinds_of_case(case)) <= simulate(document).makespan_s * (1 + 1e-9)


def test_hosts_apart_are_worth_less_than_ranks_of_one() -> None:
    near, far = proved(ROW, machine(3e-6, hosts=2, far_s=3e-6)), proved(ROW, machine(3e-6, hosts=2, far_s=1e-3))
    assert near <= far <= proved(ROW, machine(1e-3))


@settings(max_examples=60, deadline=None)
@given(plans())
def test_the_checker_finds_the_same(made: Plan) -> None:
    ranks, case = len(made.document.devices), wellformed.read(made.document, Findings())
    assert case is not None
    mine = crossing_seconds(made.program, kinds_of(made.program, made.machine, ranks), made.machine, ranks)
    assert crossing.seconds(case, kinds_of_case(case)) == pytest.approx(mine, rel=1e-12)


@pytest.mark.parametrize("latency_s", [4e-5, 1e-3])
def test_a_bound_by_what_crosses_is_proved_and_a_higher_one_is_not(latency_s: float) -> None:
    program = chain.bind(t=1, n=256, count=6)
    made = plan(program, machine(latency_s), mesh=(2,), time_limit=600)
    stated = made.document.bound
    assert stated is not None
    assert made.check().ok, str(made.check())
    assert stated.bound_s == pytest.approx(proved(program, made.machine))
    assert check(stating(made, stated.bound_s * 1.001, stated.chain)).codes == {Code.BOUND}
