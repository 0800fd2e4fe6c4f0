"""The measured timeline as a Chrome trace (chrome://tracing, ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .result import Event


def chrome_trace(events: Iterable[Event]) -> dict[str, Any]:
    """Complete events ("ph": "X"), microseconds, one process a rank, one thread a lane."""
    found = list(events)
    names: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in sorted({event.rank for event in found})
    ]
    return {"traceEvents": names + [_complete(event) for event in found], "displayTimeUnit": "ms"}


def _complete(event: Event) -> dict[str, Any]:
    return {
        "name": event.name,
        "cat": event.lane,
        "ph": "X",
        "ts": event.start_s * 1e6,
        "dur": (event.end_s - event.start_s) * 1e6,
        "pid": event.rank,
        "tid": event.lane,
        "args": {"task": event.task},
    }


def trace_json(events: Iterable[Event]) -> str:
    """The trace as text."""
    return json.dumps(chrome_trace(events))
