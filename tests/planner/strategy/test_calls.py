"""Operations that one call of a library makes: cut alike where the machine says so, and priced by the whole call where
they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replaced

import tapestry as tp
from tapestry import Tensor, bf16, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.machine import DeviceModel, Machine
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import searched
from tapestry.planner.sharding.model import Model
from tapestry.planner.sharding.nodes import OperationNode
from tapestry.planner.strategy.calls import calls_of
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Pin, Program

MACHINE = load_machine("h200x2")


@tp.program
def slopes(
    q: param[bf16[Tensor, "t=2048 h=8 e=128"]],
    k: param[bf16[Tensor, "s=2048 g=8 e=128"]],
    v: param[bf16[Tensor, "s=2048 g=8 e=128"]],
) -> dict[str, Tensor]:
    @tp.program
    def loss(
        q: param[bf16[Tensor, "t h e"]], k: param[bf16[Tensor, "s g e"]], v: param[bf16[Tensor, "s g e"]]
    ) -> Tensor:
        return tp.sum(tp.attention(q, k, v, causal=True).astype("f32"))

    value, found = tp.value_and_grad(loss, wrt=("q", "k", "v"))(q, k, v)
    return {"loss": value, **{f"d_{name}": slope for name, slope in found.items()}}


def made(machine: Machine, **cuts: str) -> Plan:
    pins = [Pin("op", f"*slopes_{side}", (("mesh0", dim),)) for side, dim in cuts.items()]
    return plan(program(), machine, mesh=(2,), pins=pins, time_limit=20)


def program() -> Program:
    return slopes.bind()


def sloped(found: Plan) -> list[dict[str, str]]:
    shardings = found.document.shardings
    return [dict(shardings[name].partition) for name in sorted(shardings) if "slopes" in name]


def unmeasured(device: DeviceModel) -> DeviceModel:
    """The same without what was measured of slopes."""
    paces = [
        replace(
            pace,
            curves=tuple(curve for curve in pace.curves if curve.kernel != "slopes"),
            shapes=tuple(table for table in pace.shapes if table.kernel != "slopes"),
        )
        for pace in device.paces
    ]
    return replace(device, paces=tuple(paces), peak=tuple(rate for rate in device.peak if rate.kernel != "slopes"))


def test_slopes_of_one_attention_are_of_one_call_where_that_was_measured() -> None:
    (call,) = calls_of(program(), MACHINE)
    assert len(call.operations) == call.shares == 3
    assert not calls_of(program(), replace(MACHINE, device=unmeasured(MACHINE.device)))
    assert not calls_of(program(), load_machine("cpu-4"))


def test_they_are_cut_alike() -> None:
    heads = {"h": "g"}  # as many of queries as of keys, by two names
    first, *others = ({heads.get(dim, dim): how for dim, how in one.items()} for one in sloped(made(MACHINE)))
    assert first
    assert others == [first, first]


def model(*pins: Pin) -> Model:
    """What the solver is asked."""
    return searched(Question.of(program(), MACHINE, Mesh((2,), ("mesh0",), ()), pins=pins)).model


def test_the_solver_may_not_cut_them_otherwise_where_all_can_be_cut_alike() -> None:
    found = model()
    assert len(found.together) == 2
    for one, other, may in found.together:
        mine, theirs = found.nodes[one], found.nodes[other]
        assert isinstance(mine, OperationNode)
        assert isinstance(theirs, OperationNode)
        for (i, j), together in np.ndenumerate(may):
            turning = mine.strategies[i].turns or theirs.strategies[j].turns
            assert bool(together) == (mine.needs[i] == theirs.needs[j] or turning is not None)
        assert may.any()
        assert not may.all()


def test_pins_that_cut_them_otherwise_are_kept() -> None:
    cut = {"q": "t", "v": "s"}
    pins = [Pin("op", f"*slopes_{side}", (("mesh0", dim),)) for side, dim in cut.items()]
    assert not model(*pins).together
    found = made(MACHINE, **cut)
    assert found.check().ok
    assert min(seconds for kernel in found.document.claims.kernels for seconds in kernel.seconds) >= 0


def seconds(found: Plan) -> dict[str, float]:
    """By operation what its tasks are predicted to take, on the rank that takes longest."""
    taken: dict[str, dict[int, float]] = {}
    for event in found.simulate().events:
        if event.lane == "compute":
            of_ranks = taken.setdefault(event.name, {})
            of_ranks[event.rank] = of_ranks.get(event.rank, 0.0) + event.end_s - event.start_s
    return {name: max(ranks.values()) for name, ranks in taken.items()}


def test_one_that_is_cut_otherwise_takes_a_call_of_its_own() -> None:
    alike, apart = made(MACHINE, q="h", k="g", v="g"), made(MACHINE, q="t", k="g", v="g")
    assert alike.check().ok
    assert apart.check().ok
    together, alone = seconds(alike), seconds(apart)
    start = MACHINE.device.start_s(2)
    for side in "kv":  # two of the call instead of three
        name = next(name for name in together if name.endswith(f"slopes_{side}"))
        assert alone[name] - start == pytest.approx(1.5 * (together[name] - start), rel=1e-6)
    rows = {row.op: row for row in apart.explain().rows}
    for name, took in alone.items():
        if "slopes" in name:
            assert rows[name].compute_s == pytest.approx(took, rel=1e-6)
    best = next(row for name, row in rows.items() if name.endswith("slopes_q")).next_best
    assert best is not None
    assert "h" in best.strategy
    claimed = {kernel.task for kernel in apart.document.claims.kernels}
    assert len(claimed) >= 3
    assert apart.simulate().makespan_s > alike.simulate().makespan_s


def test_a_plan_that_says_less_of_it_than_the_machine_is_refused() -> None:
    apart = made(MACHINE, q="t", k="g", v="g")
    kernels = tuple(
        type(kernel)(kernel.task, tuple(0.1 * each for each in kernel.seconds))
        for kernel in apart.document.claims.kernels
    )
    claims = replaced(apart.document.claims, kernels=kernels)
    report = Plan(replaced(apart.document, claims=claims), apart.program).check()
    assert not report.ok
    assert "claims.kernels says less" in str(report)
