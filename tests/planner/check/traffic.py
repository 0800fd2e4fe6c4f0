"""Traffic and peaks counted element by element: what a hand-written or altered plan has to state about itself."""

from __future__ import annotations

from collections import Counter, defaultdict

from msgspec.structs import replace

from tapestry.dtypes import DTYPES
from tapestry.planner.format.document import Document, Traffic, Transfer
from tapestry.program import Program

from .elements import Point, points


def restated(document: Document, program: Program) -> Document:
    """The same plan with the traffic and peaks of its own tasks and buffers, so that nothing gives a change away."""
    kinds: Counter[str] = Counter()
    for task in document.tasks:
        if isinstance(task, Transfer):
            kinds[task.kind] += moved(document, task) * DTYPES[program.tensor(task.tensor).dtype].bytes
    total = sum(kinds.values())
    peaks = {rank: {tier: _end(document, tier) for tier in tiers} for rank, tiers in document.peak_bytes.items()}
    return replace(document, traffic=Traffic(total, dict(kinds), {"link": total}), peak_bytes=peaks)


def _end(document: Document, tier: str) -> int:
    return max((b.offset + b.nbytes for b in document.buffers if b.tier == tier), default=0)


def moved(document: Document, task: Transfer) -> int:
    """Elements that change ranks: a copy for each needer without it; for folds, the least number of messages."""
    have, need = document.layouts[task.have], document.layouts[task.need]
    ranks = range(len(document.devices)) if task.ranks is None else task.ranks
    holders: dict[Point, set[int]] = defaultdict(set)
    needers: dict[Point, set[int]] = defaultdict(set)
    for rank in ranks:
        for point in points(have.regions[rank]):
            holders[point].add(rank)
        for point in points(need.regions[rank]):
            needers[point].add(rank)
    if have.parts is None:
        return sum(len(wanting - holders[point]) for point, wanting in needers.items())
    parts = have.parts
    return sum(_fold(holders[point], wanting, parts) for point, wanting in needers.items())


def _fold(holders: set[int], needers: set[int], parts: tuple[int, ...]) -> int:
    """Try every place for the fold: distinct numbers to come there, then the result to everybody else who needs it."""
    best = None
    for root in needers:
        mine = {parts[root]} if root in holders else set()
        cost = len({parts[rank] for rank in holders} - mine) + len(needers) - 1
        best = cost if best is None else min(best, cost)
    return best or 0
