"""What the points of a compute task contribute, as expressions: the same for every device."""

from __future__ import annotations

from ..arithmetic import explicit
from ..dtypes import DTYPES
from ..expr import MONOIDS, Affine, Call, Cast, Component, Expr, IndexValue, Read, rewrite
from ..expr.functions import PAIR
from ..program import Block, Operation
from ..result_type import result_dtype
from .device import Evaluation


def dtypes_of(task: Evaluation) -> dict[str, str]:
    """The dtypes of the program's tensors."""
    return {tensor.name: tensor.dtype for tensor in task.program.tensors}


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
    given = {"x": both[0], "y": both[1], "i": position}

    def leaf(node: Expr) -> Expr:
        return given[node.tensor] if isinstance(node, Read) else node

    found = rewrite(component.lift, leaf)
    dtype = component.dtype_for(value, stored)
    exact = component.unrounded or DTYPES[dtype].kind == "float" or dtype == "int64"
    return found if exact or (isinstance(body, Read) and found is body and value == dtype) else Cast(dtype, found)
