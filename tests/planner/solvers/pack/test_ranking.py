"""The search by order against every offset tried, and its part among the runs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.pack import Buffer
from tapestry.planner.solvers.pack.bounds import pin_conflict
from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.groups import grouped, reuse_pairs
from tapestry.planner.solvers.pack.instance import arranged
from tapestry.planner.solvers.pack.portfolio import fresh_ordering
from tapestry.planner.solvers.pack.ranking import rank_all
from tapestry.planner.solvers.pack.search import EXHAUSTED, FOUND, STOPPED

from .problems import problems, some_packing, without_slack

ENDLESS = 10**9


def by_order(buffers: list[Buffer], shared: list[tuple[int, int]], capacity: int) -> tuple[int, dict[str, int]]:
    """What an unlimited search says where just these pairs share a place, and its offsets."""
    groups = grouped(buffers, shared, capacity)
    if groups is None:
        return EXHAUSTED, {}
    instance, items = arranged(buffers, groups, capacity)
    state = fresh_ordering(instance)
    answer = rank_all(instance, state, np.arange(len(items)), ENDLESS)
    offsets = {buffers[i].name: g.offset or 0 for g in groups for i in g.members}
    for k, group in enumerate(items):
        offsets |= {buffers[i].name: int(state.cells[k]) for i in group.members}
    return answer, offsets


@settings(max_examples=300, deadline=None)
@given(problems(), st.integers(0, 10))
def test_finds_a_packing_just_where_there_is_one(buffers: list[Buffer], capacity: int) -> None:
    if pin_conflict(buffers, capacity) is not None:  # proved before any search
        return
    pairs = reuse_pairs(buffers)
    chosen = [list(some) for k in range(len(pairs) + 1) for some in combinations(pairs, k)]
    answers = [by_order(buffers, shared, capacity) for shared in chosen]
    found = [offsets for answer, offsets in answers if answer == FOUND]
    assert all(answer in (FOUND, EXHAUSTED) for answer, _ in answers)
    assert all(check_packing(buffers, offsets, capacity) == [] for offsets in found)
    assert bool(found) == (some_packing(buffers, capacity) is not None)


@pytest.mark.parametrize("seed", range(4))
def test_full_to_the_last_unit_and_one_less(seed: int) -> None:
    buffers = without_slack(seed, pieces=40)
    answer, offsets = by_order(buffers, [], 64)
    assert answer == FOUND
    assert check_packing(buffers, offsets, 64) == []
    assert by_order(buffers, [], 63)[0] == EXHAUSTED


def test_a_run_without_room_for_what_it_changes_ends_without_a_word() -> None:
    buffers = without_slack(1, pieces=40)
    groups = grouped(buffers, [])
    assert groups is not None
    instance, items = arranged(buffers, groups, 64)
    state = fresh_ordering(instance)._replace(trail=np.empty((30, 2), np.int64))
    assert rank_all(instance, state, np.arange(len(items)), ENDLESS) == STOPPED
