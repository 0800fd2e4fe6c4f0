"""What a hand-written or altered plan has to state about itself: traffic and peaks counted element by element."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress

from msgspec.structs import replace

from tapestry.dtypes import DTYPES
from tapestry.planner.format.document import Compute, Document, Predicted, Sharding, Transfer
from tapestry.planner.format.resolve import Resolved
from tapestry.planner.simulate import Prices, simulate
from tapestry.program import Operation, Program

from .elements import Point, points


def restated(document: Document, program: Program) -> Document:
    """The same plan with the figures of its own tasks and buffers, so that nothing gives a change away.

    Bytes and ranks are counted element by element; names of transfers, links and times are those of the planner, which
    shares no code with the checker. A plan that cannot be simulated says nothing of its times.
    """
    document = replace(document, shardings={op.name: _sharding(document, op) for op in program.operations})
    with suppress(Exception):
        document = _simulated(document, program)
    kinds: Counter[str] = Counter()
    for task in document.tasks:
        if isinstance(task, Transfer):
            kinds[task.kind] += moved(document, task) * DTYPES[program.tensor(task.tensor).dtype].bytes
    peaks = {rank: {tier: _end(document, tier) for tier in tiers} for rank, tiers in document.peak_bytes.items()}
    traffic = replace(document.traffic, bytes_total=sum(kinds.values()), bytes_by_kind=dict(kinds))
    return replace(document, traffic=traffic, peak_bytes=peaks)


def _simulated(document: Document, program: Program) -> Document:
    prices = Prices(Resolved(document, program))
    tasks = tuple(replace(t, kind=prices.move(t).kind) if isinstance(t, Transfer) else t for t in document.tasks)
    timeline, links = simulate(document, prices), Counter[str]()
    for task in tasks:
        if isinstance(task, Transfer):
            links.update(prices.links(task))
    predicted = Predicted(timeline.makespan_s, timeline.compute_s, timeline.exposed_transfer_s)
    return replace(document, tasks=tasks, predicted=predicted, traffic=replace(document.traffic, bytes_by_link=links))


def _sharding(document: Document, op: Operation) -> Sharding:
    """What its tasks compute, in no words of cuts."""
    names, ranks = [dim.name for dim in op.dims], set()
    for task in document.tasks:
        if isinstance(task, Compute) and task.op == op.name and task.shards in document.layouts:
            regions = document.layouts[task.shards].regions
            for rank in range(len(regions)) if task.ranks is None else task.ranks:
                inside = (dict(zip(names, point, strict=False)) for point in points(regions[rank]))
                if any(all(bound.holds(point) for bound in op.where) for point in inside):
                    ranks.add(rank)
    return Sharding({}, len(ranks), "explicit")


def _end(document: Document, tier: str) -> int:
    places = (*document.buffers, *document.rooms.values())
    return max((place.offset + place.nbytes for place in places if place.tier == tier), default=0)


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
