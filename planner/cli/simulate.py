"""`tapestry simulate`."""

from __future__ import annotations

from ...printable import columns
from .guard import guarded
from .plan_file import Json, PlanFile
from .talk import put, put_json, working


@guarded
def simulate(plan: PlanFile, json: Json = False) -> None:
    """Predict the timeline of a plan."""
    from .. import load_plan

    with working("simulating"):
        timeline = load_plan(plan).simulate()
    busy: dict[str, dict[str, float]] = {}
    for event in timeline.events:
        lanes = busy.setdefault(str(event.rank), {})
        lanes[event.lane] = lanes.get(event.lane, 0.0) + event.end_s - event.start_s
    totals = {
        "makespan_s": timeline.makespan_s,
        "compute_s": timeline.compute_s,
        "exposed_transfer_s": timeline.exposed_transfer_s,
    }
    if json:
        put_json({**totals, "tasks": len(timeline.events), "busy_s": busy})
        return
    put(columns([[name, f"{seconds:.6g}"] for name, seconds in totals.items()]))
    put(columns([["rank", "lane", "busy_s"], *_rows(busy)]))


def _rows(busy: dict[str, dict[str, float]]) -> list[list[str]]:
    return [[rank, lane, f"{seconds:.6g}"] for rank, lanes in busy.items() for lane, seconds in lanes.items()]
