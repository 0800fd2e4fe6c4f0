"""Who did what when: the record that predicted and measured timelines share, and the trace file that both are written
as."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One task on one rank, in seconds from the start of the run; ``kernel``: what computed it, where that is known."""

    rank: int
    lane: str
    task: int
    name: str
    start_s: float
    end_s: float
    kernel: str = ""


NONE_NAMED: Mapping[tuple[str, int], str] = {}
GROUP_STRIDE = 1_000_000  # process numbers of one group; more than there are ranks


Details = Callable[[Event], Mapping[str, Any]]


def no_details(event: Event) -> Mapping[str, Any]:  # noqa: ARG001
    return {}


def chrome_trace(
    groups: Mapping[str, Iterable[Event]],
    named: Mapping[tuple[str, int], str] = NONE_NAMED,
    details: Details = no_details,
) -> dict[str, Any]:
    """Timelines side by side in the trace event format (chrome://tracing, ui.perfetto.dev).

    One process a rank and group ("predicted rank 0"; a group named "" gives "rank 0"), one thread a lane, complete
    events ("ph": "X") in microseconds. Groups follow each other as they are given. ``named``: other names of
    processes, by group and rank. ``details``: what else is said of an event.
    """
    found: list[dict[str, Any]] = []
    for number, (group, events) in enumerate(groups.items()):
        found += _group(group, number * GROUP_STRIDE, list(events), named, details)
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _group(
    group: str, base: int, events: list[Event], named: Mapping[tuple[str, int], str], details: Details
) -> list[dict[str, Any]]:
    lanes = sorted({event.lane for event in events})
    found = []
    used: dict[int, set[str]] = {}
    for event in events:
        used.setdefault(event.rank, set()).add(event.lane)
    for rank in sorted(used):
        pid = base + rank
        name = named.get((group, rank), f"rank {rank}")
        found.append(_meta("process_name", pid, 0, {"name": f"{group} {name}".strip()}))
        found.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
        mine = [(tid, lane) for tid, lane in enumerate(lanes) if lane in used[rank]]
        found += [_meta("thread_name", pid, tid, {"name": lane}) for tid, lane in mine]
    numbers = {lane: number for number, lane in enumerate(lanes)}
    return found + [_complete(event, base + event.rank, numbers[event.lane], details(event)) for event in events]


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _complete(event: Event, pid: int, tid: int, details: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": event.name,
        "cat": event.lane,
        "ph": "X",
        "ts": round(event.start_s * 1e6, 6),
        "dur": round((event.end_s - event.start_s) * 1e6, 6),
        "pid": pid,
        "tid": tid,
        "args": {"task": event.task, **({"kernel": event.kernel} if event.kernel else {}), **details},
    }


def trace_json(
    events: Iterable[Event] | Mapping[str, Iterable[Event]], named: Mapping[tuple[str, int], str] = NONE_NAMED
) -> str:
    """The trace as text: one timeline, or several by name. ``named`` as in `chrome_trace`."""
    groups = events if isinstance(events, Mapping) else {"": events}
    return json.dumps(chrome_trace(groups, named))
