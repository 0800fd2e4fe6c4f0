"""Boxes, grids and regions against enumeration, and against isl."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.space import Box, Grid, IndexSet, IntSet, Region, parse_region
from tapestry.testing.spaces import boxes, points, regions

PAIRS = st.integers(0, 3).flatmap(lambda ndim: st.tuples(regions(ndim), regions(ndim)))


@given(PAIRS)
def test_algebra_is_that_of_sets(pair: tuple[Region, Region]) -> None:
    a, b = pair
    assert points(a & b) == points(a) & points(b)
    assert points(a - b) == points(a) - points(b)
    assert points(a | b) == points(a) | points(b)
    assert (a <= b) == (points(a) <= points(b))
    assert a.same(b) == (points(a) == points(b))
    assert a.meet_size(b) == len(points(a) & points(b))


@given(PAIRS)
def test_grids_of_a_region_are_disjoint(pair: tuple[Region, Region]) -> None:
    for result in (pair[0] & pair[1], pair[0] - pair[1], pair[0] | pair[1]):
        assert result.size == len(points(result))


@given(st.integers(1, 3).flatmap(lambda ndim: st.tuples(regions(ndim), regions(ndim))))
def test_algebra_is_that_of_isl(pair: tuple[Region, Region]) -> None:
    a, b = pair
    dims = tuple("xyz"[: (a.grids or b.grids)[0].ndim]) if a or b else ("x",)
    left, right = IndexSet.of(dims, a), IndexSet.of(dims, b)
    assert IndexSet.of(dims, a & b).same(left & right)
    assert IndexSet.of(dims, a - b).same(left - right)
    assert IndexSet.of(dims, a | b).same(left | right)
    assert (a <= b) == (left <= right)


@given(st.integers(0, 3).flatmap(lambda ndim: st.tuples(boxes(ndim), boxes(ndim))))
def test_boxes_agree_with_their_regions(pair: tuple[Box, Box]) -> None:
    a, b = pair
    assert a.size == len(points(a.region()))
    assert points((a & b).region()) == points(a.region()) & points(b.region())
    assert (a <= b) == (points(a.region()) <= points(b.region()))


@given(st.integers(0, 3).flatmap(regions))
def test_text_reads_back(region: Region) -> None:
    assert parse_region(str(region)).same(region)


@given(st.integers(1, 3).flatmap(regions))
def test_storage_is_a_grid_of_intervals_around_the_region(region: Region) -> None:
    storage = region.storage()
    if storage is None:
        assert not region
    else:
        assert region <= storage.region()
        assert all(run.step == 1 for axis in storage.axes for run in axis.runs)


@given(st.integers(1, 3).flatmap(regions))
def test_boxes_of_grids_tile_them(region: Region) -> None:
    tiles = [box for grid in region.grids for box in grid.boxes()]
    assert sum(box.size for box in tiles) == region.size
    assert set().union(*(points(box.region()) for box in tiles)) == points(region)


def test_a_space_without_dimensions_has_one_point() -> None:
    assert Box((), ()).size == 1
    assert () in Box((), ())
    assert Box((), ()).region().size == 1
    assert Grid(()).size == 1
    assert Region().size == 0
    assert (Box((), ()).region() - Box((), ()).region()).size == 0


def test_a_point_of_another_dimension_or_on_the_upper_edge_is_outside() -> None:
    square = Box((0, 0), (5, 5))
    assert (0, 5) not in square
    assert (0, 4) in square
    assert (0,) not in square
    assert (0, 0, 0) not in square
    assert not square.region().contains((0, 5))


@given(boxes(2), st.tuples(st.integers(-5, 5), st.integers(-5, 5)))
def test_shifts_move_every_point(box: Box, by: tuple[int, int]) -> None:
    moved = {(x + by[0], y + by[1]) for x, y in points(box.region())}
    assert points(box.shift(by).region()) == points(box.grid().shift(by).region()) == moved


def test_boxes_print_as_slices() -> None:
    assert str(Box((0, -2), (4, 3))) == "[0:4, -2:3]"


def test_empty_ranges_make_empty_boxes() -> None:
    assert Box((0, 3), (4, 3)).size == 0
    assert Box((5,), (2,)).size == 0
    assert not Box((0, 3), (4, 3)).region()
    assert Box((5,), (2,)) <= Box((0,), (1,))


def test_extents_beyond_two_to_the_31() -> None:
    n = 2**40 + 1
    frame = Box((0, 0), (n, n)).region() - Box((1, 1), (n - 1, n - 1)).region()
    assert frame.size == 4 * (n - 1)
    assert frame.contains((n - 1, 2**39))
    odd = Grid((IntSet.of(range(1, n, 2)),)).region()
    assert odd.size == 2**39


@pytest.mark.parametrize("text", ["0:4,0:4 + 0:4", "0:4 + 2:6", "", "0:4,", "(0:4)"])
def test_text_that_is_no_region_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_region(text)
