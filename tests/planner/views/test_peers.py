"""Ranks that take the same times are shown as one: every rank once, nothing of any lost, views that do not grow."""

from __future__ import annotations

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner import Plan
from tapestry.planner.format.events import Event
from tapestry.planner.timeline import Run, Timeline
from tapestry.planner.views.html import plan_svg
from tapestry.planner.views.peers import measured_peers, predicted_peers, ranks_text
from tapestry.planner.views.sayings import MOST_APART
from tapestry.planner.views.text import plan_text
from tapestry.planner.views.trace import plan_trace

from ..stacks import planned


@pytest.fixture(scope="module")
def many() -> Plan:
    return planned(2, 2 * MOST_APART)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Ranks dealt out to classes, and a few runs, some of which a class takes no part in."""
    size = draw(st.integers(1, 24))
    dealt = [draw(st.integers(0, 3)) for _ in range(size)]
    classes = tuple(tuple(r for r in range(size) if dealt[r] == c) for c in dict.fromkeys(dealt))
    runs = []
    for task in range(draw(st.integers(0, 3))):
        starts = array("d", [draw(st.integers(0, 5)) for _ in classes])
        ends = array("d", [start + draw(st.integers(0, 5)) for start in starts])
        runs.append(Run(task, "compute", f"t{task}", starts, ends))
    last = max((end for run in runs for end in run.ends), default=0.0)
    return Timeline(classes, tuple(runs), last, last)


@given(timelines(), st.integers(0, 30))
def test_every_rank_that_does_something_is_shown_once_with_its_own_times(timeline: Timeline, alone: int) -> None:
    shown = predicted_peers(timeline, alone)
    ranks = sorted(rank for peers in shown for rank in peers.ranks)
    assert ranks == sorted({event.rank for event in timeline.events})
    for peers in shown:
        for rank in peers.ranks:
            moved = [Event(rank, e.lane, e.task, e.name, e.start_s, e.end_s) for e in peers.events]
            assert moved == [event for event in timeline.events if event.rank == rank]
    if sum(map(len, timeline.classes)) <= alone:
        assert all(len(peers.ranks) == 1 for peers in shown)


@given(st.sets(st.integers(0, 40), min_size=1))
def test_stretches_of_ranks_name_every_rank(ranks: set[int]) -> None:
    said = ranks_text(sorted(ranks), most=len(ranks))
    found: list[int] = []
    for word in said.split(", "):
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(ranks)


def test_views_of_equal_ranks_do_not_grow_with_their_number(many: Plan) -> None:
    few = planned(2, MOST_APART)
    drawn = [len(plan_svg(plan)) for plan in (few, many)]
    traced = [len(json.loads(plan_trace(plan))["traceEvents"]) for plan in (few, many)]
    assert drawn[1] < 1.2 * drawn[0]
    assert traced[1] < traced[0]


def test_a_row_says_whom_it_stands_for(many: Plan) -> None:
    name = f"ranks 0-{2 * MOST_APART - 1} × {2 * MOST_APART}"
    assert name in plan_svg(many)
    assert name.removeprefix("ranks ") in plan_text(many)
    processes = [e["args"]["name"] for e in json.loads(plan_trace(many))["traceEvents"] if e["name"] == "process_name"]
    assert processes == [f"predicted {name}"]


def test_ranks_of_a_run_are_told_apart(many: Plan) -> None:
    events = [*many.simulate().at([3, 5])]
    assert [peers.ranks for peers in measured_peers(events)] == [(3,), (5,)]
