"""Chains of tasks that one kernel does: recognised by what they compute, as everything here.

y = a b + r            a matrix product that adds to what lies there
o / l                  attention whose state nobody folds with another's, finished as the library gives it
(x - mean) * scale     folds along rows, and maps with what was folded: a row is read once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from ...blocks import BLOCKS
from ...dtypes import name_of
from ...expr import FUNCTIONS, Affine, Call, Expr, IndexValue, Inside, Read, walk
from ...kernels.elementwise.shard import localised
from ...kernels.elementwise.types import Layout
from ...kernels.errors import KernelError
from ...kernels.normalization.kernel import RowKernel, compile_rows
from ...program import Block, Operation
from ...space import IntSet
from ..device import Chain, Evaluation, Stored
from .arrays import DeviceArray
from .cells import cells_of
from .evaluating import jobs_of
from .heads import attentions_of
from .machine import Attention, Heads, Product, Unit
from .maps import ALIGNED
from .products import products_of
from .writing import Written

Box = tuple[range, ...]


def added_products(chain: Chain) -> list[Product] | None:
    """Products, and an addition of what lies at every element of them; None where the chain is none."""
    if len(chain.tasks) != 2 or chain.stored != {chain.tasks[1].op.output}:
        return None
    first, second = chain.tasks
    other = _added(second, first)
    if other is None or isinstance(first.op.body, Block):
        return None
    made = [products_of(job) for job in jobs_of(first)]
    if not made or None in made:
        return None
    moved, beside = _shift(first.write, second.write), _shift(first.write, other)
    if moved is None or beside is None:
        return None
    taken = [first.reads[name].array for name in first.op.operands]
    if not _apart(second.write.array, taken) or not _apart(second.write.array, [other.array], or_same=True):
        return None
    found = []
    for one in (one for products in made for one in products or ()):
        out = replace(one.out, array=second.write.array, offset=one.out.offset + moved)
        found.append(replace(one, out=out, added=replace(out, array=other.array, offset=one.out.offset + beside)))
    return found


def _added(second: Evaluation, first: Evaluation) -> Stored | None:
    """What a task adds to the result of another, element by element, over all of it."""
    op, result = second.op, first.op.output
    if op.monoid is not None or op.where or not isinstance(op.body, Call) or op.body.function != "add":
        return None
    reads = [arg for arg in op.body.args if isinstance(arg, Read) and not arg.guard and arg.index == op.write]
    others = [read.tensor for read in reads if read.tensor != result]
    if len(reads) != 2 or len(others) != 1:
        return None
    written, read = _boxes(first, first.op.write), _boxes(second, op.write)
    return second.reads[others[0]] if written is not None and written == read else None


def _shift(one: Stored, other: Stored) -> int | None:
    """How much further an element lies in another array, in elements; None where it is not the same for all."""
    if not isinstance(other.array, DeviceArray) or one.array.dtype != other.array.dtype or not one.grid.axes:
        return None
    if one.grid == other.grid:
        return 0
    (first, *inner), (start, *others) = one.grid.axes, other.grid.axes
    if inner != others or len(first.runs) != 1 or len(start.runs) != 1:
        return None
    return (first.runs[0].start - start.runs[0].start) * prod(axis.size for axis in inner)


# -- attention ---------------------------------------------------------------------------------------------------------


def finished_attentions(chain: Chain) -> list[Attention] | None:
    """Attention and the division of its state; None where the chain is none."""
    if len(chain.tasks) != 2 or chain.stored != {chain.tasks[1].op.output}:
        return None
    first, second = chain.tasks
    if not isinstance(first.op.body, Block) or BLOCKS[first.op.body.kernel].bodies or not _divides(second, first):
        return None
    attentions = attentions_of(first)
    if attentions is None or any(name_of(second.write.array.dtype) != name_of(a.query.array.dtype) for a in attentions):
        return None
    width = second.op.dims[-1].extent
    if any(a.width != width for a in attentions):
        return None
    found = [replace(a, state=_narrowed(a.state, second.write.array, width), finished=True) for a in attentions]
    return found if len(found) == 1 or all(_harmless(a) for a in found) else None


def _harmless(a: Attention) -> bool:
    """Whether no other call finds its operands overwritten: the result lies apart, or in the queries' own places.

    The call itself does not mind, since the library gives its result elsewhere first.
    """
    out, query = a.state, a.query
    places = [(x.array.pointer, x.offset, x.batch, x.row, x.head) for x in (out, query)]
    same = places[0] == places[1] and out.array.dtype == query.array.dtype
    return _apart(out.array, [a.key.array, a.value.array]) and (same or _apart(out.array, [query.array]))


def _divides(second: Evaluation, first: Evaluation) -> bool:
    """out[.., c] = state[.., c] / state[.., width], at all that the state was computed for and stored the same."""
    op, state = second.op, first.op.output
    width = op.dims[-1].extent
    wanted = Call("divide", (Read(state, op.write), Read(state, (*op.write[:-1], Affine.of(width)))))
    if (
        op.monoid is not None
        or op.where
        or op.body != wanted
        or first.op.write[-1] != Affine.dim(first.op.dims[-1].name)
    ):
        return False
    whole, part = _boxes(first, first.op.write), _boxes(second, op.write)
    if whole is None or part is None or {box[:-1] for box in whole} != {box[:-1] for box in part}:
        return False
    if any(box[-1] != range(width) for box in part):
        return False
    axes, others = first.write.grid.axes, second.write.grid.axes
    return axes[:-1] == others[:-1] and axes[-1].size == width + 2 and others[-1].size == width


def _narrowed(state: Heads, array: DeviceArray, width: int) -> Heads:
    """Where a result of so many elements lies that is stored as the states are."""
    steps = (n // (width + 2) * width for n in (state.offset, state.batch, state.row, state.head))
    return Heads(array, *steps)


# -- rows --------------------------------------------------------------------------------------------------------------


def rows_of(chain: Chain) -> Written | None:
    """The kernel that folds rows and maps them with what was folded; None where the chain is none."""
    arrays = _arrays(chain.tasks)
    if arrays is None or not _of_rows(chain.tasks):
        return None
    layouts = {name: _layout(stored.array) for name, stored in arrays.items()}
    outputs = [task.op.output for task in chain.tasks if task.op.output in chain.stored]
    local = [one for task in chain.tasks if (one := _local(task, arrays)) is not None]
    try:
        made = compile_rows(local, layouts, outputs=outputs) if len(local) == len(chain.tasks) else None
    except KernelError:
        return None
    if made is None:
        return None
    taken = [arrays[name].array for name in made.operands]
    given = [arrays[name].array for name in made.outputs]
    if made.plan is None or made.needs.alone:
        return None
    if not all(_apart(a, taken) or _in_place(made, k, a, taken) for k, a in enumerate(given)):
        return None
    if any(made.plan.is_streamed(load) and load.kind != "vector" for load in made.plan.loads):
        return None  # rows do not lie element after element
    if not all(_apart(a, [b]) for a, b in combinations(given, 2)):
        return None
    needs = made.needs
    unit = Unit(made.source, made.entry, made.blocks, made.threads, shared=needs.shared, cluster=needs.cluster)
    return Written(unit, (*taken, *given))


def _in_place(made: RowKernel, output: int, given: DeviceArray, taken: Sequence[DeviceArray]) -> bool:
    """Whether a result may lie over operands: rows are read once, and these only at the element that is written."""
    offset = made.program.outputs[output].offset
    over = {name for name, array in zip(made.operands, taken, strict=True) if not _apart(given, [array])}
    same = all(array.dtype == given.dtype for name, array in zip(made.operands, taken, strict=True) if name in over)
    there = all(read.index == (offset,) and not read.guard for read in made.program.reads if read.tensor in over)
    return made.plan is not None and made.plan.held and same and there and _apart(given, taken, or_same=True)


def _of_rows(tasks: Sequence[Evaluation]) -> bool:
    """Whether the tasks' points are all those of some rows, or one a row, and no library computes the folds."""
    folds = [task for task in tasks if task.op.monoid is not None]
    if not folds or any(isinstance(task.op.body, Block) or _strict(task.op.body) for task in tasks):
        return False
    if any(len(task.points.grids) != 1 for task in tasks) or any(products_of(job) for t in folds for job in jobs_of(t)):
        return False
    extents = dict(zip((dim.name for dim in folds[0].op.dims), folds[0].points.grids[0].axes, strict=True))
    rows = prod(axis.size for name, axis in extents.items() if name not in folds[0].op.reduce_dims)
    return all(task.points.size in (folds[0].points.size, rows) for task in tasks)


