"""Sums, scalings and digits of integer sets against enumeration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tapestry.space import IntSet
from tapestry.space.runs import RUN_LIMIT, add, clip_linear, digits, piece_count, scale, unscale
from tapestry.testing.spaces import int_sets

SIGNED = st.integers(-5, 5)
RUNS = st.builds(lambda a, n, s: IntSet.of(range(a, a + n * s, s)), SIGNED, st.integers(1, 14), st.integers(1, 9))


@given(int_sets(), SIGNED)
def test_scaled(a: IntSet, factor: int) -> None:
    assert set(scale(a, factor)) == {factor * x for x in a}


@given(int_sets(), SIGNED.filter(bool))
def test_unscaled(a: IntSet, factor: int) -> None:
    assert set(unscale(scale(a, factor), factor)) == set(a)


@given(int_sets(empty=False), int_sets(empty=False))
def test_sums(a: IntSet, b: IntSet) -> None:
    found, exact = add(a, b)
    assert exact
    assert set(found) == {x + y for x in a for y in b}


@given(RUNS, RUNS)
def test_sums_of_long_runs_interlock(a: IntSet, b: IntSet) -> None:
    found, exact = add(a, b)
    assert exact
    assert set(found) == {x + y for x in a for y in b}
    assert found.size == sum(len(run) for run in found.runs)


@given(int_sets(), SIGNED.filter(bool), SIGNED, st.none() | SIGNED, st.none() | SIGNED)
def test_clipped(a: IntSet, factor: int, const: int, lo: int | None, hi: int | None) -> None:
    low, high = -(10**6) if lo is None else lo, 10**6 if hi is None else hi
    assert set(clip_linear(a, factor, const, lo, hi)) == {x for x in a if low <= factor * x + const < high}


@given(int_sets(-20, 40), st.integers(1, 12))
def test_digits(a: IntSet, base: int) -> None:
    pieces = digits(a, base)
    listed = [(q, m) for quotients, remainders in pieces for q in quotients for m in remainders]
    assert sorted(listed) == sorted(divmod(x, base) for x in a)
    assert len(pieces) <= piece_count(a, base)


def test_windows_of_a_strided_run() -> None:
    outputs = IntSet.interval(0, 56)
    window = IntSet.interval(0, 3)
    assert add(scale(outputs, 2), window) == (IntSet.interval(0, 113), True)
    assert add(scale(outputs, 2), IntSet.interval(0, 1))[0].size == 56
    assert add(scale(outputs, 5), window)[0].size == 3 * 56


def test_too_many_runs_are_a_hull_that_says_so() -> None:
    rows = scale(IntSet.interval(0, RUN_LIMIT + 1), 10**6)
    found, exact = add(rows, IntSet.interval(0, RUN_LIMIT + 2))
    assert not exact
    assert rows <= found
    assert add(rows, IntSet.interval(0, 3))[1]


def test_extents_beyond_two_to_the_31() -> None:
    n = 2**40
    assert add(scale(IntSet.interval(0, n), 2), IntSet.interval(0, 3)) == (IntSet.interval(0, 2 * n + 1), True)
    found, exact = add(scale(IntSet.interval(0, n), 3), scale(IntSet.interval(0, n), 5))
    assert exact
    assert found.size == 8 * (n - 1) + 1 - 2 * 4  # 1, 2, 4, 7 are no sums of threes and fives, nor their mirrors
    assert digits(IntSet.interval(5, n), 2**33)[1] == (IntSet.interval(1, 2**7), IntSet.interval(0, 2**33))
