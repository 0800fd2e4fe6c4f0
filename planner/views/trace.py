"""A plan's predicted timeline, and a run's measured one beside it, as one file for trace viewers.

Every task says what it computes or moves. Arrows lead from who sends to who receives, and counters show what is in the
memory of a rank, and on its way to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...records import width_of
from ..format import Compute, Copy, Resolved, Task, Transfer
from ..format.events import GROUP_STRIDE, Event, chrome_trace
from .memory import KEPT_ROLES, lives
from .peers import predicted_peers, ranks_text
from .timeline import Kinds

if TYPE_CHECKING:
    from ..format.messages import Message
    from ..interface import Plan
    from .runs import Run

MOST_PROCESSES = 64  # ranks that have a process each; beyond, one stands for all that take the same times
ALL_ARROWS = 8  # ranks between which every message has its arrow; beyond, each has one for where most comes from
US = 1e6


def plan_trace(plan: Plan, run: Run | None = None) -> str:
    """Trace JSON: processes "predicted rank r" or "predicted ranks 0-7 × 8"; "measured rank r" where a run is given."""
    timeline = plan.simulate()
    peers = predicted_peers(timeline, MOST_PROCESSES)
    named = {("predicted", those.ranks[0]): those.name for those in peers}
    groups = {"predicted": list(timeline.at(those.ranks[0] for those in peers))}
    if run is not None:
        groups["measured"] = list(run.events)
    sayings = _Sayings(plan.resolved, {(event.rank, event.task): event for event in groups["predicted"]})
    found = chrome_trace(groups, named, sayings.of)
    found["traceEvents"] += [*_arrows(sayings, found["traceEvents"]), *_counters(sayings, groups)]
    return json.dumps(found)


@dataclass(frozen=True)
class _Parcel:
    """What a rank gets from, or gives to, each other rank in one transfer: bytes by rank."""

    received: Mapping[int, int]
    sent: Mapping[int, int]


class _Sayings:
    """What is said of the tasks of a plan. Who sends what is known of plans for up to `MOST_PROCESSES` ranks."""

    def __init__(self, resolved: Resolved, foreseen: Mapping[tuple[int, int], Event]) -> None:
        self.resolved, self.foreseen = resolved, foreseen
        self._parcels: dict[int, dict[int, _Parcel]] = {}
        self._kept: list[list[Message]] = []

    @cached_property
    def tasks(self) -> Mapping[int, Task]:
        return {task.id: task for task in self.resolved.document.tasks}

    def of(self, event: Event) -> Mapping[str, Any]:
        """The arguments of an event."""
        task = self.tasks[event.task]
        foreseen = self.foreseen.get((event.rank, event.task))
        time = {} if foreseen in (None, event) else {"predicted_us": (foreseen.end_s - foreseen.start_s) * US}
        match task:
            case Compute():
                return {"operation": task.op, "writes": self._tensor(task.write), **time}
            case Copy():
                tiers = " to ".join(self.resolved.buffers[name].tier for name in (task.source, task.target))
                return {"tensor": task.tensor, "tiers": tiers, **time}
            case Transfer():
                return {"tensor": task.tensor, "kind": task.kind, **self._moved(task, event.rank), **time}

    def _tensor(self, buffer: str) -> str:
        return self.resolved.buffers[buffer].tensor

    def _moved(self, task: Transfer, rank: int) -> Mapping[str, Any]:
        parcel = self.parcels(task).get(rank)
        if parcel is None:
            return {}
        found: dict[str, Any] = {}
        for word, way, bytes_by_rank in (("received", "from", parcel.received), ("sent", "to", parcel.sent)):
            if bytes_by_rank:
                ranks = ranks_text(sorted(bytes_by_rank), MOST_PROCESSES)
                found |= {f"bytes_{word}": sum(bytes_by_rank.values()), way: ranks}
        return found

    def parcels(self, task: Transfer) -> Mapping[int, _Parcel]:
        """By rank; equal transfers are looked at once."""
        if self.resolved.size > MOST_PROCESSES:
            return {}
        messages = self.resolved.messages(task)
        if id(messages) not in self._parcels:
            self._kept.append(messages)
            self._parcels[id(messages)] = self._sorted(task, messages)
        return self._parcels[id(messages)]

    def _sorted(self, task: Transfer, messages: Sequence[Message]) -> dict[int, _Parcel]:
        width = width_of(self.resolved.program, task.tensor)
        received: dict[int, dict[int, int]] = {}
        sent: dict[int, dict[int, int]] = {}
        for message in messages:
            if message.remote:
                nbytes = message.moved_bytes(width)
                for side, mine, other in ((received, message.dst, message.src), (sent, message.src, message.dst)):
                    ranks = side.setdefault(mine, {})
                    ranks[other] = ranks.get(other, 0) + nbytes
        return {rank: _Parcel(received.get(rank, {}), sent.get(rank, {})) for rank in {*received, *sent}}


# -- arrows ------------------------------------------------------------------------------------------------------------


def _arrows(sayings: _Sayings, events: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
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


def _counters(sayings: _Sayings, groups: Mapping[str, Sequence[Event]]) -> Iterator[dict[str, Any]]:
    """Bytes of buffers that are in use, by tier, and bytes on their way, of every process."""
    kinds = Kinds.of(sayings.resolved)
    for number, events in enumerate(groups.values()):
        by_rank: dict[int, list[Event]] = {}
        for event in events:
            by_rank.setdefault(event.rank, []).append(event)
        for rank, mine in by_rank.items():
            process = number * GROUP_STRIDE + rank
            for name, changes in {**_memory(sayings, kinds, rank, mine), **_coming(sayings, rank, mine)}.items():
                yield from _series(name, process, changes)


Change = tuple[float, str, int]  # when, which series of the counter, by how many bytes


def _memory(sayings: _Sayings, kinds: Kinds, rank: int, events: Sequence[Event]) -> Mapping[str, list[Change]]:
    end_s = max(event.end_s for event in events)
    found: dict[str, list[Change]] = {}
    for life in lives(sayings.resolved, kinds, events, end_s):
        if sayings.resolved.storage(life.buffer.name)[rank] is not None:
            series = "resident" if life.kind in KEPT_ROLES else "values"
            nbytes = life.buffer.nbytes
            changes = found.setdefault(f"memory in {life.buffer.tier}", [])
            changes += [(life.start_s, series, nbytes), (life.end_s, series, -nbytes)]
    return found


def _coming(sayings: _Sayings, rank: int, events: Sequence[Event]) -> Mapping[str, list[Change]]:
    changes: list[Change] = []
    for event in events:
        task = sayings.tasks[event.task]
        parcel = sayings.parcels(task).get(rank) if isinstance(task, Transfer) else None
        nbytes = sum(parcel.received.values()) if parcel is not None else 0
        if nbytes:
            changes += [(event.start_s, "bytes", nbytes), (event.end_s, "bytes", -nbytes)]
    return {"on its way here": changes} if changes else {}


def _series(name: str, process: int, changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
    """The values of a counter from each instant on."""
    now = dict.fromkeys((series for _, series, _ in changes), 0)
    instants: dict[float, list[Change]] = {}
    for change in changes:
        instants.setdefault(change[0], []).append(change)
    for when in sorted(instants):
        for _, series, by in instants[when]:
            now[series] += by
        yield {"name": name, "ph": "C", "pid": process, "tid": 0, "ts": round(when * US, 6), "args": dict(now)}
