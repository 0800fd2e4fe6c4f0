"""Operations in pieces on the CuPy device, its kernels run on the host: tasks whose points are not whole shards."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.lowering.decisions import Pieces, Schedule
from tapestry.planner.lowering.pieces import Cutter
from tapestry.planner.search.candidates import lower
from tapestry.planner.search.explicit import decisions_of
from tapestry.program import Operation
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked

pytestmark = needs_compiler
RANKS = 2


def rows(op: Operation) -> list[Region]:
    """An operation cut along its longest parallel dimension."""
    extents = [dim.extent for dim in op.dims]
    axis = max((k for k, dim in enumerate(op.dims) if dim.name in op.parallel_dims), key=lambda k: extents[k])
    ends = [(extents[axis] * rank // RANKS, extents[axis] * (rank + 1) // RANKS) for rank in range(RANKS)]
    return [
        Box(*zip(*[(0, n) if k != axis else end for k, n in enumerate(extents)], strict=True)).region() for end in ends
    ]


@tp.program
def layers(x: f32[Tensor, "1 c=2 h=24 w=8"], f: f32[Tensor, "e=2 c 3 3"], b: f32[Tensor, "w=8 n=20"]) -> Tensor:
    """A convolution between maps, whose rows are multiplied by a matrix."""
    h = tp.relu(tp.conv2d(tp.exp(x), f, padding=1))
    return tp.einsum("b c h w, w n -> b c h n", h, b)


@pytest.mark.parametrize("inside", [True, False])
def test_pieces_compute_what_the_program_means(on_host: str, inside: bool) -> None:
    program = layers.bind()
    shards = {op.name: rows(op) for op in program.operations}
    question, decisions = decisions_of(program, load_machine("h200x8"), shards, {}, {})
    pieces: dict[str, Pieces] = {}
    for op in program.operations:
        cutter, dim = Cutter(question.table, decisions, op), op.dims[2].name
        found = cutter.held_first(op.operands[0], dim, 1) if inside else cutter.equal(dim, 3)
        if found is not None:
            pieces[op.name] = found
    assert pieces
    candidate = lower(question, replace(decisions, pieces=pieces), Schedule())
    values = random_inputs(program, 0)
    plan = Resolved(candidate.document, program)
    assert_close(
        program, values, run_unchecked(plan, values, device=on_host, poison=True).outputs, evaluate(program, values)
    )