def _strict(body: Expr) -> bool:
    """Whether some values are an error, which other kernels report (`outside`)."""
    return any(isinstance(node, Call) and FUNCTIONS[node.function].strict for node in walk(body))


def _arrays(tasks: Sequence[Evaluation]) -> dict[str, Stored] | None:
    """Every tensor of the tasks, where it lies: in one place."""
    found: dict[str, Stored] = {}
    for task in tasks:
        for name, stored in (*task.reads.items(), (task.op.output, task.write)):
            if found.setdefault(name, stored) != stored or not isinstance(stored.array, DeviceArray):
                return None
            if stored.array.dtype.names:
                return None
    return found


def _local(task: Evaluation, arrays: Mapping[str, Stored]) -> Operation | None:
    """The operation at its points, over arrays that begin at index 0; None where stretches are not stored as they are
    computed: then what lies together belongs together, and only plain indices see it.
    """
    op, [grid] = task.op, task.points.grids
    axes = dict(zip((dim.name for dim in op.dims), grid.axes, strict=True))
    broken = {name for name, axis in axes.items() if len(axis.runs) != 1}
    if isinstance(op.body, Block) or (broken and not _plain(task, axes, broken)):
        return None
    points = {name: range(axis.size) if name in broken else axis.runs[0] for name, axis in axes.items()}
    origins = {}
    for name, stored in arrays.items():
        origins[name] = tuple(axis.runs[0].start if len(axis.runs) == 1 else 0 for axis in stored.grid.axes)
    return localised(op, points, origins)


