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
    alone, told = (complete(json.loads(text)) for text in (trace_json(events), plan_trace(rows)))
    assert alone == [{**event, "args": {"task": event["args"]["task"]}} for event in told]


def at(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == kind]


def test_events_say_what_they_compute_and_move(rows: Plan) -> None:
    """The bytes that all ranks receive are the traffic of the plan; what one sends another receives."""
    trace = json.loads(plan_trace(rows))
    computed = [event["args"] for event in complete(trace) if event["cat"] == "compute"]
    assert {args["operation"] for args in computed} <= {op.name for op in rows.program.operations}
    moved = [event["args"] for event in complete(trace) if event["cat"] == "comm"]
    received, sent = (sum(args.get(f"bytes_{way}", 0) for args in moved) for way in ("received", "sent"))
    assert received == sent == rows.document.traffic.bytes_total > 0
    for way, ranks in (("received", "from"), ("sent", "to")):
        assert all((f"bytes_{way}" in args) == (ranks in args) for args in moved)


def test_measured_events_say_what_was_predicted(rows: Plan) -> None:
    run = rows.run({"image": np.ones((427, 64), np.float32)})
    foreseen = {(e.rank, e.task): e.end_s - e.start_s for e in rows.simulate().events}
    events = [e for e in complete(json.loads(plan_trace(rows, run))) if e["pid"] >= 1_000_000]
    said = {(e["pid"] % 1_000_000, e["args"]["task"]): e["args"]["predicted_us"] for e in events}
    assert said == pytest.approx({key: seconds * 1e6 for key, seconds in foreseen.items()})


def test_arrows_lead_from_a_task_of_the_sender_to_the_same_of_the_receiver(rows: Plan) -> None:
    trace = json.loads(plan_trace(rows))
    starts, ends = ({event["id"]: event for event in at(trace, kind)} for kind in "sf")
    assert starts.keys() == ends.keys() != set()

    def slice_of(event: dict[str, Any]) -> dict[str, Any]:
        [found] = [
            one for one in complete(trace)
            if (one["pid"], one["tid"]) == (event["pid"], event["tid"])
            and one["name"] == event["name"]
            and one["ts"] - 1e-6 <= event["ts"] <= one["ts"] + one["dur"] + 1e-6
        ]  # fmt: skip
        return found

    for number, start in starts.items():
        sender, receiver = slice_of(start), slice_of(ends[number])
        assert sender["args"]["task"] == receiver["args"]["task"]
        assert str(sender["pid"]) in receiver["args"]["from"].split(", ") or "-" in receiver["args"]["from"]


def test_counters_never_pass_the_peak_and_all_that_comes_arrives(rows: Plan) -> None:
    trace = json.loads(plan_trace(rows))
    used = [sum(event["args"].values()) for event in at(trace, "C") if event["name"] == "memory in host"]
    assert 0 <= min(used) < max(used) <= max(peaks["host"] for peaks in rows.document.peak_bytes.values())
    coming: dict[int, list[int]] = {}
    for event in at(trace, "C"):
        if event["name"] == "on its way here":
            coming.setdefault(event["pid"], []).append(event["args"]["bytes"])
    assert coming
    assert all(counts[-1] == 0 and min(counts) >= 0 for counts in coming.values())
