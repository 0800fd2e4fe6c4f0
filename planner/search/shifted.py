"""Windows whose borders come from one side: ranks have slabs, and what reads these in windows is cut a little later.

    x has rows a ... b on a rank; windows read rows p - 3 ... p + 3
    cut like x:      p = a ... b          reads three rows of the rank before, and three of the one after
    shifted by 3:    p = a + 3 ... b + 3  reads six rows of the one after

As much is moved, but ranks compute one border first, and one last, in place of two of each, and small tasks take
longer than their work. The next windows are shifted back, so that slabs stay about equal; the first and the last rank
have a border less, and slabs that are somewhat longer or shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...program import Operation, Program
from ...space import Grid, IntSet, Region
from ...space.proofs import prove_regions
from ..lowering.decisions import Decisions
from ..sharding.nodes import resting
from ..strategy.mesh import full_box
from ..strategy.strategies import Strategy
from .candidates import best_candidate
from .effort import WORTH
from .found import Found
from .question import Question

if TYPE_CHECKING:
    from .search import Search

MANY = 100  # operations of programs of which more are not tried

Dims = Mapping[str, str]
"""By operation the dimension along which ranks have slabs."""


def shifted(search: Search, best: Found) -> Found:
    """The answer with slabs shifted where that is shorter once it is in pieces."""
    question, base = search.question, best.candidate.decisions
    operations = question.program.operations
    free = question.pieces and question.machine.device.overlap and not question.pins and not question.clock.up
    at_once = sum(strategy.slowest for strategy in base.strategies.values())
    if not free or len(operations) > MANY or at_once >= WORTH * best.makespan_s:
        return best
    dims = [_slabs(base.strategies[op.name], op) for op in operations]
    slabs = {op.name: dim for op, dim in zip(operations, dims, strict=True) if dim is not None}
    shifts = _shifts(question.program, slabs) if None not in dims else None
    made = _decisions(question, base, slabs, shifts) if shifts is not None else None
    if made is None:
        return best
    question.say("shifting")
    candidate = best_candidate(question, made, best.candidate.timeline.compute_s)
    if candidate.peak > question.capacity:
        return best
    other = search.in_pieces(Found(candidate, best.choice, best.solution))
    return other if other.makespan_s < WORTH * best.makespan_s else best


def _slabs(strategy: Strategy, op: Operation) -> str | None:
    """The parallel dimension that all axes of the mesh cut in blocks."""
    cuts = {*strategy.cuts}
    (cut,) = cuts if len(cuts) == 1 else (None,)
    plain = cut is not None and cut.kind == "block" and cut.only is None and strategy.turns is None
    return cut.dim if cut is not None and plain and cut.dim in op.parallel_dims else None


def _shifts(program: Program, dims: Dims) -> dict[str, int] | None:
    """By operation by how many indices its slabs begin later, for one side of the windows each; the mean over the work
    is about 0. None where there are no windows, or results are not read one index after another.
    """
    found: dict[str, int] = {}
    windows = False
    for op in program.operations:
        made = [program.producer[name] for name in op.operands if name in program.producer]
        if not made:
            found[op.name] = 0
            continue
        last = max(made, key=lambda each: program.operations.index(each))
        reach = _reach(op, dims[op.name], last, dims[last.name])
        if reach is None:
            return None
        low, high = (found[last.name] - end for end in reach)
        windows = windows or low != high
        found[op.name] = min(low, high, key=lambda shift: (abs(shift), -shift))
    points = {op.name: prod(op.extents.values()) for op in program.operations}
    mean = sum(found[name] * points[name] for name in found) / sum(points.values())
    return {name: shift - round(mean) for name, shift in found.items()} if windows else None


def _reach(op: Operation, dim: str, producer: Operation, along: str) -> tuple[int, int] | None:
    """The first and the last index along a producer's slabs that index 0 of an operation's reads, of all indices."""
    axes = [axis for axis, row in enumerate(producer.write) if row.coefficient(along)]
    rows = [read.index[axis] for read in op.reads if read.tensor == producer.output for axis in axes]
    if len(axes) != 1 or any(row.coefficient(dim) != 1 for row in rows):
        return None
    ranges = {**{name: (0, extent) for name, extent in op.extents.items()}, dim: (0, 1)}
    ends = [row.bounds(ranges) for row in rows]
    return min(low for low, _ in ends), max(high for _, high in ends) - 1


def _decisions(question: Question, base: Decisions, dims: Dims, shifts: Mapping[str, int]) -> Decisions | None:
    """The same with slabs that begin later; None where one would be empty."""
    strategies = {}
    for op in question.program.operations:
        shards = [*_later(base.strategies[op.name], op, dims[op.name], shifts[op.name])]
        if not all(shards):
            return None
        prove_regions(shards, full_box(tuple(op.extents.values())))
        strategies[op.name] = question.table.explicit(op, shards)
    made = replace(base, strategies=strategies, pieces={})
    homes = dict(made.homes)
    for tensor in question.program.of_role("input"):
        wanted = made.wanted(question.program, tensor.name)
        if wanted and homes[tensor.name].one_copy:
            homes[tensor.name] = resting(wanted[0], question.table, single=True)
    return replace(made, homes=homes)


def _later(strategy: Strategy, op: Operation, dim: str, shift: int) -> Iterator[Region]:
    """The shards with ends between ranks so many indices later."""
    axis, extent = list(op.extents).index(dim), op.extents[dim]

    def moved(end: int) -> int:
        return end + shift if 0 < end < extent else end

    for shard in strategy.shards:
        (grid,) = shard.grids
        rows = IntSet.interval(max(0, moved(grid.axes[axis].lo)), min(extent, moved(grid.axes[axis].hi)))
        yield Grid((*grid.axes[:axis], rows, *grid.axes[axis + 1 :])).region() if rows else Region()
