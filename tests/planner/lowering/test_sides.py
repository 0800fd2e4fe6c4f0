"""Operations on some of the ranks: others go on meanwhile, and keep no place for what they do not hold."""

from __future__ import annotations

import numpy as np

import tapestry as tp
from tapestry import Tensor
from tapestry.planner import Plan, load_machine
from tapestry.planner.format import Transfer
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.lowering.sides import joined, told_apart
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.strategy.mesh import Cut, Mesh, Shards
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.testing import assert_close

MACHINE = load_machine("cpu-4")
STAGES, REQUESTS, N = 4, 6, 256


@tp.program
def served(*, requests: int = REQUESTS, n: int = N) -> dict[str, Tensor]:
    """Requests that go through the same layers, one after another."""
    weights = [tp.param(f"w{k}", "f32", (n, n)) for k in range(STAGES)]
    found = {}
    for r in range(requests):
        y = tp.input(f"x{r}", "f32", (n, n))
        for k, w in enumerate(weights):
            y = tp.einsum("nc,ck->nk", y, w, name=f"layer{k}.{r}")
        found[f"y{r}"] = y
    return found


def on(rank: int, shape: tuple[int, ...]) -> list[Region]:
    """All of a box on one rank."""
    return [Box.of_shape(shape).region() if r == rank else Region() for r in range(STAGES)]


def piped(program: Program, schedule: Schedule) -> Plan:
    """Layer k on rank k."""
    shards = {op.name: on(int(op.name[5]), tuple(op.extents.values())) for op in program.operations}
    homes = {t.name: on(int(t.name[1]), t.shape) for t in program.of_role("param")}
    homes |= {t.name: on(0, t.shape) for t in program.of_role("input")}
    return plan_partitions(program, MACHINE, shards, homes=homes, schedule=schedule)


def test_ranks_that_take_no_part_go_on() -> None:
    """A request takes as long as the layers; each further one as long as a layer, or as what moves beside it."""
    one, many = (piped(served.bind(requests=r), Schedule(listed=True)) for r in (1, REQUESTS))
    layer = one.document.predicted.compute_s
    moved = (one.document.predicted.makespan_s - STAGES * layer) / (STAGES - 1)
    step = max(layer, 2 * moved)  # a rank in the middle receives and sends
    assert many.document.predicted.makespan_s <= one.document.predicted.makespan_s + (REQUESTS - 1) * step * 1.001
    assert many.check().ok, str(many.check())


def test_transfers_are_met_by_those_that_have_or_need_something() -> None:
    made = piped(served.bind(requests=1), Schedule())
    met = [task.ranks for task in made.document.tasks if isinstance(task, Transfer)]
    assert met == [(0, 1), (1, 2), (2, 3)]


def test_ranks_side_by_side_share_addresses() -> None:
    """Of four weights each rank has one, and room for two activations beside it; outputs stay."""
    made = piped(served.bind(), Schedule(listed=True))
    peak = made.document.peak_bytes["0"][MACHINE.device.compute_tier.name]
    assert peak < (1 + 2 * REQUESTS + 1) * 4 * N * N
    offsets = {buffer.name: buffer.offset for buffer in made.document.buffers}
    assert len({offsets[f"w{k}"] for k in range(STAGES)}) == 1
    assert made.check().ok, str(made.check())


def test_what_runs_side_by_side_is_what_the_program_means() -> None:
    program = served.bind(n=8)
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(t.shape).astype("f4") for t in program.of_role("input", "param")}
    found = piped(program, Schedule(listed=True)).run(inputs, engine="local")
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


def test_all_on_one_coordinate_of_an_axis() -> None:
    """Cut along one axis of the mesh, on coordinate 1 of the other alone."""
    mesh = Mesh((2, 2), ("mesh0", "mesh1"))
    found = Shards.of(mesh, {"n": 4}, (Cut.on(1), Cut("n"))).regions
    assert [str(region) for region in found] == ["empty", "empty", "0:2", "2:4"]


def test_sets_of_ranks() -> None:
    assert told_apart([None, (0, 1), (1, 2)], 5) == [{0}, {1}, {2}, {3, 4}]
    assert joined([frozenset({4}), frozenset({0, 1}), frozenset({1, 2})]) == [{0, 1, 2}, {4}]
