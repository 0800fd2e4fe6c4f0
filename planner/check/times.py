"""Eighth proof: the predicted times are those of the plan's own tasks, replayed with the machine's rates.

A task starts when the one before it on its lane has ended and those that it waits for have; a transfer when all of
its ranks are ready; transfers that meet on a link that devices have together divide it (`divided`). Where the machine
does one thing at a time (`overlap`), all lanes of a rank are one. That a kernel takes longer than the machine says is
the planner's word (`claims.kernels`): it is taken, and only that it is no less is proved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...program import Operation
from ..format.document import Compute, Copy, Task, Transfer
from .case import Case
from .divided import Replay
from .moves import Moves
from .rates import Rates
from .report import Code, Findings

TOLERANCE = 1e-9  # of floating-point sums
Vector = Any  # seconds, per rank


def prove(case: Case, moves: Moves, findings: Findings) -> None:
    """Findings CLAIM and PREDICTED."""
    work = Work(case, moves.rates)
    kernels = _kernels(case, work, findings)
    makespan, busy = replay(case, moves, work, kernels)
    stated = case.document.predicted
    replayed = {"makespan_s": makespan, "compute_s": busy, "exposed_transfer_s": max(0.0, makespan - busy)}
    for name, seconds in replayed.items():
        said = getattr(stated, name)
        # What is exposed is a difference, as exact as the two that it is between.
        if not abs(said - seconds) <= TOLERANCE * makespan:
            findings.add(Code.PREDICTED, f"{name} is {said!r}; the tasks take {seconds!r}")


class Work:
    """Seconds of compute tasks by the roofline; equal shards of equal operations are priced once."""

    def __init__(self, case: Case, rates: Rates) -> None:
        self.case, self.rates = case, rates
        self.on = {kind: Rates(case.document.machine, case.ranks, kind) for kind in sorted(set(case.kinds))}
        self._shard: dict[tuple[object, ...], float] = {}
        self._task: dict[tuple[object, ...], Vector] = {}

    def of(self, task: Compute) -> Vector:
        """Per rank, for the shards that the layout gives to all."""
        case, op = self.case, self.case.program.op_by_name[task.op]
        partial = case.buffers[task.write].record is not None
        written = case.record_bytes(op.output) if partial else case.item_bytes(op.output)
        dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
        if task.prior is not None:
            written += case.record_bytes(op.output)
        owned = tuple(rates.own(op, case.program) for rates in self.on.values())
        key = (case.shape(op).number, dtypes, written, owned)
        if (*key, task.shards) not in self._task:
            shards = zip(case.layouts[task.shards], case.kinds, strict=True)
            seconds = [self._seconds(op, key, points, written, kind) for points, kind in shards]
            self._task[*key, task.shards] = np.array(seconds)
        return self._task[*key, task.shards]

    def _seconds(self, op: Operation, key: tuple[object, ...], points: int, written: int, kind: int) -> float:
        """``written``: bytes of one element that is written, a record where it is a contribution to a fold; and those
        of the record that it is folded onto, if any.
        """
        if (*key, points, kind) not in self._shard:
            case, shape = self.case, self.case.shape(op)
            count, touched = shape.count(points), [case.algebra.size(shape.image(points))]
            nbytes = touched[0] * written
            for name, region in zip(op.operands, shape.reads(points), strict=True):
                size = case.algebra.size(region)
                touched.append(size)
                # Of what the data choose from, a point that counts reads one element.
                chosen = min(size, -(-count // op.idle)) if name in op.data_dependent else size
                nbytes += chosen * case.item_bytes(name)
            self._shard[*key, points, kind] = self.on[kind].work(op, case.program, count, nbytes, touched)
        return self._shard[*key, points, kind]


def _kernels(case: Case, work: Work, findings: Findings) -> dict[int, Vector]:
    """The claimed seconds of compute tasks, which are of such tasks, and nowhere less than proved."""
    tasks = {task.id: task for task in case.tasks if isinstance(task, Compute)}
    claims, found = case.document.claims, dict[int, Vector]()
    if claims.objective not in ("time", "bytes") or not 0 <= claims.model_gap <= 1:
        message = f"an objective is time or bytes, a gap of its model from 0 to 1: {claims.objective!r}"
        findings.add(Code.CLAIM, f"{message}, {claims.model_gap!r}")
    for kernel in case.document.claims.kernels:
        task = tasks.get(kernel.task)
        if task is None or kernel.task in found or len(kernel.seconds) != case.ranks:
            message = f"claims.kernels has {len(kernel.seconds)} times of task {kernel.task}"
            findings.add(Code.CLAIM, f"{message}, which is not one a rank for a compute task, each once")
            continue
        found[task.id], least = np.array(kernel.seconds), work.of(task)
        short = np.flatnonzero(~(found[task.id] >= least * (1 - TOLERANCE)))
        if short.size or not np.isfinite(found[task.id]).all():
            rank = int(short[0]) if short.size else None
            message = "claims.kernels says less than its operations and bytes take at the machine's rates"
            findings.add(Code.CLAIM, message, task=task.id, rank=rank)
    return found


def replay(case: Case, moves: Moves, work: Work, kernels: dict[int, Vector]) -> tuple[float, float]:
    """The makespan, and the work of the busiest rank. The plan must be free of deadlocks.

    One pass down the list, or more where a task waits for one further down, until nothing changes any more.
    """
    tasks = case.tasks if moves.rates.overlap else _one_lane(case.tasks)
    takes = [_seconds(case, moves, work, kernels, task) for task in tasks]
    members = [None if task.ranks is None else np.array(task.ranks) for task in tasks]
    ends: dict[int, Vector] = {}
    while True:
        case.algebra.budget.spend(10 * len(takes), "waits against the order of the list")
        before, forward = dict(ends), False
        lanes: dict[str, Vector] = {}
        for task, seconds, ranks in zip(tasks, takes, members, strict=True):
            ready = lanes.get(task.lane, np.zeros(case.ranks))
            for wait in task.waits:
                forward |= wait not in ends
                ready = np.maximum(ready, ends.get(wait, 0.0))
            start = ready if ranks is None else ready[ranks]
            start = start.max() if isinstance(task, Transfer) else start
            end = np.zeros(case.ranks)
            end[slice(None) if ranks is None else ranks] = start + (seconds if ranks is None else seconds[ranks])
            ends[task.id] = end
            lanes[task.lane] = np.maximum(lanes.get(task.lane, 0.0), end)
        if not forward and all(task not in before or (before[task] == end).all() for task, end in ends.items()):
            break
    if _meet(moves, tasks, ends, takes):
        streams = {k: moves.of(task).streams for k, task in enumerate(tasks) if isinstance(task, Transfer)}
        met = {k: parts for k, parts in streams.items() if parts}
        last = Replay(tasks, takes, met, case.ranks).run(case.algebra.budget)
        ends = {task.id: np.array([*each.values(), 0.0]) for task, each in zip(tasks, last, strict=True)}
    busy = np.zeros(case.ranks)
    for task, seconds, ranks in zip(tasks, takes, members, strict=True):
        if isinstance(task, Compute):
            chosen = slice(None) if ranks is None else ranks
            busy[chosen] += seconds[chosen]
    return float(max((end.max() for end in ends.values()), default=0.0)), float(busy.max())


def _meet(moves: Moves, tasks: Sequence[Task], ends: dict[int, Vector], takes: Sequence[Vector]) -> bool:
    """Whether two transfers are over one share of a link at the same time."""
    spans: dict[Hashable, list[tuple[float, float]]] = {}
    for task, seconds in zip(tasks, takes, strict=True):
        if isinstance(task, Transfer):
            end = float(ends[task.id].max())
            for share in {share for stream in moves.of(task).streams for share in stream.users}:
                spans.setdefault(share, []).append((end - float(seconds.max()), end))
    return any(later[0] < one[1] for each in spans.values() for one, later in pairwise(sorted(each)))


def _one_lane(tasks: Sequence[Task]) -> list[Task]:
    """The tasks on one lane: the first of the list that waits for nothing is next, again and again."""
    queues: dict[str, list[int]] = {}
    for k, task in enumerate(tasks):
        queues.setdefault(task.lane, []).append(k)
    heads = [deque(queue) for queue in queues.values()]
    found: list[Task] = []
    done: set[int] = set()
    while True:
        free = [queue for queue in heads if queue and done.issuperset(tasks[queue[0]].waits)]
        if not free:
            return [replace(task, lane="") for task in found]
        found.append(tasks[min(free, key=lambda queue: queue[0]).popleft()])
        done.add(found[-1].id)


def _seconds(case: Case, moves: Moves, work: Work, kernels: dict[int, Vector], task: Task) -> Vector:
    """Per rank."""
    if isinstance(task, Compute):
        return kernels[task.id] if task.id in kernels else work.of(task)
    if isinstance(task, Transfer):
        return np.full(case.ranks, moves.of(task).seconds)
    return _copied(case, work, task)


def _copied(case: Case, work: Work, task: Copy) -> Vector:
    source, target = case.buffers[task.source], case.buffers[task.target]
    width = case.item_bytes(task.tensor) if source.record is None else case.record_bytes(task.tensor)
    pairs = list(zip(case.layouts[task.need], case.kinds, strict=True))
    seconds = {
        (region, kind): work.on[kind].copy(case.algebra.size(region) * width, source.tier, target.tier)
        for region, kind in set(pairs)
    }
    return np.array([seconds[pair] for pair in pairs])
