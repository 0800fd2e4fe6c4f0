"""Every operation is explained, and what an alternative is said to cost is what planning it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.planner.explain import Alternative, Explainer
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.simulate import Prices
from tapestry.planner.strategy.mesh import Cut
from tapestry.planner.views.text import plan_text
from tapestry.program import Pin, Program

from .search.named import CASES as NAMED
from .search.named import Described

DESCRIBED = Described(4)


@tp.program
def branched(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]], v: param[f32[Tensor, "k k"]]) -> Tensor:
    """A tensor with two readers, a window, a fold that can be cut, and a fold at the end."""
    h = tp.relu(x) @ w
    wide = tp.pad(h, (1, 0))[:-2] + h
    return tp.sum((wide @ v) * h, axis=0)


PROGRAM = branched.bind(n=24, c=16, k=20)
CASES = [("cpu-4", (4,), "time"), ("cpu-4", (4,), "bytes"), ("cpu-4", (2, 2), "time"), ("h200x8", (3,), "time")]


def pinned(explainer: Explainer, program: Program, changed: dict[str, tuple[Cut | None, ...]]) -> tuple[Pin, ...]:
    """Every operation as it is, but for the changed ones; every source where it lies."""
    axes = explainer.mesh.axes
    pins = []
    for op in program.operations:
        cuts = changed.get(op.name, explainer.chosen(op).cuts)
        named = tuple((axis, None if c is None else c.dim) for axis, c in zip(axes, cuts, strict=True))
        pins.append(Pin("op", op.name, named))
    return tuple(pins)


def spent(made: Plan) -> tuple[float, int]:
    """Seconds of all tasks added up, a compute task by its slowest rank, and the bytes moved."""
    prices = Prices(made.resolved)
    seconds = 0.0
    for task in made.document.tasks:
        seconds += max(prices.compute(task)).seconds if isinstance(task, Compute) else 0.0
        seconds += prices.move(task).seconds if isinstance(task, Transfer) else 0.0
    return seconds, made.document.traffic.bytes_total


def homes(made: Plan) -> dict[str, tuple[str, ...]]:
    """Where every source lies before the run."""
    return {b.tensor: made.document.layouts[b.initial].regions for b in made.document.buffers if b.initial is not None}


@pytest.mark.parametrize(("machine", "mesh", "objective"), CASES)
def test_an_alternative_costs_what_planning_it_costs(machine: str, mesh: tuple[int, ...], objective: str) -> None:
    """Of operations that are whole: sums know nothing of what pieces hide."""
    made = plan(PROGRAM, machine, mesh=mesh, objective=objective, pieces=False)
    explainer = Explainer(made.resolved)
    before = spent(made)
    compared = 0
    for op in PROGRAM.operations:
        said: dict[str, Alternative] = {other.strategy: other for other in explainer.row(op).others}
        candidates = explainer.table.candidates(op)
        for cuts in candidates[:: 1 + len(candidates) // 8]:
            other = said.get(explainer.name_of(op, explainer.table.strategy(op, cuts)))
            if other is None:
                continue
            again = plan(PROGRAM, machine, mesh=mesh, pins=pinned(explainer, PROGRAM, {op.name: cuts}), pieces=False)
            if homes(again) != homes(made):  # a source moved along: that is more than one decision
                continue
            compared += 1
            after = spent(again)
            assert after[1] - before[1] >= other.extra_bytes, (op.name, other)
            if objective == "bytes":  # else of ends that take equally long any may be planned; the least is named
                assert after[1] - before[1] == other.extra_bytes, (op.name, other)
            assert after[0] - before[0] == pytest.approx(other.extra_s, rel=1e-9, abs=1e-15), (op.name, other)
    assert compared >= 4


@pytest.mark.parametrize(("machine", "mesh", "objective"), CASES)
def test_every_operation_has_a_row(machine: str, mesh: tuple[int, ...], objective: str) -> None:
    made = plan(PROGRAM, machine, mesh=mesh, objective=objective)
    found = made.explain()
    assert [row.op for row in found.rows] == [op.name for op in PROGRAM.operations]
    assert found.objective == objective
    for row in found.rows:
        assert row.compute_s > 0
        assert row.next_best == row.others[0]
        assert row.strategy not in [other.strategy for other in row.others]
        key = [(o.extra_bytes, o.extra_s) if objective == "bytes" else (o.extra_s, o.extra_bytes) for o in row.others]
        assert key == sorted(key)
        assert row.op in str(found)


def test_what_comes_in_is_what_the_plan_moves() -> None:
    made = plan(PROGRAM, "cpu-4", pins=(Pin("tensor", "x", (("mesh0", "n"),)), Pin("op", "relu", (("mesh0", "c"),))))
    (row,) = made.explain("relu").rows
    (incoming,) = row.incoming
    assert (incoming.tensor, incoming.kind) == ("x", "all_to_all")
    assert incoming.bytes_moved == 4 * (24 * 16 - 24 * 16 // 4)


def test_one_operation_shows_all_its_alternatives() -> None:
    made = plan(PROGRAM, "cpu-4", mesh=(4,))
    name = PROGRAM.operations[1].name
    lines = str(made.explain(name)).splitlines()
    (row,) = made.explain(name).rows
    assert sum(line.startswith("  instead ") for line in lines) == len(row.others) > 1


def test_plain_data_for_scripts() -> None:
    data = plan(PROGRAM, "cpu-4", mesh=(4,)).explain().to_json()
    assert data["objective"] == "time"
    rows = data["rows"]
    assert isinstance(rows, tuple)
    assert {"op", "strategy", "compute_s", "incoming", "next_best"} <= rows[0].keys()


def test_an_operation_that_is_not_there() -> None:
    made = plan(PROGRAM, "cpu-4", mesh=(4,))
    with pytest.raises(UsageError, match="no operation 'reluu'") as failed:
        made.explain("reluu")
    assert "did you mean 'relu'" in str(failed.value)


def test_the_name_of_a_composite_explains_its_operations() -> None:
    @tp.program
    def normed(x: f32[Tensor, "n c"]) -> Tensor:
        return tp.softmax(x) * 2.0

    made = plan(normed.bind(n=4, c=3), "cpu-4", mesh=(2,))
    ops = [row.op for row in made.explain("softmax").rows]
    assert ops == [op.name for op in made.program.operations if op.name.startswith("softmax.")]
    assert len(ops) > 1
    with pytest.raises(UsageError, match="no operation 'soft'"):
        made.explain("soft")


def test_what_the_data_say_is_moved_as_a_hull_and_named_so() -> None:
    @tp.program
    def lookup(table: f32[Tensor, "v d"], ids: tp.int32[Tensor, "t"]) -> Tensor:
        return tp.embedding(ids, tp.shard(table, mesh0="v"))

    pins = [Pin("op", "embedding", (("mesh0", "t"),))]
    made = plan(lookup.bind(v=64, d=16, t=4096), "cpu-4", mesh=(4,), pins=pins)
    (row,) = made.explain("embedding").rows
    assert [item.data_dependent for item in row.incoming if item.tensor == "table"] == [True]
    assert "table: all_gather" in str(made.explain())
    assert "a hull: the data say what of it counts" in str(made.explain())
    assert "read where the data say: needs are hulls" in plan_text(made)


def test_an_alternative_is_simulated() -> None:
    """Pinned so, and planned, the step takes no longer: planning may choose another order too."""
    made = plan(PROGRAM, "cpu-4", mesh=(4,))
    explainer, equal = Explainer(made.resolved), 0
    for op in PROGRAM.operations:
        (row,) = made.explain(op.name).rows
        assert all(other.simulated for other in row.others)
        table = explainer.table
        strategies = {explainer.name_of(op, table.strategy(op, cuts)): cuts for cuts in table.candidates(op)}
        for other in row.others[:2]:
            pins = pinned(explainer, PROGRAM, {op.name: strategies[other.strategy]})
            again = plan(PROGRAM, "cpu-4", mesh=(4,), pins=pins)
            if homes(again) == homes(made):
                extra = again.document.predicted.makespan_s - made.document.predicted.makespan_s
                assert extra <= other.extra_s + 1e-12, (op.name, other)
                equal += extra == pytest.approx(other.extra_s, rel=1e-6, abs=1e-12)
    assert equal >= 4


def test_alternatives_that_overlap_hides_cost_less_than_they_add_up_to() -> None:
    """A transfer that runs beside other work counts in a sum and not in a step."""

    @tp.program
    def beside(x: f32[Tensor, "t d"], w: param[f32[Tensor, "d d"]], v: param[f32[Tensor, "t d"]]) -> Tensor:
        return tp.tanh(v) + tp.relu(x @ w) @ w

    machine = DESCRIBED.machine()
    made = plan(beside.bind(t=256, d=128), replace(machine, device=replace(machine.device, overlap=True)), mesh=(4,))
    explainer = Explainer(made.resolved)
    op = made.program.op_by_name["tanh"]
    chosen = explainer.chosen(op)
    added = {
        explainer.name_of(op, other): explainer.cost(op, other)[0] - explainer.cost(op, chosen)[0]
        for other in (explainer.table.strategy(op, cuts) for cuts in explainer.table.candidates(op))
    }
    (row,) = made.explain("tanh").rows
    (other,) = (other for other in row.others if other.strategy == "cut d over mesh0")
    assert other.extra_s < 0.6 * added[other.strategy]


def test_the_memory_that_is_full_is_named_with_its_task() -> None:
    case = next(case for case in NAMED if case.name == "FSDP")
    made = case.plan()
    binding = made.explain().binding
    assert binding is not None
    (full,) = binding.memory
    assert full.used == made.document.peak_bytes["0"]["memory"]
    assert full.capacity == case.machine.memory
    assert full.task.startswith("matmul")
    assert {"x", "w0"} <= {name for name, _ in full.largest}
    assert f"memory: {full.used / 2**10:.4g} KiB of" in str(made.explain())
    assert made.explain("matmul").binding is None


def test_what_more_memory_buys_is_planned_again() -> None:
    case = next(case for case in NAMED if case.name == "FSDP")
    binding = case.plan().explain(more="64KiB").binding
    assert binding is not None
    assert binding.more is not None
    roomy = plan(case.program, replace(case.machine, memory=case.machine.memory + 2**16).machine(), mesh=case.mesh)
    assert binding.more.makespan_s == roomy.document.predicted.makespan_s < 0.5 * binding.makespan_s


def test_what_a_faster_link_saves_is_simulated() -> None:
    case = next(case for case in NAMED if case.name == "spatial, with halos")
    binding = case.plan().explain().binding
    assert binding is not None
    (link,) = binding.links
    other = replace(case.machine, gb_per_s=case.machine.gb_per_s + 1).machine()
    quicker = plan(case.program, other, mesh=case.mesh)
    assert link.saves_s == pytest.approx(binding.makespan_s - quicker.document.predicted.makespan_s)
    assert link.nbytes == case.traffic
