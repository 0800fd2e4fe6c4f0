"""A plan's predicted timeline, and a run's measured one beside it, as one file for trace viewers.

Every task says what it computes or moves. Arrows lead from who sends to who receives, and counters show what is in the
memory of a rank, and on its way to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..format import Transfer
from ..format.events import GROUP_STRIDE, Event, chrome_trace
from .counters import Change, coming_changes, memory_changes, values
from .peers import predicted_peers
from .sayings import MOST_APART, US, Sayings
from .timeline import Kinds

if TYPE_CHECKING:
    from ..interface import Plan
    from .runs import Run

ALL_ARROWS = 8  # ranks between which every message has its arrow; beyond, each has one for where most comes from


def plan_trace(plan: Plan, run: Run | None = None) -> str:
    """Trace JSON: processes "predicted rank r" or "predicted ranks 0-7 × 8"; "measured rank r" where a run is given."""
    timeline = plan.simulate()
    peers = predicted_peers(timeline, MOST_APART)
    named = {("predicted", those.ranks[0]): those.name for those in peers}
    groups = {"predicted": list(timeline.at(those.ranks[0] for those in peers))}
    if run is not None:
        groups["measured"] = list(run.events)
    sayings = Sayings(plan.resolved, {(event.rank, event.task): event for event in groups["predicted"]})
    found = chrome_trace(groups, named, sayings.of)
    found["traceEvents"] += [*_arrows(sayings, found["traceEvents"]), *_counters(sayings, groups)]
    return json.dumps(found)


# -- arrows ------------------------------------------------------------------------------------------------------------


def _arrows(sayings: Sayings, events: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """From the slice of who sends to that of who receives, in every group of processes that has both."""
    slices = {(event["pid"], event["args"]["task"]): event for event in events if event["ph"] == "X"}
    number = 0
    for (process, task_id), event in slices.items():
        task = sayings.tasks[task_id]
        if not isinstance(task, Transfer):
            continue
        base = process - process % GROUP_STRIDE
        parcel = sayings.parcels(task).get(process - base)
        for sender in _shown(parcel.received if parcel else {}, sayings.resolved.size):
            begun = slices.get((base + sender, task_id))
            if begun is not None:
                number += 1
                both = {"name": task.tensor, "cat": "moved", "id": number}
                yield both | {"ph": "s", "pid": begun["pid"], "tid": begun["tid"], "ts": begun["ts"]}
                end = event["ts"] + event["dur"]
                yield both | {"ph": "f", "bp": "e", "pid": process, "tid": event["tid"], "ts": end}


def _shown(received: Mapping[int, int], size: int) -> Sequence[int]:
    """The ranks from which arrows come."""
    if size <= ALL_ARROWS or not received:
        return sorted(received)
    return [max(sorted(received), key=lambda rank: received[rank])]


# -- counters ----------------------------------------------------------------------------------------------------------


def _counters(sayings: Sayings, groups: Mapping[str, Sequence[Event]]) -> Iterator[dict[str, Any]]:
    """Bytes of buffers that are in use, by tier, and bytes on their way, of every process."""
    kinds = Kinds.of(sayings.resolved)
    for number, events in enumerate(groups.values()):
        by_rank: dict[int, list[Event]] = {}
        for event in events:
            by_rank.setdefault(event.rank, []).append(event)
        for rank, mine in by_rank.items():
            process = number * GROUP_STRIDE + rank
            for tier, changes in memory_changes(sayings, kinds, rank, mine).items():
                yield from _series(f"memory in {tier}", process, changes)
            yield from _series("on its way here", process, coming_changes(sayings, rank, mine))


def _series(name: str, process: int, changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
    for when, now in values(changes):
        yield {"name": name, "ph": "C", "pid": process, "tid": 0, "ts": round(when * US, 6), "args": now}
