"""Second proof: the shards of every operation cover its domain, and shares of a reduction overlap only as copies.

All tasks of an operation on all ranks count together. A point may be computed more than once only where that repeats
the same work: equal shards, or shards that both hold whole reductions. Whether the shares that are folded together
add up is proved where they are folded (`flow`).
"""

from __future__ import annotations

from ..format.model import Compute
from .algebra import EMPTY, Shape
from .case import Case
from .report import Code, Findings

Shards = tuple[tuple[int, int, int], ...]


def prove(case: Case, findings: Findings) -> None:
    """Findings UNCOVERED, OVERCOVERED, UNCUTTABLE, UNPROVEN; facts: operations and points."""
    shards = _shards(case)
    proved: dict[tuple[int, frozenset[int]], bool] = {}
    points = 0
    for op in case.program.operations:
        shape = case.shape(op)
        mine = shards.get(op.name, ())
        key = shape.number, frozenset(number for _, _, number in mine)
        if key not in proved or not proved[key]:
            proved[key] = _covered(case, shape, mine, op.name, findings)
        points += shape.count(shape.domain)
    findings.facts.update(operations=len(case.program.operations), points=points)


def _shards(case: Case) -> dict[str, Shards]:
    """Operation -> (task id, rank, points) of all its non-empty shards."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for task in case.tasks:
        if isinstance(task, Compute):
            regions = case.layouts[task.shards]
            mine = ((task.id, rank, regions[rank]) for rank in case.participants(task) if regions[rank] != EMPTY)
            found.setdefault(task.op, []).extend(mine)
    return {name: tuple(shards) for name, shards in found.items()}


def _covered(case: Case, shape: Shape, shards: Shards, op: str, findings: Findings) -> bool:
    missing = case.algebra.minus(shape.domain, case.algebra.join(points for _, _, points in shards))
    good = True
    if shape.count(missing):
        findings.add(
            Code.UNCOVERED,
            f"{shape.count(missing)} points of {op} are in no shard",
            tensor=op,
            witness=shape.point_of(missing),
        )
        good = False
    for task, rank, points in {points: shard for shard in shards for points in shard[2:]}.values():
        shape.image(points)
        if points in shape.hulls:
            findings.add(Code.UNPROVEN, f"what {op} writes is known as a hull only", task=task, rank=rank, tensor=op)
            good = False
        if not shape.uncut(points):
            findings.add(
                Code.UNCUTTABLE,
                f"a shard of {op} cuts a dimension that may not be cut",
                task=task,
                rank=rank,
                tensor=op,
            )
            good = False
    return _apart(case, shape, shards, op, findings) and good


def _apart(case: Case, shape: Shape, shards: Shards, op: str, findings: Findings) -> bool:
    """Different shards meet only where neither cuts a reduction."""
    distinct = list({points: shard for shard in shards for points in shard[2:]}.values())
    cutting = [shard for shard in distinct if shape.written(shard[2]).complete != shape.image(shard[2])]
    known = {shard[2] for shard in cutting}
    for task, rank, points in cutting:
        for other, elsewhere, theirs in distinct:
            common = (
                EMPTY
                if points == theirs or (theirs in known and points > theirs)
                else case.algebra.meet(points, theirs)
            )
            if common != EMPTY and shape.count(common):
                message = f"shares of {op} overlap without being equal: also task {other} on rank {elsewhere}"
                findings.add(Code.OVERCOVERED, message, task=task, rank=rank, tensor=op, witness=shape.point_of(common))
                return False
    return True
