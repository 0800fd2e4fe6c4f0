"""Small plans of every kind that the search makes of its own accord, each by the name of what is special about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.planner.early import updated_early
from tapestry.planner.format import Compute, Document
from tapestry.planner.lowering.decisions import Pieces, Schedule
from tapestry.planner.lowering.pieces import Cutter
from tapestry.planner.machine import Machine
from tapestry.planner.recompute import fetched_again, recomputed, ways
from tapestry.planner.search.candidates import lower
from tapestry.planner.search.explicit import decisions_of, plan_partitions
from tapestry.planner.search.report import with_prediction
from tapestry.program import Operation, Pin, Program
from tapestry.space import Box, Region

from ..planner.search.named import Described, mlp
from ..planner.search.test_groups import forked
from ..planner.search.test_pieces import DESCRIBED
from ..planner.search.test_pipelines import hosts, tight
from ..planner.search.test_pipelines import layers as chain
from ..planner.search.test_pipelines import step as chain_step
from ..planner.search.test_turns import causal, product
from ..planner.test_recompute import training

KIB = 1 << 10
Made = tuple[Program, Document]


@tp.program
def attend(q: bf16[Tensor, "t h d"], k: bf16[Tensor, "t h d"], v: bf16[Tensor, "t h d"]) -> Tensor:
    return tp.attention(q, k, v)


@tp.program
def narrow_product(a: bf16[Tensor, "m k"], b: bf16[Tensor, "k n"]) -> Tensor:
    return a @ b


@tp.program
def convolved(x: f32[Tensor, "1 c=2 h=24 w=8"], f: f32[Tensor, "e=2 c 3 3"], b: f32[Tensor, "w=8 n=20"]) -> Tensor:
    """A convolution between maps, whose rows are multiplied by a matrix."""
    h = tp.relu(tp.conv2d(tp.exp(x), f, padding=1))
    return tp.einsum("b c h w, w n -> b c h n", h, b)


def on_gpus(machine: Machine) -> Machine:
    """Whose devices compute in memory of their own."""
    first, *others = machine.device.tiers
    return replace(machine, device=replace(machine.device, tiers=(replace(first, name="hbm"), *others)))


def searched(program: Program, machine: Machine | str, mesh: tuple[int, ...], budget: int | None = None) -> Made:
    memory = None if budget is None else {"hbm": str(budget)}
    made = plan(program, machine, mesh=mesh, memory=memory, time_limit=600)
    return made.program, made.document


def waiting_for_links() -> Machine:
    """Tasks and messages start at once, and links are slow: what is moved is hidden where that can be."""
    machine = load_machine(DESCRIBED)
    links = tuple(replace(link, latency_s=1e-9, gb_per_s=link.gb_per_s / 8, curve=()) for link in machine.links)
    return replace(machine, device=replace(machine.device, launch_overhead_s=1e-9), links=links)


def ring(program: Program, ranks: int, budget: int) -> Made:
    return searched(program, "h200x8", (ranks,), budget)


def grid() -> Made:
    """A product whose reduction is cut too, in turns of the other two axes."""
    pins = Pin("op", "matmul", (("mesh0", "m"), ("mesh1", "n"), ("mesh2", "k")))
    return searched(product.bind(m=256, k=256, n=256).with_pins(pins), "h200x8", (2, 2, 2), 200 * KIB)


def groups(ranks: int) -> Made:
    """Branches of one tensor, each on a rank of its own."""
    machine = load_machine("cpu-4")
    near = replace(machine, links=tuple(replace(link, latency_s=2e-6) for link in machine.links))
    return searched(forked.bind(n=16, ways=ranks), on_gpus(near), (ranks,))


def pipeline(ranks: int) -> Made:
    program, machine = chain.bind(rows=64, n=64), hosts(2, gb_per_s=0.001, ranks=ranks // 2)
    return searched(program, on_gpus(machine.with_memory(tight(program, ranks))), (2, ranks // 2))


def pipelined_training() -> Made:
    return searched(chain_step.bind(n=64, c=512), on_gpus(hosts(2, gb_per_s=0.1)), (2,))


def computed_again(ranks: int) -> Made:
    """Values are forgotten between the forward and the backward pass; updates come as soon as they can."""
    program = updated_early(training(4, 64, 4))
    return cut_in_rows(recomputed(program, ways(program, lambda op: 1.0)[-1]).program, ranks)


def weights_again(ranks: int) -> Made:
    return cut_in_rows(fetched_again(updated_early(training(4, 64, 4))).program, ranks)


def rows(op: Operation, ranks: int) -> list[Region]:
    """An operation cut along its longest parallel dimension; one that has none is done by all."""
    extents = [dim.extent for dim in op.dims]
    able = [k for k, dim in enumerate(op.dims) if dim.name in op.parallel_dims and dim.extent >= ranks]
    if not able:
        return [Box.of_shape(extents).region()] * ranks
    axis = max(able, key=lambda k: extents[k])
    ends = [(extents[axis] * rank // ranks, extents[axis] * (rank + 1) // ranks) for rank in range(ranks)]
    return [
        Box(*zip(*[(0, n) if k != axis else end for k, n in enumerate(extents)], strict=True)).region() for end in ends
    ]


def cut_in_rows(program: Program, ranks: int, machine: Machine | str = "h200x8") -> Made:
    shards = {op.name: rows(op, ranks) for op in program.operations}
    found = machine if isinstance(machine, Machine) else load_machine(machine)
    return program, plan_partitions(program, found, shards).document


def in_pieces(ranks: int, *, inside: bool) -> Made:
    """Of an operation what needs nothing of others first, or in three equal pieces."""
    program = convolved.bind()
    shards = {op.name: rows(op, ranks) for op in program.operations}
    question, decisions = decisions_of(program, load_machine("h200x8"), shards, {}, {})
    pieces: dict[str, Pieces] = {}
    for op in program.operations:
        cutter, dim = Cutter(question.table, decisions, op), op.dims[2].name
        found = cutter.held_first(op.operands[0], dim, 1) if inside else cutter.equal(dim, 3)
        if found is not None:
            pieces[op.name] = found
    candidate = lower(question, replace(decisions, pieces=pieces), Schedule())
    return program, with_prediction(candidate.document, candidate.timeline, question)


def between_hosts() -> Made:
    """What both ranks of a host hold is sent to the other host by both, and taken over from a neighbour there."""
    machine = Described(4, hosts=2, between=0.1, tflops=0.01, latency_us=0.01, memory=110_000)
    return searched(mlp.bind(t=64, d=64, f=256), machine.machine(), (2, 2))


KINDS: Mapping[str, tuple[int, Callable[[], Made]]] = {
    "ring attention, causal": (4, lambda: ring(causal.bind(t=256, h=1, d=16), 4, 15 * KIB)),
    "ring attention, zigzag": (4, lambda: ring(causal.bind(t=256, h=1, d=16), 4, 20 * KIB)),
    "ring attention of two": (2, lambda: searched(attend.bind(t=1024, h=1, d=64), waiting_for_links(), (2,))),
    "product in a ring": (4, lambda: ring(product.bind(m=256, k=256, n=256), 4, 260 * KIB)),
    "product in pieces": (
        2, lambda: searched(narrow_product.bind(m=1024, k=1024, n=1024), waiting_for_links(), (2,)),
    ),
    "product on a rectangle": (
        8, lambda: searched(product.bind(m=256, k=256, n=256), "h200x8", (2, 4), 170 * KIB),
    ),
    "product on a cube": (8, grid),
    "branches on ranks of their own": (4, lambda: groups(4)),
    "two branches": (2, lambda: groups(2)),
    "stages": (4, lambda: pipeline(4)),
    "two stages": (2, lambda: pipeline(2)),
    "two stages of training": (2, pipelined_training),
    "values computed again": (2, lambda: computed_again(2)),
    "weights fetched again": (2, lambda: weights_again(2)),
    "the inside first": (2, lambda: in_pieces(2, inside=True)),
    "equal pieces": (2, lambda: in_pieces(2, inside=False)),
    "two hosts": (4, between_hosts),
}  # fmt: skip


@cache
def made(kind: str) -> Made:
    """The program that is run, and its plan."""
    return KINDS[kind][1]()


def inputs_of(program: Program) -> dict[str, NDArray[Any]]:
    """States are weights, as small as those of params, or what optimisers keep of gradients, which may be squares."""
    found = random_inputs(program, 3)
    for tensor in program.of_role("state"):
        if tensor.shape:
            found[tensor.name] /= np.sqrt(max(tensor.shape), dtype=found[tensor.name].dtype)
        if tensor.name.endswith(".square"):
            found[tensor.name] **= 2
    return found


def turns(document: Document) -> int:
    """Tasks that fold onto what others left."""
    return sum(task.prior is not None for task in document.tasks if isinstance(task, Compute))


def places(document: Document) -> set[tuple[int, ...] | None]:
    """The ranks that compute something by themselves."""
    return {task.ranks for task in document.tasks if isinstance(task, Compute)}


def pieces(document: Document) -> int:
    """The most tasks of one operation."""
    return max(Counter(task.op for task in document.tasks if isinstance(task, Compute)).values())
