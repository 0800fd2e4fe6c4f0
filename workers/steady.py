"""Buffers that hold the same before, during and after every step: what is read of them may be read at any time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from ..planner.format import Compute, Document
from ..program import Program

ROLES = ("param", "const")


def steady_buffers(document: Document, program: Program) -> frozenset[str]:
    """Those of params and constants where no task writes."""
    buffers = {buffer.name: buffer for buffer in document.buffers}
    written = defaultdict[str, list[tuple[int, int]]](list)
    for name in {task.write if isinstance(task, Compute) else task.target for task in document.tasks}:
        written[buffers[name].tier].append((buffers[name].offset, buffers[name].offset + buffers[name].nbytes))
    ends = {tier: _merged(runs) for tier, runs in written.items()}
    kept = (b for b in document.buffers if b.initial is not None and program.tensor(b.tensor).role in ROLES)
    return frozenset(b.name for b in kept if not _met(ends.get(b.tier, []), b.offset, b.offset + b.nbytes))


def _merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint runs in order."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def _met(runs: list[tuple[int, int]], first: int, end: int) -> bool:
    """Whether some of disjoint runs has a byte of another."""
    k = bisect_left(runs, (first, first))
    return (k > 0 and runs[k - 1][1] > first) or (k < len(runs) and runs[k][0] < end)
