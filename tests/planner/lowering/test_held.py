"""What ranks can compute from what they hold, asked of one rank for many: the same as index by index on each."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import load_machine
from tapestry.planner.lowering.decisions import Decisions
from tapestry.planner.lowering.held import NOWHERE, alike
from tapestry.planner.lowering.pieces import Cutter
from tapestry.planner.search.question import Question
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.space import Grid, IntSet, Region
from tapestry.space.projection import operand_images


@tp.program
def net(x: f32[Tensor, "t h e"], w: f32[Tensor, "e d"]) -> Tensor:
    """Halves that change places, a causal block, what is one row before, rows turned round and a product."""
    q = tp.rotary(tp.exp(x))
    seen = tp.attention(q, q, q, causal=True)
    before = tp.pad(seen, ((1, -1), 0, 0))
    return tp.einsum("the,ed->thd", before + seen[::-1], w)


PROGRAM = net.bind(t=16, h=4, e=8, d=8)
MESHES = [(4,), (2, 2), (8,), (4, 2)]


def indices(region: Region, axis: int) -> list[int]:
    return sorted({index for grid in region.grids for run in grid.axes[axis].runs for index in run})


def at(region: Region, axis: int, index: int) -> Region:
    only = IntSet.interval(index, index + 1)
    grids = (Grid((*g.axes[:axis], g.axes[axis] & only, *g.axes[axis + 1 :])) for g in region.grids)
    return Region.of(*(grid for grid in grids if grid))


def longest(held: dict[int, bool]) -> list[int]:
    """The first of the longest stretches of indices that are held."""
    found, run = list[int](), list[int]()
    for index, there in held.items():
        run = [*(run if run and run[-1] == index - 1 else []), index] if there else []
        found = max(found, run, key=len)
    return found


@cache
def question(shape: tuple[int, ...]) -> Question:
    return Question.of(PROGRAM, load_machine("h200x8"), Mesh.of(shape, 8))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_held_is_found_as_if_every_index_of_every_rank_were_looked_at(data: Any) -> None:
    asked = question(data.draw(st.sampled_from(MESHES)))
    cuts = {op.name: data.draw(st.sampled_from(asked.table.candidates(op))) for op in PROGRAM.operations}
    strategies = {op.name: asked.table.strategy(op, cuts[op.name]) for op in PROGRAM.operations}
    homes = {name: asked.layouts.replicated(PROGRAM.tensor(name).shape) for name in ("x", "w")}
    op = data.draw(st.sampled_from(PROGRAM.operations))
    tensor = data.draw(st.sampled_from(op.operands))
    dim = data.draw(st.sampled_from([dim.name for dim in op.dims if dim.name in op.parallel_dims]))
    cutter = Cutter(asked.table, Decisions(homes, strategies, {}), op)
    have, axis = cutter.held[tensor], [each.name for each in op.dims].index(dim)
    shapes = {name: PROGRAM.tensor(name).shape for name in op.operands}
    reads = [
        {index: operand_images(op, shapes, at(region, axis, index))[tensor].region for index in indices(region, axis)}
        for region in cutter.strategy.shards
    ]
    intervals = all([*each] == [*range(min(each), max(each) + 1)] for each in reads if each)
    if have.parts is not None or not intervals or not all(all(each.values()) for each in reads):
        return  # nothing is held of what is partial; shards with gaps, and indices that read nothing, are left out
    wanted = [
        longest({index: region <= mine for index, region in each.items()})
        for each, mine in zip(reads, have.regions, strict=True)
    ]
    pieces = cutter.held_first(tensor, dim, 1)
    if pieces is None:
        assert not any(wanted) or wanted == [[*each] for each in reads]
    else:
        assert [indices(region, axis) for region in pieces[0][0].shards] == wanted


def test_ranks_that_differ_along_other_axes_alone_are_asked_together() -> None:
    """Of rows over four and heads over two mesh axes each block of rows is one; of halves of heads nobody holds one."""
    asked = question((4, 2))
    rotary = next(op for op in PROGRAM.operations if len(op.reads) == 3)
    (tensor,) = rotary.operands
    points = asked.table.strategy(rotary, (Cut("t"), Cut("h"))).domain
    held, halves = (asked.layouts.cut(PROGRAM.tensor(tensor).shape, [*map(Cut, cut)]) for cut in ("01", "02"))
    numbers = alike(rotary, tensor, points, held, 0)
    assert numbers is not None
    assert len(set(numbers)) == 4
    assert alike(rotary, tensor, points, halves, 0) == [NOWHERE] * 8
