"""A look ahead: what it leaves within reach is a problem, however far its bound is below all choices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import Outlook

SPARE = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=4)


@given(SPARE, st.integers(0, 20))
def test_every_node_has_a_strategy_within_reach(spare: list[list[int]], reach: int) -> None:
    ahead = Outlook(100, tuple(np.array(mine, dtype=np.int64) for mine in spare), (), loose=True)
    near = ahead.within(reach)
    assert all(near)
    for mine, kept in zip(spare, near, strict=True):
        assert {s for s, more in enumerate(mine) if more <= reach} <= set(kept)
        assert all(mine[s] <= max(reach, max(map(min, spare))) for s in kept)
