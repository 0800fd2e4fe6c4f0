"""Chains of tasks that fold rows and map them with what was folded, as one kernel: a row is read once.

mean[t] = sum[d] x[t, d] / D         y[t, d] = (x[t, d] - mean[t]) * w[d]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from ...dtypes import name_of
from ...expr import FUNCTIONS, Call, Expr, Read, rewrite, walk
from ...kernels.elementwise.shard import localised
from ...kernels.elementwise.types import Layout
from ...kernels.errors import KernelError
from ...kernels.normalization.kernel import RowKernel, compile_rows
from ...program import Block, Operation
from ...space import Grid
from ..device import Chain, Evaluation, Stored
from .arrays import DeviceArray, apart
from .convolutions import convolution_of
from .evaluating import jobs_of
from .jobs import Job
from .laid_out import has_windows_apart
from .machine import Unit
from .maps import ALIGNED, numbered
from .products import products_of
from .stretches import plain
from .writing import Written

# Elements of a row from which on a kernel of rows has something to do.
SHORTEST = 4


def rows_of(chain: Chain) -> Written | None:
    """The kernel that folds rows and maps them with what was folded; None where the chain is none."""
    arrays = arrays_of(chain.tasks) if _of_rows(chain.tasks) else None
    if arrays is None:
        return None
    arrays |= _among_others(chain.tasks)
    names = numbered(arrays)
    layouts = {names[tensor]: _layout(stored.array) for tensor, stored in arrays.items()}
    outputs = [names[task.op.output] for task in chain.tasks if task.op.output in chain.stored]
    local = [_renamed(one, names) for task in chain.tasks if (one := _local(task, arrays)) is not None]
    try:
        made = compile_rows(local, layouts, outputs=outputs) if len(local) == len(chain.tasks) else None
    except KernelError:
        return None
    if made is None:
        return None
    known = {names[tensor]: stored.array for tensor, stored in arrays.items()}
    taken, given = [known[name] for name in made.operands], [known[name] for name in made.outputs]
    if made.plan is None or made.needs.alone:
        return None
    if not all(apart(a, taken) or _in_place(made, k, a, taken) for k, a in enumerate(given)):
        return None
    if any(made.plan.is_streamed(load) and load.kind != "vector" for load in made.plan.loads):
        return None  # rows do not lie element after element
    if not all(apart(a, [b]) for a, b in combinations(given, 2)):
        return None
    needs = made.needs
    unit = Unit(
        made.source, made.entry, made.blocks, made.threads, shared=needs.shared, cluster=needs.cluster, follows=True
    )
    return Written(unit, (*taken, *given))


def _in_place(made: RowKernel, output: int, given: DeviceArray, taken: Sequence[DeviceArray]) -> bool:
    """Whether a result may lie over operands: rows are read once, and these only at the element that is written."""
    offset = made.program.outputs[output].offset
    over = {name for name, array in zip(made.operands, taken, strict=True) if not apart(given, [array])}
    same = all(array.dtype == given.dtype for name, array in zip(made.operands, taken, strict=True) if name in over)
    there = all(read.index == (offset,) and not read.guard for read in made.program.reads if read.tensor in over)
    return made.plan is not None and made.plan.held and same and there and apart(given, taken, or_same=True)


def _of_rows(tasks: Sequence[Evaluation]) -> bool:
    """Whether the tasks' points are all those of some rows, or one a row, and no library computes the folds."""
    folds = [task for task in tasks if task.op.monoid is not None]
    if not folds or any(isinstance(task.op.body, Block) or _strict(task.op.body) for task in tasks):
        return False
    if any(len(task.points.grids) != 1 for task in tasks):
        return False
    extents = dict(zip((dim.name for dim in folds[0].op.dims), folds[0].points.grids[0].axes, strict=True))
    rows = prod(axis.size for name, axis in extents.items() if name not in folds[0].op.reduce_dims)
    if folds[0].points.size < SHORTEST * rows:
        return False
    if any(task.points.size not in (folds[0].points.size, rows) for task in tasks):
        return False
    return not any(_elsewhere(job) for task in folds for job in jobs_of(task))


