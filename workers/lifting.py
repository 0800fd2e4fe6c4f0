"""What the points of a compute task contribute, as expressions: the same for every device."""

from __future__ import annotations

from dataclasses import replace

from ..arithmetic import explicit
from ..dtypes import DTYPES, name_of
from ..expr import MONOIDS, Affine, Call, Cast, Component, Const, Expr, IndexValue, Read, rewrite
from ..expr.functions import PAIR
from ..program import Block, Operation
from ..records import over_records as records_of
from ..records import record_dtype, records_at
from ..result_type import result_dtype
from ..space import Grid
from .device import Evaluation, Stored


def over_records(task: Evaluation) -> Evaluation:
    """A fold of several results as one into records: what lies along the last axis of its output is one element."""
    if task.op.record_dim is None:
        return task
    array, grid = task.write.array, task.write.grid
    record = (name_of(array.dtype),) * grid.axes[-1].size
    records = array.view(record_dtype(record, MONOIDS[task.op.monoid or ""])).reshape(grid.shape[:-1])
    write = Stored(records, Grid(grid.axes[:-1]))
    return replace(task, op=records_of(task.op), points=records_at(task.op, task.points), write=write)


def dtypes_of(task: Evaluation) -> dict[str, str]:
    """The dtypes of the tensors that the task has to do with."""
    return {name: task.program.tensor(name).dtype for name in (*task.op.operands, task.op.output)}


def value_dtype(task: Evaluation) -> str:
    """The dtype of what a point contributes."""
    body = task.op.body
    return dtypes_of(task)[task.op.output] if isinstance(body, Block) else result_dtype(body, dtypes_of(task))


def values_of(task: Evaluation) -> list[Expr]:
    """What a point computes, every conversion written out: of a fold one value for each component of its record."""
    op, dtypes = task.op, dtypes_of(task)
    assert not isinstance(op.body, Block)
    body = explicit(op.body, dtypes)
    return [body] if op.monoid is None else lifts(op, body, value_dtype(task), dtypes[op.output])


def lifts(op: Operation, body: Expr, value: str, stored: str) -> list[Expr]:
    """What a point contributes to each component of the operation's monoid, over the dimensions of the operation."""
    assert op.monoid is not None
    position = Affine()
    for name in op.reduce_dims:
        position = position * op.extents[name] + Affine.dim(name)
    return [lifted(part, body, IndexValue(position), value, stored) for part in MONOIDS[op.monoid].components]


def lifted(component: Component, body: Expr, position: Expr, value: str, stored: str) -> Expr:
    """What a point contributes to a component, rounded or wrapped to the component's dtype where it has one."""
    both = body.args if isinstance(body, Call) and body.function == PAIR else (body, body)
    dtype = component.dtype_for(value, stored)
    nothing = Const(component.identity_in(dtype))
    given = {"x": both[0], "y": both[1], "i": position, "e": nothing}

    def leaf(node: Expr) -> Expr:
        return given[node.tensor] if isinstance(node, Read) else node

    found = rewrite(component.lift, leaf)
    exact = component.unrounded or DTYPES[dtype].kind == "float" or dtype == "int64"
    return found if exact or (isinstance(body, Read) and found is body and value == dtype) else Cast(dtype, found)
