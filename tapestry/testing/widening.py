"""Programs in floats of 64 bits, in which two ways to compute the same agree closely."""

from __future__ import annotations

from dataclasses import replace

from ..dtypes import DTYPES
from ..expr import Cast, Expr, fold
from ..expr.scalar import with_children
from ..program import Block, Operation, Program


def in_f64(program: Program) -> Program:
    """The program with every float in 64 bits. What functions make of integers alone stays in f32."""
    tensors = tuple(replace(tensor, dtype=_wide(tensor.dtype)) for tensor in program.tensors)
    return replace(program, tensors=tensors, operations=tuple(map(_widened, program.operations)))


def _wide(dtype: str) -> str:
    return "f64" if DTYPES[dtype].kind == "float" else dtype


def _widened(op: Operation) -> Operation:
    return op if isinstance(op.body, Block) else replace(op, body=fold(op.body, _node))


def _node(node: Expr, args: tuple[Expr, ...]) -> Expr:
    return Cast(_wide(node.dtype), args[0]) if isinstance(node, Cast) else with_children(node, args)
