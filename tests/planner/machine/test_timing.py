"""Measured times over sizes: exact where they were measured, never falling, and the same for planner and checker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.check.rates import never_below, seconds_at
from tapestry.planner.machine import Timing, monotone

SIZES = st.integers(1, 10**9).map(float)
MEASURED = st.lists(st.tuples(SIZES, st.floats(1e-9, 1e3)), min_size=1, max_size=8)


@given(MEASURED)
def test_measured_points_become_a_curve_that_never_falls(measured: list[tuple[float, float]]) -> None:
    points = monotone(measured)
    sizes, seconds = zip(*points, strict=True)
    assert list(sizes) == sorted({size for size, _ in measured})
    assert list(seconds) == sorted(seconds)
    assert min(s for _, s in measured) * (1 - 1e-9) <= seconds[0] <= seconds[-1] <= 1e3 * (1 + 1e-9)


@given(st.lists(st.tuples(SIZES, st.floats(1e-9, 1e3)), min_size=1, max_size=8, unique_by=lambda point: point[0]))
def test_what_never_falls_is_kept(measured: list[tuple[float, float]]) -> None:
    sizes = sorted(size for size, _ in measured)
    rising = tuple(zip(sizes, sorted(seconds for _, seconds in measured), strict=True))
    assert monotone(rising) == rising


@given(MEASURED)
def test_a_measured_size_takes_what_was_measured(measured: list[tuple[float, float]]) -> None:
    timing = Timing(monotone(measured))
    assert all(timing.seconds(size) == seconds for size, seconds in timing.points)
    assert timing.seconds(0) == 0


@given(MEASURED, st.lists(st.floats(0, 2e9), min_size=2, max_size=6))
def test_more_never_takes_less(measured: list[tuple[float, float]], sizes: list[float]) -> None:
    timing = Timing(monotone(measured))
    seconds = [timing.seconds(size) for size in sorted(sizes)]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(seconds))


@given(MEASURED, st.floats(0, 2e9))
def test_planner_and_checker_read_a_curve_alike(measured: list[tuple[float, float]], size: float) -> None:
    timing = Timing(monotone(measured))
    points = [list(point) for point in timing.points]
    assert seconds_at(points, size) == pytest.approx(timing.seconds(size), rel=1e-11)
    assert never_below(points, size) == pytest.approx(timing.least * size, rel=1e-11)


@given(MEASURED, st.lists(st.floats(1, 1e9), min_size=1, max_size=5))
def test_no_way_to_cut_work_is_quicker_than_the_least(measured: list[tuple[float, float]], cut: list[float]) -> None:
    timing = Timing(monotone(measured))
    assert sum(map(timing.seconds, cut)) >= timing.least * sum(cut) * (1 - 1e-9)
