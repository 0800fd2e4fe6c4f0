"""Pairs of nodes: what is the least or the most of some rows, whichever way they are gone through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import pairs
from tapestry.planner.solvers.assign.pairs import Some

NUMBERS = st.integers(0, 12)


@pytest.mark.parametrize("short", [0, 10**9])
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1), st.integers(1, 5), st.integers(0, 99))
def test_rows_have_the_least_and_the_most_of_their_others(
    short: int, some: list[tuple[int, int]], width: int, seed: int
) -> None:
    values = np.random.default_rng(seed).integers(-9, 9, (13, width)).astype(np.float64)
    rows = Some.by_first(some)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pairs, "SHORT", short)
        least, most = rows.least(values).tolist(), rows.most(values).tolist()
    for row, low, high in zip(rows.of.tolist(), least, most, strict=True):
        mine = [values[other].tolist() for first, other in some if first == row]
        assert low == [min(column) for column in zip(*mine, strict=True)]
        assert high == [max(column) for column in zip(*mine, strict=True)]
    assert {*rows.of.tolist()} == {first for first, _ in some}