def _elsewhere(job: Job) -> bool:
    """Whether a fold is better left to others: a library's, or one that goes to what its data select."""
    if job.placed or any(fold.chosen for fold in job.folds):
        return True
    return bool(products_of(job) or has_windows_apart(job) or convolution_of(job))


def _strict(body: Expr) -> bool:
    """Whether some values are an error, which other kernels report (`outside`)."""
    return any(isinstance(node, Call) and FUNCTIONS[node.function].strict for node in walk(body))


def arrays_of(tasks: Sequence[Evaluation]) -> dict[str, Stored] | None:
    """Every tensor of the tasks, where it lies: in one place."""
    found: dict[str, Stored] = {}
    for task in tasks:
        for name, stored in (*task.reads.items(), (task.op.output, task.write)):
            if found.setdefault(name, stored) != stored or not isinstance(stored.array, DeviceArray):
                return None
            if stored.array.dtype.names:
                return None
    return found


def _among_others(tasks: Sequence[Evaluation]) -> dict[str, Stored]:
    """Results that no task reads and that are stored between rows of others, as arrays of the rows that are written."""
    read = {name for task in tasks for name in task.reads}
    found = {task.op.output: _written(task) for task in tasks if task.op.output not in read}
    return {name: stored for name, stored in found.items() if stored is not None}


def _written(task: Evaluation) -> Stored | None:
    """The rows of a storage that a task writes, where these are some of one axis and lie together."""
    [points], stored = task.points.grids, task.write
    axes = dict(zip((dim.name for dim in task.op.dims), points.axes, strict=True))
    wanted = [axes.get(str(row)) for row in task.op.write]
    axis = next((k for k, (a, b) in enumerate(zip(wanted, stored.grid.axes, strict=True)) if a != b), None)
    if axis is None or any(held.size > 1 for held in stored.grid.axes[:axis]):
        return None
    mine, held = wanted[axis], stored.grid.axes[axis]
    if mine is None or len(mine.runs) != 1 or len(held.runs) != 1 or mine.runs[0].step != held.runs[0].step:
        return None
    if wanted[axis + 1 :] != [*stored.grid.axes[axis + 1 :]] or mine.runs[0].start not in held.runs[0]:
        return None
    first, (_, *rest) = held.runs[0].index(mine.runs[0].start), stored.array.shape[axis:]
    shape = (*stored.array.shape[:axis], mine.size, *rest)
    offset = stored.array.offset + first * prod(rest) * stored.array.dtype.itemsize
    grid = Grid((*stored.grid.axes[:axis], mine, *stored.grid.axes[axis + 1 :]))
    return Stored(replace(stored.array, offset=offset, shape=shape), grid)


def _local(task: Evaluation, arrays: Mapping[str, Stored]) -> Operation | None:
    """The operation at its points, over arrays that begin at index 0; None where stretches are not stored as they are
    computed: then what lies together belongs together, and only plain indices see it.
    """
    op, [grid] = task.op, task.points.grids
    axes = dict(zip((dim.name for dim in op.dims), grid.axes, strict=True))
    broken = {name for name, axis in axes.items() if len(axis.runs) != 1}
    if isinstance(op.body, Block) or (broken and not plain(task, axes, broken)):
        return None
    points = {name: range(axis.size) if name in broken else axis.runs[0] for name, axis in axes.items()}
    origins = {}
    for name, stored in arrays.items():
        origins[name] = tuple(axis.runs[0].start if len(axis.runs) == 1 else 0 for axis in stored.grid.axes)
    return localised(op, points, origins)


def _renamed(op: Operation, names: Mapping[str, str]) -> Operation:
    """An operation on tensors of other names."""
    assert not isinstance(op.body, Block)

    def leaf(node: Expr) -> Expr:
        return replace(node, tensor=names[node.tensor]) if isinstance(node, Read) else node

    return replace(op, name=names[op.output], output=names[op.output], body=rewrite(op.body, leaf))


def _layout(array: DeviceArray) -> Layout:
    lowest = array.pointer & -array.pointer if array.pointer else ALIGNED
    return Layout.contiguous(name_of(array.dtype), array.shape, min(ALIGNED, lowest))
