"""Second proof: the shards of every operation cover its domain, and shares of a reduction overlap only as copies.

All tasks of an operation on all ranks count together. A point may be computed more than once only where that repeats
the same work: equal shards, or shards that both hold whole reductions. Whether the shares that are folded together
add up is proved where they are folded (`flow`).
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from ...program import Operation
from ..format.document import Compute
from .algebra import EMPTY
from .case import Case
from .report import Code, Findings


class Shard(NamedTuple):
    """The points that one task computes on one rank."""

    task: int
    rank: int
    points: int


def prove(case: Case, findings: Findings) -> None:
    """Findings UNCOVERED, OVERCOVERED, UNCUTTABLE, UNPROVEN; facts: operations and points."""
    tasks = _tasks(case)
    proved: set[tuple[int, frozenset[int]]] = set()
    for op in case.program.operations:
        mine = tasks.get(op.name, [])
        points = frozenset(chain.from_iterable(case.distinct(task.shards, task.ranks) for task in mine))
        key = case.shape(op).number, points
        if key in proved:
            continue
        distinct = _shards(case, mine)
        before = len(findings.verdicts)
        for proof in (_covered, _whole, _apart):
            proof(case, op, distinct, findings)
        if len(findings.verdicts) == before:
            proved.add(key)
    shapes = (case.shape(op) for op in case.program.operations)
    findings.facts.update(
        operations=len(case.program.operations), points=sum(shape.count(shape.domain) for shape in shapes)
    )


def _tasks(case: Case) -> dict[str, list[Compute]]:
    """Operation -> its tasks."""
    found: dict[str, list[Compute]] = {}
    for task in case.tasks:
        if isinstance(task, Compute):
            found.setdefault(task.op, []).append(task)
    return found


def _shards(case: Case, tasks: list[Compute]) -> list[Shard]:
    """The different shards of an operation that are not empty, each where it is last met."""
    found: dict[int, Shard] = {}
    for task in tasks:
        regions = case.layouts[task.shards]
        found |= {regions[r]: Shard(task.id, r, regions[r]) for r in case.participants(task) if regions[r] != EMPTY}
    return list(found.values())


def _covered(case: Case, op: Operation, shards: list[Shard], findings: Findings) -> None:
    """Every point is in some shard."""
    shape = case.shape(op)
    missing = case.algebra.minus(shape.domain, case.algebra.join(shard.points for shard in shards))
    if shape.count(missing):
        message = f"{shape.count(missing)} points of {op.name} are in no shard"
        findings.add(Code.UNCOVERED, message, tensor=op.output, witness=shape.point_of(missing))


def _whole(case: Case, op: Operation, shards: list[Shard], findings: Findings) -> None:
    """What each shard writes is known exactly, and it keeps whole what may not be cut."""
    shape = case.shape(op)
    for task, rank, points in shards:
        shape.image(points)
        if points in shape.hulls:
            message = f"what {op.name} writes is known as a hull only"
            findings.add(Code.UNPROVEN, message, task=task, rank=rank, tensor=op.output)
        if not shape.uncut(points):
            message = f"a shard of {op.name} cuts a dimension that may not be cut"
            findings.add(Code.UNCUTTABLE, message, task=task, rank=rank, tensor=op.output)


def _apart(case: Case, op: Operation, shards: list[Shard], findings: Findings) -> None:
    """Different shards meet only where neither leaves out part of a reduction."""
    shape, algebra = case.shape(op), case.algebra
    together = algebra.join(shard.points for shard in shards)
    if sum(algebra.size(shard.points) for shard in shards) == algebra.size(together):
        return
    whole = [s for s in shards if shape.written(s.points).complete == shape.image(s.points)]
    cutting = [s for s in shards if shape.written(s.points).complete != shape.image(s.points)]
    for k, one in enumerate(cutting):
        for other in chain(cutting[:k], whole):
            common = algebra.meet(one.points, other.points)
            if shape.count(common):
                one, other = sorted((one, other), key=shards.index)
                message = (
                    f"shares of {op.name} overlap without being equal: also task {other.task} on rank {other.rank}"
                )
                witness = shape.point_of(common)
                findings.add(Code.OVERCOVERED, message, task=one.task, rank=one.rank, tensor=op.output, witness=witness)
                return
