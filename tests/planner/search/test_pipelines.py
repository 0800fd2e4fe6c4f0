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
from tapestry import Tensor, f32, param, state
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.machine import Machine
from tapestry.planner.search.leaner import answered
from tapestry.planner.search.pipelines import pipelined
from tapestry.planner.search.question import Question
from tapestry.planner.search.report import with_prediction
from tapestry.planner.sharding.stages import NEARLY, Chain, anchors, carried, independent, stages
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from .named import Described, decoder


@tp.program
def layers(*, count: int = 8, rows: int = 128, n: int = 1024) -> Tensor:
    """Products that follow one another, all alike."""
    y = tp.input("x", "f32", (rows, n))
    for k in range(count):
        y = tp.einsum("nc,ck->nk", y, tp.param(f"w{k}", "f32", (n, n)), name=f"layer{k}")
    return y


def hosts(count: int, *, gb_per_s: float = 0.3, ranks: int = 1) -> Machine:
    """CPU hosts with a slow link between them."""
    machine = load_machine("cpu-4")
    near = machine.links[0]
    far = replace(near, kind="wire", scope="cluster", gb_per_s=gb_per_s, latency_s=2e-5)
    return replace(machine, hosts=count, devices_per_host=ranks, links=(near, far) if ranks > 1 else (far,))


@tp.program
def loss(
    x: f32[Tensor, "n c"],
    y: f32[Tensor, "n c"],
    w0: param[f32[Tensor, "c c"]],
    w1: param[f32[Tensor, "c c"]],
    w2: param[f32[Tensor, "c c"]],
    w3: param[f32[Tensor, "c c"]],
) -> Tensor:
    for w in (w0, w1, w2, w3):
        x = tp.relu(x @ w)
    return tp.mean((x - y) ** 2)


@tp.program
def step(
    x: f32[Tensor, "n c"],
    y: f32[Tensor, "n c"],
    w0: state[f32[Tensor, "c c"]],
    w1: state[f32[Tensor, "c c"]],
    w2: state[f32[Tensor, "c c"]],
    w3: state[f32[Tensor, "c c"]],
) -> dict[str, Tensor]:
    """A step of training."""
    value, grads = tp.value_and_grad(loss)(x, y, w0, w1, w2, w3)
    tp.optim.sgd({"w0": w0, "w1": w1, "w2": w2, "w3": w3}, grads, rate=0.1)
    return {"loss": value}


def ranks_of(made: Plan) -> dict[str, set[tuple[int, ...] | None]]:
    found: dict[str, set[tuple[int, ...] | None]] = {}
    for task in made.document.tasks:
        if isinstance(task, Compute):
            found.setdefault(task.op, set()).add(task.ranks)
    return found


def runs(made: Plan) -> None:
    """It computes what the program means."""
    rng, program = np.random.default_rng(0), made.program
    inputs = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in program.of_role("input", "param", "state")}
    assert_close(program, inputs, made.run(inputs, engine="local").outputs, evaluate(program, inputs))


def bubble(made: Plan, ideal: float) -> float:
    """The share of the run that is not an equal share of the work."""
    return made.document.predicted.makespan_s / ideal - 1


