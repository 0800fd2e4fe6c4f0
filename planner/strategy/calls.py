"""Operations that one call of a library computes at once, where they have the same operands and the same points.

Each is priced by an equal part of the call. One whose points are not those of the others has a call of its own, and
takes all of it. Two operations of a call have the same points where they read the same of every operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...blocks import BLOCKS
from ...program import Block, Operation, Program
from ..machine import Machine
from .cost import kernel_class


@dataclass(frozen=True)
class Call:
    """Operations of one call, of which it makes ``parts`` with others that the program may not have."""

    operations: tuple[Operation, ...]
    parts: int


def calls_of(program: Program, machine: Machine) -> Sequence[Call]:
    """Of a program, on a machine whose devices were measured making them."""
    found: dict[tuple[object, ...], list[Operation]] = {}
    for op in program.operations:
        if (
            isinstance(op.body, Block)
            and (call := BLOCKS[op.body.kernel].call)
            and _measured(machine, kernel_class(op))
        ):
            reads = tuple(read.tensor for read in op.body.reads)
            found.setdefault((call, reads, op.body.attributes), []).append(op)
    made = [entry.call for entry in BLOCKS.values()]
    return [Call(tuple(ops), made.count(str(call))) for (call, *_), ops in found.items()]


def _measured(machine: Machine, kernel: str) -> bool:
    return any(table.kernel == kernel for device in machine.devices for pace in device.paces for table in pace.shapes)
