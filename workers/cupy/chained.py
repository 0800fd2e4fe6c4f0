"""Chains of tasks that one kernel does: recognised by what they compute, as everything here.

y = a b + r      a matrix product that adds to what lies there
max(a b, 0)      one that leaves nothing below 0
f(x a, x b)      two products of the same rows and a map of both
o / l            attention whose state nobody folds with another's, finished as the library gives it
f(g(x), z)       maps, point by point: what is between them stays in registers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ...blocks import BLOCKS
from ...dtypes import name_of
from ...expr import Affine, Call, Const, Expr, IndexValue, Inside, Read, rewrite, walk
from ...kernels.elementwise.fuse import fuse
from ...kernels.errors import KernelError
from ...program import Block, Operation
from ..device import Chain, Evaluation, Stored
from .arrays import DeviceArray, apart
from .cells import boxes_touched
from .evaluating import jobs_of
from .heads import attentions_of
from .machine import Attention, Heads, Paired, Product
from .paired import paired_of
from .products import dtype_of, products_of
from .rows import arrays_of
from .thin import FEW


def named_alike(task: Evaluation) -> Evaluation:
    """The task with every read of the very place that it writes written as that: along a dimension of one value an
    index may name the dimension, or be 0.
    """
    op = task.op
    single = {dim.name: Affine() for dim in op.dims if dim.extent == 1}
    if not single or isinstance(op.body, Block):
        return task
    there = [row.substitute(single) for row in op.write]

    def leaf(node: Expr) -> Expr:
        same = isinstance(node, Read) and [row.substitute(single) for row in node.index] == there
        return replace(node, index=op.write) if isinstance(node, Read) and same else node

    return replace(task, op=replace(op, body=rewrite(op.body, leaf)))


def added_products(chain: Chain) -> list[Product] | None:
    """Products, and an addition of what lies at every element of them; None where the chain is none."""
    if len(chain.tasks) != 2 or chain.stored != {chain.tasks[1].op.output}:
        return None
    first, second = chain.tasks
    other = _added(second, first)
    made = None if other is None else plain_products(first)
    if made is None or other is None:
        return None
    moved, beside = _shift(first.write, second.write), _shift(first.write, other)
    if moved is None or beside is None:
        return None
    taken = [first.reads[name].array for name in first.op.operands]
    if not apart(second.write.array, taken) or not apart(second.write.array, [other.array], or_same=True):
        return None
    found = []
    for one in made:
        out = replace(one.out, array=second.write.array, offset=one.out.offset + moved)
        found.append(replace(one, out=out, added=replace(out, array=other.array, offset=one.out.offset + beside)))
    return found


def positive_products(chain: Chain) -> list[Product] | None:
    """Products, and a map that makes 0 of what is less, at every element of them; None where the chain is none."""
    if len(chain.tasks) != 2 or chain.stored != {chain.tasks[1].op.output}:
        return None
    first, second = chain.tasks
    result = Read(first.op.output, second.op.write)
    if second.op.monoid is not None or second.op.where or second.op.body not in _clamps(result):
        return None
    written = _touched(first, first.op.write)
    made = plain_products(first) if written is not None and written == _touched(second, second.op.write) else None
    moved, taken = _shift(first.write, second.write), [first.reads[name].array for name in first.op.operands]
    if made is None or moved is None or not apart(second.write.array, taken):
        return None
    if any(min(one.rows, one.columns) <= FEW or dtype_of(one.out) == "f64" for one in made):
        return None
    array = second.write.array
    return [
        replace(one, out=replace(one.out, array=array, offset=one.out.offset + moved), positive=True) for one in made
    ]


def _clamps(value: Read) -> tuple[Expr, ...]:
    """The larger of a value and 0, as it may be written."""
    zeros = (Const(0), Const(0.0))
    return tuple(Call("maximum", args) for zero in zeros for args in ((value, zero), (zero, value)))


def paired_products(chain: Chain) -> Paired | None:
    """Two products of the same rows, and a map of both at every element of them; None where the chain is none."""
    if len(chain.tasks) != 3 or chain.stored != {chain.tasks[2].op.output}:
        return None
    *products, last = chain.tasks
    if not _maps_both(last, products):
        return None
    first, second = (plain_products(task) for task in products)
    if first is None or second is None or len(first) != 1 or len(second) != 1:
        return None
    [a], [b] = first, second
    moved = [_shift(task.write, last.write) for task in products]
    if moved != [0, 0] or replace(a, right=b.right, out=b.out) != b:
        return None
    taken = [task.reads[name].array for task in products for name in task.op.operands]
    if not apart(last.write.array, taken):
        return None
    return paired_of(a, b, replace(a.out, array=last.write.array), last)


def _maps_both(last: Evaluation, products: Sequence[Evaluation]) -> bool:
    """Whether a map reads the results of two tasks and nothing else, at all elements of them, each where it writes."""
    op, results = last.op, {task.op.output for task in products}
    if op.monoid is not None or op.where or isinstance(op.body, Block) or set(op.operands) != results:
        return False
    if len(results) != 2 or any(isinstance(node, IndexValue | Inside) for node in walk(op.body)):
        return False
    if any(node.guard or node.index != op.write for node in walk(op.body) if isinstance(node, Read)):
        return False
    read = _touched(last, op.write)
    return read is not None and all(_touched(task, task.op.write) == read for task in products)


def products_onto(task: Evaluation, prior: Stored) -> list[Product] | None:
    """Products that add what lies at every element of partial results, which may be where they write; None where the
    task is none, or its partial results are of another dtype.
    """
    made, beside = plain_products(task), _shift(task.write, prior)
    taken = [task.reads[name].array for name in task.op.operands]
    if made is None or beside is None or not apart(task.write.array, taken):
        return None
    if not apart(task.write.array, [prior.array], or_same=True):
        return None
    return [replace(p, added=replace(p.out, array=prior.array, offset=p.out.offset + beside)) for p in made]


def _added(second: Evaluation, first: Evaluation) -> Stored | None:
    """What a task adds to the result of another, element by element, over all of it."""
    op, result = second.op, first.op.output
    if op.monoid is not None or op.where or not isinstance(op.body, Call) or op.body.function != "add":
        return None
    reads = [arg for arg in op.body.args if isinstance(arg, Read) and not arg.guard and arg.index == op.write]
    others = [read.tensor for read in reads if read.tensor != result]
    if len(reads) != 2 or len(others) != 1:
        return None
    written, read = _touched(first, first.op.write), _touched(second, op.write)
    return second.reads[others[0]] if written is not None and written == read else None


def _shift(one: Stored, other: Stored) -> int | None:
    """How much further an element lies in another array, in elements; None where it is not the same for all."""
    if not isinstance(other.array, DeviceArray) or one.array.dtype != other.array.dtype or not one.grid.axes:
        return None
    if one.grid == other.grid:
        return 0
    axes = list(zip(one.grid.axes, other.grid.axes, strict=True))
    while len(axes) > 1 and axes[0][0] == axes[0][1] and axes[0][0].size == 1:  # the next one is outermost
        del axes[0]
    (first, start), *inner = axes
    if any(a != b for a, b in inner) or len(first.runs) != 1 or len(start.runs) != 1:
        return None
    return (first.runs[0].start - start.runs[0].start) * prod(axis.size for axis, _ in inner)


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
    return [replace(a, state=_narrowed(a.state, second.write.array, width), finished=True) for a in attentions]


def read_attentions(chain: Chain) -> list[Attention] | None:
    """Attention whose result is the left operand of a product, with or without an addition; None where it is none."""
    first, rest = chain.tasks[:2], chain.tasks[2:]
    if not 1 <= len(rest) <= 2 or chain.stored != {rest[-1].op.output}:
        return None
    attentions = finished_attentions(Chain(first, frozenset({first[-1].op.output})))
    if attentions is None or len(attentions) != 1 or len(attentions[0].parts) != 1:
        return None
    made = added_products(Chain(rest, chain.stored)) if len(rest) == 2 else plain_products(rest[0])
    result = first[-1].write
    if made is None or len(made) != 1 or first[-1].points.size != result.grid.size:
        return None
    return [replace(attentions[0], read_by=made[0])] if made[0].left.array == result.array else None


def plain_products(task: Evaluation) -> list[Product] | None:
    """The matrix products that a task is, or None."""
    if isinstance(task.op.body, Block):
        return None
    made = [products_of(job) for job in jobs_of(task)]
    return None if not made or None in made else [one for products in made for one in products or ()]


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
    whole, part = _touched(first, first.op.write), _touched(second, op.write)
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


# -- maps --------------------------------------------------------------------------------------------------------------


def fused_maps(chain: Chain) -> Evaluation | None:
    """Maps as one, each computed at the points at which the next reads it; None where the chain is none.

    What the program rounds is rounded still.
    """
    tasks, last = chain.tasks, chain.tasks[-1]
    if chain.stored != {last.op.output} or any(task.op.monoid or isinstance(task.op.body, Block) for task in tasks):
        return None
    arrays = arrays_of(tasks)
    made = {task.op.output: task for task in tasks[:-1]}
    if arrays is None or any(task.op.where for task in tasks[:-1]) or not all(_at_its_points(t, made) for t in tasks):
        return None
    try:
        op = fuse([task.op for task in tasks], {name: name_of(stored.array.dtype) for name, stored in arrays.items()})
    except KernelError:
        return None
    reads = {name: arrays[name] for name in op.operands}
    read_first = all(_read_first(op, name, stored, last.write) for name, stored in reads.items())
    return replace(last, op=op, reads=reads) if read_first else None


def _at_its_points(task: Evaluation, made: Mapping[str, Evaluation]) -> bool:
    """Whether a task reads what others made at all points at which they did, and each once."""
    assert not isinstance(task.op.body, Block)
    for node in walk(task.op.body):
        if isinstance(node, Read) and node.tensor in made:
            writer = made[node.tensor]
            read, written = _touched(task, node.index), _touched(writer, writer.op.write)
            if node.guard or read is None or read != written or task.points.size != writer.points.size:
                return False
    return True


def _read_first(op: Operation, name: str, stored: Stored, write: Stored) -> bool:
    """Whether every point has read what its result is written over: the result lies apart, or at the very element."""
    if apart(write.array, [stored.array]):
        return True
    assert not isinstance(op.body, Block)
    there = all(node.index == op.write for node in walk(op.body) if isinstance(node, Read) and node.tensor == name)
    same = write.grid == stored.grid and write.array.dtype == stored.array.dtype
    return there and same and apart(write.array, [stored.array], or_same=True)


def _touched(task: Evaluation, index: Sequence[Affine]) -> set[tuple[range, ...]] | None:
    return boxes_touched(task.op, task.points, index)
