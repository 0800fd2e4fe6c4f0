"""Operations that one call of a library computes at once, where they have the same operands and the same points.

Each is priced by an equal share of the call. One whose points are not those of the others has a call of its own, and
takes all of it. Two operations of a call have the same points where they read the same of every operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...blocks import BLOCKS
from ...program import Block, Operation, Program
from ..machine import Machine, ShapeTable
from .cost import compute_dtype, kernel_class


@dataclass(frozen=True)
class Call:
    """Operations of one call, of which each is priced by one of so many ``shares``: there may be others that the
    program does not have."""

    operations: tuple[Operation, ...]
    shares: int


def calls_of(program: Program, machine: Machine) -> Sequence[Call]:
    """Of a program, on a machine whose devices were measured making them, of such types and widths."""
    found: dict[tuple[str, object, object], list[Operation]] = {}
    for op in program.operations:
        call = BLOCKS[op.body.kernel].call if isinstance(op.body, Block) else None
        if isinstance(op.body, Block) and call is not None and _measured(op, program, machine):
            reads = tuple(read.tensor for read in op.body.reads)
            found.setdefault((call, reads, op.body.attributes), []).append(op)
    return [Call(tuple(ops), kernels_of(call)) for (call, *_), ops in found.items()]


def kernels_of(call: str) -> int:
    """How many kernels' results a call makes."""
    return sum(entry.call == call for entry in BLOCKS.values())


def _measured(op: Operation, program: Program, machine: Machine) -> bool:
    kernel, dtype, width = kernel_class(op), compute_dtype(op, program), op.dims[-1].extent
    tables = [device.shaped(kernel, dtype, 1) for device in machine.devices]
    return any(isinstance(t, ShapeTable) and t.kernel == kernel and width in t.folded for t in tables)
