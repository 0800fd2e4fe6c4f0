"""A look ahead: what it leaves within reach is a problem, however far its bound is below all choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem, Outlook, outlook

from .supplied import cheapest_of, cost_of, supply_problems

SPARE = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=4)


@given(SPARE, st.integers(0, 20))
def test_every_node_has_a_strategy_within_reach(spare: list[list[int]], reach: int) -> None:
    ahead = Outlook(100, tuple(np.array(mine, dtype=np.int64) for mine in spare), (), loose=True)
    near = ahead.within(reach)
    assert all(near)
    for mine, kept in zip(spare, near, strict=True):
        assert {s for s, more in enumerate(mine) if more <= reach} <= set(kept)
        assert all(mine[s] <= max(reach, max(map(min, spare))) for s in kept)


@settings(max_examples=60, deadline=None)
@given(supply_problems(), st.integers(0, 30), st.integers(0, 3))
@pytest.mark.parametrize("until", [0.0, float("inf")])
def test_what_begins_where_an_outlook_stands_bounds_what_is_left(
    until: float, problem: AssignmentProblem, reach: int, more: int
) -> None:
    """Of what was within its reach, and of costs that turned out to be more."""
    first = outlook(problem, until=until)
    assume(first is not None)
    assert first is not None
    near = first.within(reach)
    left = problem.restricted(near)
    left = replace(left, supplies=tuple(replace(each, costs=each.costs + more) for each in left.supplies))
    later = outlook(left, until=until, after=(first, near))
    least = cheapest_of(left)
    if later is None or least is None:
        return
    assert later.bound <= least
    assert later.choices
    assert all(cost_of(left, choice) is not None for choice in later.choices)