def tight(program: Program, ranks: int) -> dict[str, int]:
    """Memory for the layers of a stage and activations, not for all of them."""
    weights = sum(t.itemsize * int(np.prod(t.shape)) for t in program.of_role("param"))
    return {"host": weights // ranks + weights // 4}


@pytest.mark.parametrize(("count", "gb_per_s"), [(2, 0.05), (4, 0.3)])
def test_equal_layers_on_hosts_with_a_slow_link_are_stages(count: int, gb_per_s: float) -> None:
    """The pipeline's bubble is (p - 1) / m, but for the first piece's way over the links."""
    program, machine = layers.bind(), hosts(count, gb_per_s=gb_per_s)
    made = plan(program, machine.with_memory(tight(program, count)), mesh=(count,), time_limit=600)
    one = plan(program, hosts(1), mesh=(1,), time_limit=600)
    assert ranks_of(made) == {f"layer{k}": {(k * count // 8,)} for k in range(8)}
    pieces = sum(isinstance(task, Compute) for task in made.document.tasks) // 8
    moves = [task for task in made.document.tasks if isinstance(task, Transfer)]
    assert len(moves) == (count - 1) * pieces
    ideal = one.document.predicted.makespan_s / count
    way = (count - 1) * (128 * 1024 * 4 / pieces / (gb_per_s * 1e9) + machine.links[0].latency_s)
    starts = 8 * pieces // count * machine.device.launch_overhead_s
    assert bubble(made, ideal) <= ((count - 1) / pieces) * (1 + starts / ideal) + (way + starts) / ideal
    assert pieces >= 2 * count
    assert made.check().ok, str(made.check())


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_pipeline_runs(ranks: int) -> None:
    """On hosts of one rank, and of two, which cut what is on them."""
    program, machine = layers.bind(rows=64, n=64), hosts(2, gb_per_s=0.001, ranks=ranks)
    made = plan(program, machine.with_memory(tight(program, 2 * ranks)), mesh=(2, ranks), time_limit=600)
    assert {len(places) for places in ranks_of(made).values()} == {1}
    assert None not in set().union(*ranks_of(made).values())
    assert sum(isinstance(task, Compute) for task in made.document.tasks) > 8
    assert made.check().ok, str(made.check())
    runs(made)


def pace(chain: Chain, ends: Sequence[int], capacity: int) -> float:
    """The seconds of the slowest stage; infinite where one does not fit."""
    bounds = list(pairwise([0, *ends, len(chain.seconds)]))
    if any(4 * len(set().union(*chain.resident[a:b])) > capacity for a, b in bounds):
        return inf
    moved = (sum(chain.moving[a:b]) + chain.crossing[a] + chain.crossing[b] for a, b in bounds)
    return max(max(sum(chain.seconds[a:b]), seconds) for (a, b), seconds in zip(bounds, moved, strict=True))


def test_a_step_of_training_is_a_pipeline_too() -> None:
    """Gradients and updates are on the stage of their layer; pieces come back as soon as they have gone through."""
    program, machine = step.bind(n=128, c=1024), hosts(2, gb_per_s=0.1)
    made = plan(program, machine, mesh=(2,), time_limit=600)
    assert made.check().ok, str(made.check())
    places = {op: at for op, [at] in ranks_of(made).items()}
    for k, first in enumerate(("matmul", "matmul_1", "matmul_2", "matmul_3")):
        with_it = [f"grad.d_w{k}", *(["sgd.weight", "sgd.weight_1", "sgd.weight_2", "sgd.weight_3"][k : k + 1])]
        assert {places[name] for name in (first, *with_it)} == {places[first]}
    assert set(places.values()) == {(0,), (1,)}
    predicted = made.document.predicted
    assert predicted.makespan_s <= 1.15 * predicted.compute_s  # what waits on the busiest of the ranks
    runs(made)


def test_tokens_go_through_decoder_layers_on_hosts_of_several_ranks() -> None:
    """Between hosts go the activations at one boundary, once; within them each layer is cut among its ranks."""
    program, rows = decoder.bind(t=64, d=64, layers=2), 64 * 64 * 4
    weights = sum(tensor.nbytes for tensor in program.of_role("param"))
    described = Described(4, hosts=2, tflops=0.01, gb_per_s=10.0, latency_us=0.1, between=0.01, memory=weights * 2 // 5)
    question = Question.of(program, described.machine(), Mesh.of((2, 2), 4), time_limit=600)
    _, first = answered(question)
    found = pipelined(question, first, first.makespan_s)
    assert found is not None
    assert found.makespan_s < first.makespan_s / 2
    made = Plan(with_prediction(found.candidate.document, found.candidate.timeline, question), program)
    assert made.check().ok, str(made.check())
    assert {(op.split(".")[1], *at) for op, at in ranks_of(made).items()} == {("0", (0, 1)), ("1", (2, 3))}
    assert made.document.shardings["layers.0.q"].partition == {"h": "mesh1"}
    assert made.document.traffic.bytes_by_link["between"] == rows
    runs(made)


def test_what_a_layer_needs_is_on_its_stage() -> None:
    program = step.bind(n=4, c=4)
    names = [op.name for op in program.operations]
    at = {name: names[k] for name, k in zip(names, anchors(program), strict=True)}
    assert at["grad.d_w3"] == at["grad.d_x"] == at["sgd.weight_3"] == at["matmul_3"] == "matmul_3"
    assert at["grad.d_matmul_3"] == at["grad.d_w0"] == "matmul"
    assert at["relu_1"] == "relu_1"


def test_ends_of_stages_are_where_the_slowest_is_quickest() -> None:
    """Against all ways to end them, by trying them."""
    rng = random.Random(0)
    for _ in range(50):
        n, count = rng.randint(3, 8), rng.randint(2, 3)
        seconds = [rng.randint(1, 9) for _ in range(n)]
        crossing = [0, *(rng.randint(0, 12) for _ in range(n - 1)), 0]
        resident = [{rng.choice("abcd"): 4} for _ in range(n)]
        capacity = rng.choice([4, 8, 100])
        chain = Chain(seconds, crossing, resident, [rng.randint(0, 3) for _ in range(n)])
        every = list(combinations(range(1, n), count - 1))
        best = min(pace(chain, ends, capacity) for ends in every)
        found = stages(chain, count, capacity)
        assert (found is None) == (best == inf)
        if found is not None:
            near = [ends for ends in every if pace(chain, ends, capacity) <= NEARLY * best]
            assert work(chain, found) == min(work(chain, ends) for ends in near)
            assert pace(chain, found, capacity) <= NEARLY * best


def work(chain: Chain, ends: Sequence[int]) -> float:
    """The seconds that the slowest stage computes."""
    return max(sum(chain.seconds[a:b]) for a, b in pairwise([0, *ends, len(chain.seconds)]))


def test_a_run_is_all_of_the_slowest_stage_and_a_piece_on_the_others() -> None:
    """Of equal stages whose links are free the bubble is (p - 1) / m."""
    chain = Chain([2.0] * 8, [0.0] * 9, [{}] * 8, [0.0] * 8)
    for count, pieces in ((2, 1), (2, 8), (4, 16)):
        ends = stages(chain, count, 1)
        assert ends is not None
        assert chain.run(ends, pieces) == pytest.approx(16 / count * (1 + (count - 1) / pieces))
    slow = Chain([2.0, 4.0], [0.0, 3.0, 0.0], [{}] * 2, [0.0] * 2)
    assert slow.run((1,), 4) == (2 + 3 + 4) / 4 + 3 / 4 * 4


def test_pieces_of_tokens_that_attend_are_not_independent() -> None:
    program = decoder.bind(t=8, d=16, layers=1)
    dims = carried(program, "x", 0)
    assert len(dims) == len(program.operations)
    assert not independent(program, dims)
    chain = layers.bind(count=2, rows=4, n=4)
    assert independent(chain, carried(chain, "x", 0))


def test_an_axis_is_carried_to_what_keeps_it_apart() -> None:
    @tp.program
    def normed(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
        y = tp.einsum("nc,ck->nk", tp.relu(x), w, name="product")
        return tp.sum(y, axis=0)

    program = normed.bind(n=8, c=4, k=4)
    assert carried(program, "x", 0) == {"relu": "n", "product": "n"}
    assert carried(program, "x", 1) == {"relu": "c"}
