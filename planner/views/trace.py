"""A plan's predicted timeline, and a run's measured one beside it, as one file for trace viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..format.events import trace_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..format.events import Event
    from ..interface import Plan
    from .runs import Run


def plan_trace(plan: Plan, run: Run | None = None) -> str:
    """Trace JSON: processes "predicted rank r", and "measured rank r" where a run is given."""
    groups: Mapping[str, Iterable[Event]] = {"predicted": plan.simulate().events}
    if run is not None:
        groups = {**groups, "measured": run.events}
    return trace_json(groups)
