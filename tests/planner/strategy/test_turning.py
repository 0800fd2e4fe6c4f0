"""Strategies in turns: every point once, blocks of neighbours, and, lowered, the values of the reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tapestry as tp
from tapestry import Tensor, f16, f32
from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine
from tapestry.planner.check import check
from tapestry.planner.format import Compute
from tapestry.planner.lowering.decisions import Decisions, Schedule
from tapestry.planner.search.candidates import lower
from tapestry.planner.search.question import Question
from tapestry.planner.search.report import with_prediction
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.planner.strategy.strategies import Strategy
from tapestry.planner.strategy.turning import in_turns
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Region

from ...workers.unchecked import run_unchecked

MACHINE = load_machine("h200x8")


@tp.program
def product(a: f32[Tensor, "m=21 k=26"], b: f32[Tensor, "k=26 n=23"]) -> Tensor:
    return a @ b


@tp.program
def narrow(a: f16[Tensor, "m=21 k=26"], b: f16[Tensor, "k=26 n=23"]) -> Tensor:
    return a @ b


@tp.program
def causal(q: f32[Tensor, "t=26 h=2 d=4"], k: f32[Tensor, "t=26 h=2 d=4"], v: f32[Tensor, "t=26 h=2 d=4"]) -> Tensor:
    return tp.attention(q, k, v, causal=True)


CASES = [
    (product, "matmul", (4,), ("m",), "block"),
    (product, "matmul", (2, 2), ("m", "n"), "block"),
    (product, "matmul", (2, 3), ("m", "n"), "block"),
    (product, "matmul", (2, 2, 2), ("m", "n", "k"), "block"),
    (narrow, "matmul", (3,), ("n",), "block"),
    (causal, "attention.state", (3,), ("t",), "block"),
    (causal, "attention.state", (3,), ("t",), "zigzag"),
    (causal, "attention.state", (2, 2), ("t", "h"), "block"),
]


def turned(question: Question, name: str, cuts: Sequence[str], kind: str) -> tuple[Strategy, Strategy]:
    """A strategy whole, and in turns."""
    op = question.program.op_by_name[name]
    whole = question.table.strategy(op, tuple(Cut(dim, kind) for dim in cuts))
    [found] = in_turns(op, whole, question.table, question.pricing)
    return whole, found


def asked(program: Program, mesh: tuple[int, ...]) -> Question:
    return Question.of(program, MACHINE, Mesh.of(mesh, MACHINE.device_count))


@pytest.mark.parametrize(("made", "name", "mesh", "cuts", "kind"), CASES)
def test_turns_have_each_point_of_a_rank_once(made, name, mesh, cuts, kind) -> None:  # type: ignore[no-untyped-def]
    whole, found = turned(asked(made.bind(), mesh), name, cuts, kind)
    assert found.turns is not None
    for rank, shard in enumerate(found.shards):
        parts = [turn.shards[rank] for turn in found.turns.each]
        assert sum(part.size for part in parts) == shard.size == Region.union(parts).size
    assert found.shards == whole.shards
    assert found.writes is whole.writes


@pytest.mark.parametrize(("made", "name", "mesh", "cuts", "kind"), CASES)
def test_what_turns_move_is_what_a_gather_would(made, name, mesh, cuts, kind) -> None:  # type: ignore[no-untyped-def]
    """From the blocks that ranks begin with: every rank gets the rest of what it needs, and nothing else."""
    whole, found = turned(asked(made.bind(), mesh), name, cuts, kind)
    assert found.turns is not None
    program = made.bind()
    lacking = 0
    for k, stages in found.turns.stages.items():
        size = program.tensor(program.op_by_name[name].operands[k]).itemsize
        lacking += size * sum(stages.layouts[0].missing(whole.needs[k]))
    assert found.turns.moved == lacking


@pytest.mark.parametrize(("made", "name", "mesh", "cuts", "kind"), CASES)
def test_lowered_turns_are_proved_and_give_the_values_of_the_reference(made, name, mesh, cuts, kind) -> None:  # type: ignore[no-untyped-def]
    program = made.bind()
    question = asked(program, mesh)
    strategies = {op.name: question.table.strategy(op, (None,) * len(mesh)) for op in program.operations}
    strategies[name] = turned(question, name, cuts, kind)[1]
    homes = {t.name: question.layouts.cut(t.shape, _alone(mesh)) for t in program.of_role("input")}
    ends = {n: question.layouts.replicated(program.tensor(n).shape) for n in program.outputs}
    candidate = lower(question, Decisions(homes, strategies, ends), Schedule())
    document = with_prediction(candidate.document, candidate.timeline, question)
    assert check(document).ok, str(check(document))
    assert any(task.prior for task in document.tasks if isinstance(task, Compute))
    inputs = random_inputs(program, 3)
    found = run_unchecked(document, inputs, order=1, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


def _alone(mesh: tuple[int, ...]) -> tuple[Cut, ...]:
    return tuple(Cut("@0") for _ in mesh)


def test_nothing_is_taken_in_turns_that_ranks_do_not_share() -> None:
    """The rows of a are a rank's own, and so is all of b where nothing but the reduction is cut."""
    question = asked(product.bind(), (4,))
    op = question.program.operations[0]
    whole = question.table.strategy(op, (Cut("k"),))
    assert not list(in_turns(op, whole, question.table, question.pricing))
