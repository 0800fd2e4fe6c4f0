"""Trace files: one format for predicted and measured, in one file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tapestry.planner import Plan
from tapestry.planner.views.trace import plan_trace
from tapestry.workers import trace_json


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_predicted_and_measured_are_processes_of_one_file(rows: Plan) -> None:
    run = rows.run({"image": np.ones((427, 64), np.float32)})
    trace = json.loads(plan_trace(rows, run))
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert sorted(names.values()) == [
        f"{group} rank {rank}" for group in ("measured", "predicted") for rank in range(4)
    ]
    predicted = [e for e in complete(trace) if names[e["pid"]].startswith("predicted")]
    assert len(predicted) == len(rows.simulate().events)
    assert len(complete(trace)) - len(predicted) == len(run.events)
    threads = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in complete(trace)} <= threads


def test_times_are_microseconds(rows: Plan) -> None:
    trace = json.loads(plan_trace(rows))
    last = max(e["ts"] + e["dur"] for e in complete(trace))
    assert last == pytest.approx(rows.document.predicted.makespan_s * 1e6, rel=1e-4)


def test_workers_write_the_same_format(rows: Plan) -> None:
    events = rows.simulate().events
    alone = complete(json.loads(trace_json(events)))
    assert alone == complete(json.loads(plan_trace(rows)))
