"""Buffers that hold the same before, during and after every step: what is read of them may be read at any time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from ..planner.format import Buffer, Compute, Document
from ..program import Program

ROLES = ("param", "const")


def steady_buffers(document: Document, program: Program) -> frozenset[str]:
    """Those of params and constants where no task writes."""
    buffers = {buffer.name: buffer for buffer in document.buffers}
    written = defaultdict[tuple[str, int], list[tuple[int, int]]](list)
    for name in {task.write if isinstance(task, Compute) else task.target for task in document.tasks}:
        for where, run in _runs(buffers[name]):
            written[where].append(run)
    ends = {where: _merged(runs) for where, runs in written.items()}
    kept = (b for b in document.buffers if b.initial is not None and program.tensor(b.tensor).role in ROLES)
    return frozenset(b.name for b in kept if not any(_met(ends.get(where, []), *run) for where, run in _runs(b)))


def _runs(buffer: Buffer) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
    """By tier and kind of device the bytes that it has."""
    for kind, place in enumerate(buffer.places):
        yield (buffer.tier, kind), (place.offset, place.offset + place.nbytes)


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
