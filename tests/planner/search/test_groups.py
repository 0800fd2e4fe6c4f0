"""Operations that depend on none of the others run side by side, each on some of the ranks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tapestry as tp
from tapestry import Tensor
from tapestry.planner import Machine, Plan, load_machine, plan
from tapestry.planner.check import check
from tapestry.planner.check.report import Code, Report
from tapestry.planner.cli.plan_text import plan_text
from tapestry.planner.explain import explain
from tapestry.planner.format import Compute
from tapestry.planner.lowering.decisions import Decisions
from tapestry.planner.search.candidates import decided
from tapestry.planner.search.groups import GroupCosts, Inner
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import Search, searched
from tapestry.planner.sharding.placement import ALL
from tapestry.planner.sharding.solving import Solution
from tapestry.planner.strategy.grouping import groupings
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close

TWO_HOSTS = replace(load_machine("h200x8-2node"), devices_per_host=2)


@tp.program
def chains(*, ways: int = 8, depth: int = 3, n: int = 512) -> dict[str, Tensor]:
    """Products that follow one another, several times over; the chains have nothing to do with one another."""
    found = {}
    for k in range(ways):
        y = tp.input(f"x{k}", "bf16", (n, n))
        for j in range(depth):
            y = y @ tp.param(f"w{k}_{j}", "bf16", (n, n))
        found[f"y{k}"] = y
    return found


@tp.program
def forked(*, ways: int = 4, depth: int = 3, n: int = 64) -> dict[str, Tensor]:
    """Branches from one tensor that are added up."""
    x = tp.input("x", "f32", (n, n))
    found = []
    for k in range(ways):
        y = x
        for j in range(depth):
            y = tp.relu(y @ tp.param(f"w{k}_{j}", "f32", (n, n)))
        found.append(y)
    total = found[0]
    for y in found[1:]:
        total = total + y
    return {"y": total}


def seconds(made: Plan) -> float:
    return made.document.predicted.makespan_s


def ranks_of(made: Plan) -> dict[str, tuple[int, ...] | None]:
    return {task.op: task.ranks for task in made.document.tasks if isinstance(task, Compute)}


def runs(made: Plan, program: Program) -> None:
    rng = np.random.default_rng(0)
    given = program.of_role("input", "param")
    inputs = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in given}
    assert_close(program, inputs, made.run(inputs, engine="local").outputs, evaluate(program, inputs))


@pytest.mark.parametrize("mesh", [(8,), None])
def test_eight_chains_run_one_a_rank(mesh: tuple[int, ...] | None) -> None:
    one = plan(chains.bind(ways=1), "h200", time_limit=600)
    made = plan(chains.bind(), "h200x8", mesh=mesh, time_limit=600)
    assert seconds(made) <= 1.2 * seconds(one)  # eight devices at work may each be slower than one
    assert set(ranks_of(made).values()) == {(k,) for k in range(8)}
    assert made.check().ok, str(made.check())


def test_branches_of_one_tensor_run_beside_one_another() -> None:
    """Where starts of tasks are what takes time, and messages take little."""
    machine = load_machine("cpu-4")
    near = replace(machine, links=tuple(replace(link, latency_s=2e-6) for link in machine.links))
    program = forked.bind(n=16)
    made = plan(program, near, mesh=(4,), time_limit=600)
    one = plan(forked.bind(n=16, ways=1), near, mesh=(1,), time_limit=600)
    assert seconds(made) <= seconds(one) + 3 * (2 * 2e-6 + machine.device.launch_overhead_s * 1.5)
    on = ranks_of(made)
    for k in range(4):
        assert len({on[op.name] for op in program.operations if f"w{k}_" in "".join(op.operands)}) == 1
    assert len(set(on.values())) >= 4
    assert made.check().ok, str(made.check())
    runs(made, program)


def slow_hosts(ranks: int, gb_per_s: float) -> Machine:
    """Two hosts, with little between them."""
    links = tuple(replace(link, gb_per_s=gb_per_s) if link.scope == "cluster" else link for link in TWO_HOSTS.links)
    return replace(TWO_HOSTS, devices_per_host=ranks, links=links)


@pytest.mark.parametrize(("mesh", "alone"), [((2, 2), (2,)), ((2, 1, 2), (1, 2)), ((2, 2, 2), (2, 2))])
@pytest.mark.parametrize("gb_per_s", [0.001, 6.25])
def test_a_mesh_takes_no_longer_than_one_of_its_hosts(
    mesh: tuple[int, ...], alone: tuple[int, ...], gb_per_s: float
) -> None:
    """Whose ranks do all of it where the others would only be in the way."""
    program, machine = forked.bind(n=256, ways=2), slow_hosts(prod(alone), gb_per_s)
    made, one = (plan(program, machine, mesh=rows, time_limit=600) for rows in (mesh, alone))
    assert seconds(made) <= seconds(one)
    assert made.check().ok, str(made.check())
    runs(made, program)


def test_what_fits_on_no_host_alone_is_on_all() -> None:
    program, machine = forked.bind(n=256, ways=2), slow_hosts(2, 0.001)
    weights = sum(tensor.nbytes for tensor in program.of_role("param"))
    tight = machine.with_memory({"hbm": weights // 2})
    made = plan(program, tight, mesh=(2, 2), time_limit=600)
    assert {rank for ranks in ranks_of(made).values() for rank in ranks or range(4)} == {0, 1, 2, 3}
    assert made.check().ok, str(made.check())


def test_ranks_are_named() -> None:
    made = short_chains()
    assert "on mesh0 = 7" in plan_text(made)
    [row] = explain(made.resolved, "matmul_3").rows
    place = made.document.shardings["matmul_3"].only
    assert place
    assert row.strategy == f"on mesh0 = {place['mesh0']}"


def test_what_has_nothing_beside_it_stays_on_all_ranks() -> None:
    made = plan(chains.bind(ways=1, n=4096), "h200x8", mesh=(8,), time_limit=600)
    assert set(ranks_of(made).values()) == {None}


@settings(max_examples=25)
@given(st.data())
def test_crossing_takes_no_less_than_said(data: st.DataObject) -> None:
    """Between all ranks and a group, whatever either is cut into."""
    machine, mesh = data.draw(st.sampled_from([(load_machine("h200x8"), (2, 2, 2)), (TWO_HOSTS, (2, 2))]))
    search = asked(machine, mesh)
    grouping = data.draw(st.sampled_from(groupings(search.question.mesh, machine)))
    alone = asked(machine, grouping.inner.shape)
    everywhere, within = (chosen(data, each) for each in (search, alone))
    cuts = {name: found.cuts for name, found in within.strategies.items()}
    inner = Inner(cuts, within.homes, within.ends, Solution("feasible", {}, 1, 0))
    costs = GroupCosts(search.question, grouping, everywhere, inner)
    for op in search.question.program.operations:
        for name in (name for name in op.operands if name in search.question.program.producer):
            for group in range(costs.count):
                assert costs.crossing(name, op, onto=True) <= costs.moving(name, ALL, op, group)
                assert costs.crossing(name, op, onto=False) <= costs.moving(name, group, op, ALL)


@cache
def asked(machine: Machine, mesh: tuple[int, ...]) -> Search:
    return searched(Question.of(forked.bind(ways=2), machine, Mesh.of(mesh, 8), time_limit=600))


def chosen(data: st.DataObject, search: Search) -> Decisions:
    nodes = search.model.nodes
    return decided(nodes, [data.draw(st.integers(0, len(node.labels) - 1)) for node in nodes])


@cache
def short_chains() -> Plan:
    return plan(chains.bind(depth=2), "h200x8", mesh=(8,), time_limit=600)


def sharded(places: dict[str, int]) -> Report:
    made = short_chains()
    stated = made.document.shardings["matmul"]
    wrong = {**made.document.shardings, "matmul": structs.replace(stated, only=places)}
    return check(structs.replace(made.document, shardings=wrong))


@pytest.mark.parametrize("places", [{"mesh0": 7}, {"mesh0": 8}, {"mesh1": 0}, {}])
def test_the_stated_place_is_proved(places: dict[str, int]) -> None:
    """It is computed on another coordinate, or there is no such coordinate or axis, or none is stated."""
    assert sharded(places).codes == {Code.SHARDING}
