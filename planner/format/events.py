"""Who did what when: the record that predicted and measured timelines share, and the trace file that both are written
as."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One task on one rank, in seconds from the start of the run."""

    rank: int
    lane: str
    task: int
    name: str
    start_s: float
    end_s: float


GROUP_STRIDE = 1_000_000  # process numbers of one group; more than there are ranks


def chrome_trace(groups: Mapping[str, Iterable[Event]]) -> dict[str, Any]:
    """Timelines side by side in the trace event format (chrome://tracing, ui.perfetto.dev).

    One process a rank and group ("predicted rank 0"; a group named "" gives "rank 0"), one thread a lane, complete
    events ("ph": "X") in microseconds. Groups follow each other as they are given."""
    found: list[dict[str, Any]] = []
    for number, (group, events) in enumerate(groups.items()):
        found += _group(group, number * GROUP_STRIDE, list(events))
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _group(group: str, base: int, events: list[Event]) -> list[dict[str, Any]]:
    lanes = sorted({event.lane for event in events})
    found = []
    for rank in sorted({event.rank for event in events}):
        pid = base + rank
        found.append(_meta("process_name", pid, 0, {"name": f"{group} rank {rank}".strip()}))
        found.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
        used = {event.lane for event in events if event.rank == rank}
        found += [_meta("thread_name", pid, tid, {"name": lane}) for tid, lane in enumerate(lanes) if lane in used]
    return found + [_complete(event, base + event.rank, lanes.index(event.lane)) for event in events]


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _complete(event: Event, pid: int, tid: int) -> dict[str, Any]:
    return {
        "name": event.name,
        "cat": event.lane,
        "ph": "X",
        "ts": round(event.start_s * 1e6, 6),
        "dur": round((event.end_s - event.start_s) * 1e6, 6),
        "pid": pid,
        "tid": tid,
        "args": {"task": event.task},
    }


def trace_json(events: Iterable[Event] | Mapping[str, Iterable[Event]]) -> str:
    """The trace as text: one timeline, or several by name."""
    groups = events if isinstance(events, Mapping) else {"": events}
    return json.dumps(chrome_trace(groups))
