"""Index sets over isl: named dimensions, algebra, witnesses, text, and the way back to regions."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.expr import Affine, Bound
from tapestry.space import Box, IndexSet, Region
from tapestry.testing.spaces import bounds as conditions
from tapestry.testing.spaces import regions

D = Affine.dim
CAUSAL = Bound(D("s") - D("t"), None, 1)


@given(st.integers(0, 3).flatmap(lambda ndim: st.tuples(st.just(ndim), regions(ndim))))
def test_a_region_comes_back(case: tuple[int, Region]) -> None:
    ndim, region = case
    there = IndexSet.of(tuple("xyz"[:ndim]), region)
    back = there.region()
    assert there.count().value >= region.size
    if back is not None:
        assert back.same(region)
        assert there.count().value == region.size


def test_boxes_strides_and_their_unions_come_back_as_regions() -> None:
    box = Box((-3, 2), (5, 9)).region()
    comb = IndexSet.parse("{ [x] : 0 <= x < 100 and x mod 7 = 3 }")
    frame = Box((0, 0), (9, 9)).region() - Box((2, 2), (7, 7)).region()
    for region in (box, frame):
        back = IndexSet.of(("x", "y"), region).region()
        assert back is not None
        assert back.same(region)
    assert str(comb.region()) == "3:95:7"
    assert IndexSet.where({"t": 9, "s": 9}, [CAUSAL]).region() is None


@given(st.lists(conditions(("t", "s")), max_size=2))
def test_membership_is_that_of_the_conditions(where: list[Bound]) -> None:
    points_of = IndexSet.where({"t": 4, "s": 3}, where)
    for t in range(-1, 5):
        for s in range(-1, 4):
            inside = 0 <= t < 4 and 0 <= s < 3 and all(b.holds({"t": t, "s": s}) for b in where)
            assert ((t, s) in points_of) == inside


@given(st.lists(conditions(("t", "s")), max_size=2))
def test_a_witness_is_a_point(where: list[Bound]) -> None:
    found = IndexSet.where({"t": 40, "s": 30}, where)
    point = found.witness()
    assert (point is None) == (not found)
    assert point is None or point in found


def test_set_algebra() -> None:
    square, lower = IndexSet.where({"t": 8, "s": 8}), IndexSet.where({"t": 8, "s": 8}, [CAUSAL])
    upper = square - lower
    assert lower <= square
    assert not square <= lower
    assert not lower & upper
    assert (lower | upper).same(square)
    assert (lower.count().value, upper.count().value) == (36, 28)
    assert upper.hull() == Box((0, 1), (7, 8))


def test_a_point_of_another_dimension_or_on_the_upper_edge_is_outside() -> None:
    square = IndexSet.where({"t": 5, "s": 5})
    assert (0, 5) not in square
    assert (0,) not in square
    assert (4, 4) in square


def test_text_reads_back_with_names() -> None:
    lower = IndexSet.where({"token": 8, "key": 8}, [Bound(D("key") - D("token"), None, 1)])
    again = IndexSet.parse(str(lower))
    assert again.dims == ("token", "key")
    assert again.same(lower)


def test_words_of_isl_may_name_dimensions() -> None:
    odd = IndexSet.where({"mod": 4, "OR": 3}, [Bound(D("mod") - D("OR"), 1, None)])
    assert odd.count().value == 6


def test_no_dimensions() -> None:
    assert IndexSet.where({}).witness() == ()
    assert () in IndexSet.where({})
    assert not IndexSet.of((), Region())


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{ [x : }", "not a set"), ("[n] -> { [x] : 0 <= x < n }", "no parameters"), ("{ [x] : x >= 0 }", "finite")],
)
def test_what_is_no_finite_set_is_refused(text: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=reason):
        IndexSet.parse(text)


def test_sets_over_other_dimensions_do_not_mix() -> None:
    with pytest.raises(UsageError, match="differ in dimensions"):
        _ = IndexSet.where({"t": 3}) & IndexSet.where({"s": 3})
    with pytest.raises(UsageError, match="unknown dimension 's'"):
        IndexSet.where({"t": 3}, [CAUSAL])


def test_threads_share_sets() -> None:
    lower = IndexSet.where({"t": 64, "s": 64}, [CAUSAL])
    found: list[int] = []

    def work() -> None:
        found.extend((lower & IndexSet.where({"t": 64, "s": k})).count().value for k in range(1, 20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(4 * [64 * k - k * (k - 1) // 2 for k in range(1, 20)])


def test_extents_beyond_two_to_the_31() -> None:
    n = 2**40
    lower = IndexSet.where({"t": n, "s": n}, [CAUSAL])
    assert (n - 1, n - 1) in lower
    assert (0, n - 1) not in lower
    assert IndexSet.where({"t": n}).count().value == n
