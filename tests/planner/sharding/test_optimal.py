"""The solver against brute force over every combination of strategies, and the bound against every plan found."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import Infeasible
from tapestry.planner import load_machine, plan
from tapestry.planner.clock import Clock
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.candidates import decide, lower
from tapestry.planner.search.question import Question
from tapestry.planner.sharding.assignment import UNLIMITED, Translation
from tapestry.planner.sharding.bound import lower_bound
from tapestry.planner.sharding.model import Costs, Model, build_model, evaluate, memory_at
from tapestry.planner.sharding.nodes import all_nodes
from tapestry.planner.sharding.repetition import Repetitions, find_repetitions
from tapestry.planner.sharding.solving import Solution, solve
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program


@tp.program
def small(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.relu(tp.einsum("nc,ck->nk", x, w))


@tp.program
def shared(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c c"]]) -> Tensor:
    """One tensor with two consumers that may want different layouts."""
    y = tp.relu(x)
    return tp.einsum("nc,nk->ck", y, y) + w


@tp.program
def folded(x: f32[Tensor, "n c"]) -> Tensor:
    return tp.tanh(x) - tp.sum(x, axis=1, keepdims=True)


@tp.program
def layered(x: f32[Tensor, "n c"], *, layers: int = 3) -> Tensor:
    for k in range(layers):
        x = tp.einsum("nc,ck->nk", x, tp.param(f"w{k}", "f32", (x.shape[1], x.shape[1])), name=f"product{k}")
    return x


@tp.program
def updated(x: f32[Tensor, "n c"], w: tp.state[f32[Tensor, "n c"]]) -> Tensor:
    """A state that is updated in two operations, and values in the place of one another."""
    tp.update(w, 0.5 * w + x)
    return tp.relu(x + 1.0)


def context(program: Program, machine: str, mesh: tuple[int, ...], objective: str) -> Question:
    model = load_machine(machine)
    return Question.of(program, model, Mesh.of(mesh, model.device_count), objective)


def modelled(c: Question, tied: bool = True) -> Model:
    nodes = all_nodes(c.program, c.table, c.objective, (), c.clock)
    repetition = find_repetitions(c.program) if tied else Repetitions(())
    return build_model(c.program, nodes, repetition, c.pricing, c.objective)


def solved(model: Model, exposed: int = 2, capacity: int = UNLIMITED) -> Solution:
    return solve(Translation(model, Clock(600)), capacity, time_limit=600, seed=0, jobs=1, exposed=exposed)


def brute_force(model: Model, capacity: int) -> int | None:
    """The least objective of all choices whose memory fits, by trying them all."""
    free = sorted(set(model.tied_to))
    best = None
    for options in product(*(range(len(model.nodes[node].labels)) for node in free)):
        choice = dict(zip(free, options, strict=True))
        if any(sum(memory_at(model, choice, instant).values()) > capacity for instant in model.instants):
            continue
        value = evaluate(model, choice)[0]
        best = value if best is None else min(best, value)
    return best


CASES = [
    (small, {"n": 12, "c": 8, "k": 6}),
    (small, {"n": 5, "c": 64, "k": 512}),
    (small, {"n": 512, "c": 64, "k": 5}),
    (shared, {"n": 16, "c": 4}),
    (folded, {"n": 6, "c": 10}),
    (layered, {"n": 16, "c": 8, "layers": 2}),
    (updated, {"n": 8, "c": 4}),
]


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("machine", ["cpu-4", "h200x8"])
@pytest.mark.parametrize(("program", "extents"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_solver_equals_brute_force(program, extents, machine, objective) -> None:  # type: ignore[no-untyped-def]
    model = modelled(context(program.bind(**extents), machine, (4,), objective))
    found = solved(model)
    assert found.status == "optimal"
    assert found.objective == found.bound == evaluate(model, found.choice)[0] == brute_force(model, UNLIMITED)


@settings(max_examples=25)
@given(st.data())
def test_solver_equals_brute_force_under_tight_memory(data: st.DataObject) -> None:
    program, extents = data.draw(st.sampled_from([*CASES[:2], CASES[-1]]))
    model = modelled(context(program.bind(**extents), "cpu-4", (data.draw(st.sampled_from([2, 4])),), "time"))
    free = sorted(set(model.tied_to))
    some = {node: data.draw(st.integers(0, len(model.nodes[node].labels) - 1)) for node in free}
    peak = max(sum(memory_at(model, some, instant).values()) for instant in model.instants)
    capacity = peak - data.draw(st.sampled_from([0, 1, 256]))
    best = brute_force(model, capacity)
    found = solved(model, capacity=capacity)
    assert (found.status == "infeasible") == (best is None)
    if best is not None:
        # A row of memory may count a moved copy a little longer than it lives, never shorter.
        assert found.objective >= best
        held = max(sum(memory_at(model, found.choice, instant).values()) for instant in model.instants)
        assert held <= capacity


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize(("program", "extents"), [CASES[3], (layered, {"n": 16, "c": 8, "layers": 4})])
def test_what_is_looked_up_costs_what_is_evaluated(program, extents, objective) -> None:  # type: ignore[no-untyped-def]
    """One decision after another changed, of tied layers too: each choice costs what it does by itself."""
    model = modelled(context(program.bind(**extents), "h200x8", (2, 2), objective))
    choice, costs = dict.fromkeys(sorted(set(model.tied_to)), 0), Costs(model)
    for node in choice:
        for option in range(len(model.nodes[node].labels)):
            other = {**choice, node: option}
            assert costs.of(other) == evaluate(model, other)[0]
        choice[node] = len(model.nodes[node].labels) // 2


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_tied_layers_cost_what_untied_ones_do(mesh: tuple[int, ...]) -> None:
    """Tying loses nothing on layers that are alike."""
    c = context(layered.bind(n=64, c=32, layers=5), "cpu-4", mesh, "time")
    tied, untied = modelled(c), modelled(c, tied=False)
    assert len(set(tied.tied_to)) < len(set(untied.tied_to))
    results = [solved(m) for m in (tied, untied)]
    assert results[0].objective == results[1].objective


@settings(max_examples=60)
@given(st.data())
def test_the_bound_is_below_every_plan(data: st.DataObject) -> None:
    program, extents = data.draw(st.sampled_from(CASES))
    c = context(program.bind(**extents), data.draw(st.sampled_from(["cpu-4", "h200x8"])), (4,), "time")
    model = modelled(c)
    choice = {node: data.draw(st.integers(0, len(model.nodes[node].labels) - 1)) for node in sorted(set(model.tied_to))}
    candidate = lower(c, decide(model.nodes, model, choice), Schedule())
    assert lower_bound(c.program, c.machine, c.mesh.size).seconds <= candidate.timeline.makespan_s


def test_the_least_budget_is_enough_and_less_is_not() -> None:
    program = layered.bind(n=64, c=128, layers=4)
    machine = load_machine("h200x8")
    with pytest.raises(Infeasible) as failed:
        plan(program, machine, memory={"hbm": 1000})
    assert failed.value.hint is not None
    budget = failed.value.hint.split("hbm=")[1].split(" ")[0]
    assert "w" in str(failed.value.sides["largest"]) or "product" in str(failed.value.sides["largest"])
    assert plan(program, machine, memory={"hbm": budget}).check().ok
