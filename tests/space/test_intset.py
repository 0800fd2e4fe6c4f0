"""Integer sets against Python's own sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.space import IntSet, parse_intset
from tapestry.testing.spaces import int_sets


@given(int_sets(), int_sets())
def test_algebra_is_that_of_sets(a: IntSet, b: IntSet) -> None:
    assert set(a & b) == set(a) & set(b)
    assert set(a - b) == set(a) - set(b)
    assert set(a | b) == set(a) | set(b)
    assert (a <= b) == (set(a) <= set(b))


@given(int_sets(), int_sets())
def test_runs_of_a_result_are_disjoint(a: IntSet, b: IntSet) -> None:
    for result in (a & b, a - b, a | b):
        assert result.size == len(set(result)) == sum(len(run) for run in result.runs)


@given(int_sets())
def test_elements_come_in_order_with_their_bounds(a: IntSet) -> None:
    listed = list(a)
    assert listed == sorted(set(listed))
    if a:
        assert (a.lo, a.hi) == (listed[0], listed[-1] + 1)


@given(int_sets())
def test_text_reads_back(a: IntSet) -> None:
    assert set(parse_intset(str(a))) == set(a)


@given(int_sets(), st.integers(-5, 5))
def test_shift_and_cover(a: IntSet, by: int) -> None:
    assert set(a.shift(by)) == {x + by for x in a}
    assert a <= a.cover()
    assert all(run.step == 1 for run in a.cover().runs)


@given(int_sets(), st.integers(-8, 14))
def test_the_position_of_a_value_counts_what_comes_before_it(a: IntSet, value: int) -> None:
    assert a.cover().position(value) == sum(x < value for x in a.cover())


@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 6)), max_size=6))
def test_contiguous_sets_have_one_form(spans: list[tuple[int, int]]) -> None:
    runs = [range(lo, lo + size) for lo, size in spans]
    forward, backward = IntSet.of(*runs), IntSet.of(*reversed(runs))
    assert forward == backward
    assert hash(forward) == hash(backward)
    assert all(a.stop < b.start for a, b in zip(forward.runs, forward.runs[1:], strict=False))


@given(st.integers(2, 6), st.integers(0, 9), st.integers(1, 12), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_neighbouring_strided_runs_become_intervals(step: int, lo: int, size: int, less: list[int]) -> None:
    runs = [range(lo + k, lo + k + (size - less[k]) * step, step) for k in range(step)]
    woven = IntSet.of(*runs)
    assert set(woven) == {x for run in runs for x in run}
    if not any(less[:step]):
        assert woven == IntSet.interval(lo, lo + size * step)


def test_a_strided_band_is_stored_without_its_gaps() -> None:
    assert str(IntSet.of(range(0, 9, 4), range(1, 10, 4))) == "0:2|4:6|8:10"


def test_extents_beyond_machine_words() -> None:
    big = IntSet.interval(0, 2**70) - IntSet.of(range(0, 2**70, 2))
    assert big.size == 2**69
    assert 2**69 + 1 in big
    assert 2**69 not in big
    assert (big & IntSet.of(range(0, 2**70, 3))).size == (2**70 // 3 + 1) // 2


def test_empty_ranges_are_empty() -> None:
    assert not IntSet.interval(3, 3)
    assert not IntSet.interval(5, 2)
    assert not IntSet.of(range(4, 4), range(7, 2))
    assert str(IntSet()) == "-"
    assert parse_intset("-") == IntSet()


@pytest.mark.parametrize("text", ["3:3", "4:2", "0:4:0", "0:4|2:6", "0", "a:b", "0:4:1:1"])
def test_what_is_not_a_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"run|overlap|literal|unpack"):
        parse_intset(text)
