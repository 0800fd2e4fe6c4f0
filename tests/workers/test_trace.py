"""The measured timeline as a trace."""

from __future__ import annotations

import json

import numpy as np

from tapestry.workers import trace_json

from .sheets import halo_blur
from .unchecked import run_unchecked


def test_events_become_complete_events_of_ranks_and_lanes() -> None:
    result = run_unchecked(halo_blur(), {"x": np.zeros(8, np.float32)})
    events = json.loads(trace_json(result.events))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {(e["pid"], e["cat"], e["name"]) for e in complete} == {
        (rank, lane, name)
        for rank in (0, 1)
        for lane, name in (("comm", "send x"), ("compute", "first"), ("comm", "send y"), ("compute", "second"))
    }
    assert all(e["dur"] >= 0 and e["ts"] + e["dur"] <= result.wall_s * 1e6 + 1 for e in complete)
    assert len({(e["pid"], e["tid"]) for e in complete}) == 4
    assert {"rank 0", "rank 1"} <= {e["args"].get("name") for e in events if e["ph"] == "M"}
