"""A chain on hosts with a slow link between them: stages, and a batch that goes through them in pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.machine import Machine
from tapestry.planner.sharding.stages import Chain, carried, stages
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close


@tp.program
def layers(*, count: int = 8, rows: int = 256, n: int = 1024) -> Tensor:
    """Products that follow one another, all alike."""
    y = tp.input("x", "f32", (rows, n))
    for k in range(count):
        y = tp.einsum("nc,ck->nk", y, tp.param(f"w{k}", "f32", (n, n)), name=f"layer{k}")
    return y


def hosts(count: int, *, gb_per_s: float = 0.5, ranks: int = 1) -> Machine:
    """CPU hosts with a slow link between them."""
    machine = load_machine("cpu-4")
    near = machine.links[0]
    far = replace(near, kind="wire", scope="cluster", gb_per_s=gb_per_s)
    return replace(machine, hosts=count, devices_per_host=ranks, links=(near, far) if ranks > 1 else (far,))


def ranks_of(made: Plan) -> dict[str, set[tuple[int, ...] | None]]:
    found: dict[str, set[tuple[int, ...] | None]] = {}
    for task in made.document.tasks:
        if isinstance(task, Compute):
            found.setdefault(task.op, set()).add(task.ranks)
    return found


def bubble(made: Plan, ideal: float) -> float:
    """The share of the run that is not an equal share of the work."""
    return made.document.predicted.makespan_s / ideal - 1


def tight(program: Program, ranks: int) -> dict[str, int]:
    """Memory for the layers of a stage and activations, not for all of them."""
    weights = sum(t.itemsize * int(np.prod(t.shape)) for t in program.of_role("param"))
    return {"host": weights // ranks + weights // 4}


@pytest.mark.parametrize("count", [2, 4])
def test_equal_layers_on_hosts_with_a_slow_link_are_stages(count: int) -> None:
    """The pipeline's bubble is (p - 1) / m, but for the first piece's way over the links."""
    program, machine = layers.bind(), hosts(count)
    made = plan(program, machine.with_memory(tight(program, count)), mesh=(count,), time_limit=600)
    one = plan(program, hosts(1), mesh=(1,), time_limit=600)
    assert ranks_of(made) == {f"layer{k}": {(k * count // 8,)} for k in range(8)}
    pieces = sum(isinstance(task, Compute) for task in made.document.tasks) // 8
    moves = [task for task in made.document.tasks if isinstance(task, Transfer)]
    assert len(moves) == (count - 1) * pieces
    ideal = one.document.predicted.makespan_s / count
    way = (count - 1) * (256 * 1024 * 4 / pieces / 0.5e9 + machine.links[0].latency_s)
    starts = 8 * pieces // count * machine.device.launch_overhead_s
    assert bubble(made, ideal) <= ((count - 1) / pieces) * (1 + starts / ideal) + (way + starts) / ideal
    assert pieces >= 2 * count
    assert made.check().ok, str(made.check())


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_pipeline_runs(ranks: int) -> None:
    """On hosts of one rank, and of two, which cut what is on them."""
    program, machine = layers.bind(rows=64, n=64), hosts(2, gb_per_s=0.001, ranks=ranks)
    made = plan(program, machine.with_memory(tight(program, 2 * ranks)), mesh=(2, ranks), time_limit=600)
    assert {len(places) for places in ranks_of(made).values()} == {1}
    assert None not in set().union(*ranks_of(made).values())
    assert sum(isinstance(task, Compute) for task in made.document.tasks) > 8
    assert made.check().ok, str(made.check())
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in program.of_role("input", "param")}
    assert_close(program, inputs, made.run(inputs, engine="local").outputs, evaluate(program, inputs))


def pace(chain: Chain, ends: Sequence[int], capacity: int) -> float:
    """The seconds of the slowest stage; infinite where one does not fit."""
    bounds = list(pairwise([0, *ends, len(chain.seconds)]))
    if any(4 * len(set().union(*chain.resident[a:b])) > capacity for a, b in bounds):
        return inf
    return max(max(sum(chain.seconds[a:b]), chain.crossing[a] + chain.crossing[b]) for a, b in bounds)


def test_ends_of_stages_are_where_the_slowest_is_quickest() -> None:
    """Against all ways to end them, by trying them."""
    rng = random.Random(0)
    for _ in range(50):
        n, count = rng.randint(3, 8), rng.randint(2, 3)
        seconds = [rng.randint(1, 9) for _ in range(n)]
        crossing = [0, *(rng.randint(0, 12) for _ in range(n - 1)), 0]
        resident = [{rng.choice("abcd"): 4} for _ in range(n)]
        capacity = rng.choice([4, 8, 100])
        chain = Chain(seconds, crossing, resident)
        best = min(pace(chain, ends, capacity) for ends in combinations(range(1, n), count - 1))
        found = stages(chain, count, capacity)
        assert (inf if found is None else pace(chain, found, capacity)) == best


def test_an_axis_is_carried_to_what_keeps_it_apart() -> None:
    @tp.program
    def normed(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
        y = tp.einsum("nc,ck->nk", tp.relu(x), w, name="product")
        return tp.sum(y, axis=0)

    program = normed.bind(n=8, c=4, k=4)
    assert carried(program, "x", 0) == {"relu": "n", "product": "n"}
    assert carried(program, "x", 1) == {"relu": "c"}
