"""What the shards of all ranks take is what each of them takes by itself."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import load_machine
from tapestry.planner.search.question import Question
from tapestry.planner.strategy.mesh import Mesh
from tapestry.planner.strategy.work import Works


@tp.op
def window(y: f32[Tensor, "n k"], v: f32[Tensor, "r k"]) -> f32[Tensor, "n k"]:
    """What lies outside counts nothing: shards at the rim do less."""
    n, k, r = tp.indices("n k r")
    return tp.sum[r](y.get[n + r, k] * v[r, k])


@tp.program
def mixed(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]], v: param[f32[Tensor, "r k"]]) -> Tensor:
    """Operations whose shards differ by their extents alone, and one of which they differ by where they lie."""
    y = tp.softmax(tp.relu(tp.einsum("nc,ck->nk", x, w)))
    return window(y, v) + tp.sum(y, axis=0, keepdims=True)


@pytest.mark.parametrize(("n", "c", "k"), [(64, 32, 96), (13, 7, 30)])
@pytest.mark.parametrize("mesh", [(2, 2, 2), (3, 2), (8,)])
def test_ranks_together_take_what_each_takes_alone(mesh: tuple[int, ...], n: int, c: int, k: int) -> None:
    machine = load_machine("h200x8")
    question = Question.of(mixed.bind(n=n, c=c, k=k, r=3), machine, Mesh.of(mesh, machine.device_count))
    program, table, alone = question.program, question.table, Works(machine, question.mesh.size)
    for op in program.operations:
        for cuts in table.candidates(op):
            strategy = table.strategy(op, cuts)
            works = [
                alone.of(op, program, region, partial=strategy.writes.parts is not None) for region in strategy.shards
            ]
            assert strategy.seconds == tuple(work.seconds for work in works)
            assert strategy.points == tuple(work.points for work in works)
