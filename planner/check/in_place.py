"""A task that writes over what it reads does so element for element.

Where a task names a buffer in ``over``, its result lies in the place of that buffer. A device takes the points in any
order, and each point reads all that it reads before it writes. One point writes an element (a program in which two do
is none). So nothing is lost if and only if no point reads of that buffer another element than the one in whose place it
writes. Both buffers begin at one address, hold elements of one dtype and store the same intervals, so that an index is
the same bytes in both.

That no other task reads the buffer at that time is proved by `order`, and that none does afterwards by `flow`: to them
it is a write to other memory's place like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...program import Block
from ..format.document import Compute
from .case import Case
from .groups import Group, Groups
from .report import Code, Findings
from .shape import Shape

FINE, STORED, DISPLACED = range(3)


def prove(groups: Groups, findings: Findings) -> None:
    """Finding IN_PLACE."""
    for position, task in enumerate(groups.case.tasks):
        if not isinstance(task, Compute) or task.over is None:
            continue
        tensor = groups.case.buffers[task.over].tensor
        faults = [*_unlike(groups.case, task, task.over)]
        for fault in faults:
            findings.add(
                Code.IN_PLACE, f"{task.op} writes over buffer {task.over}, {fault}", task=task.id, tensor=tensor
            )
        for group in () if faults else groups.of(position):
            _prove_ranks(groups, group, task, task.over, findings)


def _unlike(case: Case, task: Compute, over: str) -> Iterator[str]:
    """What two buffers and an operation have to be, on whatever rank."""
    op, read, write = case.program.op_by_name[task.op], case.buffers[over], case.buffers[task.write]
    if op.reduce_dims or op.monoid is not None or isinstance(op.body, Block):
        yield "though a result of it is made of more than one point"
    kinds = range(max(len(read.places), len(write.places)))
    if read.tier != write.tier or any(read.place(k).offset != write.place(k).offset for k in kinds):
        yield f"which begins at {read.offset} of {read.tier}, and buffer {write.name} at {write.offset} of {write.tier}"
    dtypes = [case.program.tensor(buffer.tensor).dtype for buffer in (read, write)]
    if dtypes[0] != dtypes[1]:
        yield f"which holds {dtypes[0]}, and its result is {dtypes[1]}"


def _prove_ranks(groups: Groups, group: Group, task: Compute, over: str, findings: Findings) -> None:
    case, columns = groups.case, groups.columns
    shape, operand = case.shape_of(task), task.reads.index(over)
    asked = (groups.regions(task.shards, group), groups.held(over, group), groups.held(task.write, group))
    found = columns.apply(_exchanged, asked, shape, operand)
    for k in columns.nonzero(found):
        points = columns.values(asked[0])[k]
        why, witness = _said(columns.values(found)[k], shape, operand, points)
        message, tensor = f"{task.op} writes over buffer {over}, {why}", case.buffers[over].tensor
        findings.add(Code.IN_PLACE, message, rank=group.ranks[k], task=task.id, tensor=tensor, witness=witness)


def _exchanged(points: int, read: int, write: int, shape: Shape, operand: int) -> int:
    """What is wrong at these points where the one buffer is laid out for these elements, and the other for those."""
    if not shape.reads(points)[operand]:
        return FINE
    if not shape.stored_alike(read, write):
        return STORED
    return FINE if shape.displaced(points, operand) is None else DISPLACED


def _said(fault: int, shape: Shape, operand: int, points: int) -> tuple[str, tuple[int, ...] | None]:
    if fault == DISPLACED:
        return "of which a point reads another element than it writes", shape.displaced(points, operand)
    return "which does not store the same intervals as its result", None
