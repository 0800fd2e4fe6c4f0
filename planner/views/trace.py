"""A plan's predicted timeline, and a run's measured one beside it, as one file for trace viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..format.events import trace_json
from .peers import predicted_peers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..format.events import Event
    from ..interface import Plan
    from .runs import Run


MOST_PROCESSES = 64  # ranks that have a process each; beyond, one stands for all that take the same times


def plan_trace(plan: Plan, run: Run | None = None) -> str:
    """Trace JSON: processes "predicted rank r" or "predicted ranks 0-7 × 8"; "measured rank r" where a run is given."""
    timeline = plan.simulate()
    peers = predicted_peers(timeline, MOST_PROCESSES)
    named = {("predicted", those.ranks[0]): those.name for those in peers}
    groups: Mapping[str, Iterable[Event]] = {"predicted": timeline.at(those.ranks[0] for those in peers)}
    if run is not None:
        groups = {**groups, "measured": run.events}
    return trace_json(groups, named)
