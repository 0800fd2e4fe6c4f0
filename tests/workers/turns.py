"""Plans whose folds are taken in turns: one task of a plan that is there becomes several, each onto the one before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.planner import load_machine
from tapestry.planner.check import check
from tapestry.planner.format import Buffer, Compute, Document, LayoutText, Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.records import record_bytes
from tapestry.space import Box, Grid, IntSet, Region, parse_region

from ..planner.check.traffic import restated

ALIGN = 256


def made(program: Program, *ends: int, in_place: bool = True, name: str = "fold", on: str = "cpu-4") -> Document:
    """On one rank, the operation in turns that end there."""
    whole = {op.name: [Box.of_shape(tuple(d.extent for d in op.dims)).region()] for op in program.operations}
    document = plan_partitions(program, load_machine(on), whole).document
    found = in_turns(document, program, name, ends, in_place=in_place)
    assert check(found).ok, str(check(found))
    return found


@tp.program
def attend(q: f32[Tensor, "t=24 h=2 d=8"], k: f32[Tensor, "s=40 h=2 d=8"], v: f32[Tensor, "s=40 h=2 d=8"]) -> Tensor:
    return tp.attention(q, k, v)


@tp.program
def product(a: f32[Tensor, "i=40 k=64"], b: f32[Tensor, "k j=56"]) -> Tensor:
    return a @ b


@tp.program
def narrow_product(a: bf16[Tensor, "i=40 k=64"], b: bf16[Tensor, "k j=56"]) -> Tensor:
    return a @ b


def in_turns(
    document: Document, program: Program, name: str, ends: Sequence[int], *, in_place: bool = True
) -> Document:
    """The fold of operation ``name`` in parts of its last folded dimension that end there.

    Partial results lie in a buffer of their own, or where the result comes, if that can hold them and ``in_place``;
    else each turn leaves them in another one. Buffers are where the plan may have had a workspace.
    """
    op = program.op_by_name[name]
    axis = next(k for k, dim in enumerate(op.dims) if dim.name == op.reduce_dims[-1])
    [task] = [t for t in document.tasks if isinstance(t, Compute) and t.op == name]
    target = next(b for b in document.buffers if b.name == task.write)
    record = program.records.get(op.output)
    layouts, buffers, tasks = dict(document.layouts), list(document.buffers), []
    edges, prior = [0, *ends, op.dims[axis].extent], None
    for turn, (a, b) in enumerate(pairwise(edges)):
        shards = LayoutText(tuple(_part(text, axis, a, b) for text in document.layouts[task.shards].regions))
        layouts[f"turn{turn}"] = shards
        write = task.write
        last = b == op.dims[axis].extent
        if not last and not (in_place and record is None):
            write = prior or f"{task.write}.so_far"
            write = write if in_place or prior is None else f"{prior}'"
            if write not in {buffer.name for buffer in buffers}:
                buffers.append(_behind(document, buffers, target, write, record))
        onto = msgspec.UNSET if prior is None else prior
        tasks.append(replace(task, id=len(document.tasks) + turn, shards=f"turn{turn}", write=write, onto=onto))
        prior = write
    tasks[-1] = replace(tasks[-1], id=task.id)
    at = document.tasks.index(task)
    every = (*document.tasks[:at], *tasks, *document.tasks[at + 1 :])
    used = {t.shards for t in every if isinstance(t, Compute)} | {
        n for b in buffers for n in (b.layout, b.initial) if n
    }
    used |= {n for t in every if not isinstance(t, Compute) for n in (t.need, getattr(t, "have", t.need))}
    kept = {key: layout for key, layout in layouts.items() if key in used}
    changed = replace(document, layouts=kept, buffers=tuple(buffers), tasks=every, workspaces=msgspec.UNSET)
    return restated(changed, program)


def _part(text: str, axis: int, a: int, b: int) -> str:
    whole = parse_region(text)
    grids = [Grid((*g.axes[:axis], g.axes[axis] & IntSet.interval(a, b), *g.axes[axis + 1 :])) for g in whole.grids]
    return str(Region.of(*grids))


def _behind(
    document: Document, buffers: Sequence[Buffer], target: Buffer, name: str, record: tuple[str, ...] | None
) -> Buffer:
    end = -(-max(b.offset + b.nbytes for b in buffers) // ALIGN) * ALIGN
    stored = Resolved(document).storage(target.name)
    size = max(grid.size for grid in stored if grid is not None)
    width = target.nbytes // size if record is None else record_bytes(record)
    return replace(target, name=name, offset=end, nbytes=size * width, record=record)
