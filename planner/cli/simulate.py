"""`tapestry simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...printable import columns
from .guard import guarded
from .plan_file import Json, PlanFile, given_plan
from .talk import put, put_json, working

if TYPE_CHECKING:
    from ..timeline import Timeline


@guarded
def simulate(plan: PlanFile, json: Json = False) -> None:
    """Predict the timeline of a plan."""
    with working("simulating"):
        timeline = given_plan(plan).simulate()
    busy = _busy(timeline)
    totals = {
        "makespan_s": timeline.makespan_s,
        "compute_s": timeline.compute_s,
        "exposed_transfer_s": timeline.exposed_transfer_s,
    }
    if json:
        put_json({**totals, "tasks": timeline.event_count, "busy_s": busy})
        return
    put(columns([[name, f"{seconds:.6g}"] for name, seconds in totals.items()]))
    put(columns([["rank", "lane", "busy_s"], *_rows(busy)]))


def _busy(timeline: Timeline) -> dict[str, dict[str, float]]:
    """Seconds by rank and lane, in the order of the ranks; ranks alike are added up once."""
    found: dict[int, dict[str, float]] = {}
    for ranks in timeline.classes:
        lanes: dict[str, float] = {}
        for event in timeline.at(ranks[:1]):
            lanes[event.lane] = lanes.get(event.lane, 0.0) + event.end_s - event.start_s
        found |= dict.fromkeys(ranks, lanes)
    return {str(rank): found[rank] for rank in sorted(found) if found[rank]}


def _rows(busy: dict[str, dict[str, float]]) -> list[list[str]]:
    return [[rank, lane, f"{seconds:.6g}"] for rank, lanes in busy.items() for lane, seconds in lanes.items()]