def _plain(task: Evaluation, axes: Mapping[str, IntSet], broken: set[str]) -> bool:
    """Whether every index finds along dimensions in stretches what is stored in the same stretches, in their order."""
    op, body = task.op, task.op.body
    assert not isinstance(body, Block)
    indices = [(op.write, task.write)]
    for node in walk(body):
        if isinstance(node, Read):
            indices.append((node.index, task.reads[node.tensor]))
    if any(bound.expr.dims & broken for bound in op.where):
        return False
    for node in walk(body):
        bounds = node.guard if isinstance(node, Read) else node.bounds if isinstance(node, Inside) else ()
        if any(bound.expr.dims & broken for bound in bounds):
            return False
        if isinstance(node, IndexValue) and node.index.dims & broken:
            return False
    return all(
        not row.dims & broken or (row == Affine.dim(next(iter(row.dims))) and axes[next(iter(row.dims))] == axis)
        for index, stored in indices
        for row, axis in zip(index, stored.grid.axes, strict=True)
    )


def _layout(array: DeviceArray) -> Layout:
    lowest = array.pointer & -array.pointer if array.pointer else ALIGNED
    return Layout.contiguous(name_of(array.dtype), array.shape, min(ALIGNED, lowest))


# -- shared ------------------------------------------------------------------------------------------------------------


def _boxes(task: Evaluation, index: Sequence[Affine]) -> set[Box] | None:
    """The elements of a tensor that a task touches with an index of plain dimensions, as boxes."""
    found = set()
    for cell in cells_of(task.op, task.points):
        box = []
        for row in index:
            name = next(iter(row.dims), "")
            if row != Affine.dim(name) or name not in cell.kept:
                return None
            box.append(cell.kept[name])
        found.add(tuple(box))
    return found


def _apart(array: DeviceArray, others: Sequence[DeviceArray], *, or_same: bool = False) -> bool:
    """Whether an array shares no byte with others, or (``or_same``) is at the very address of one."""
    first, last = array.pointer, array.pointer + array.nbytes
    return all(
        (or_same and other.pointer == first and other.nbytes == array.nbytes)
        or other.pointer >= last
        or other.pointer + other.nbytes <= first
        for other in others
    )
