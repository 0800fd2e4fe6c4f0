"""Filters and unions for many regions, against sets of points."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tapestry.space import Grid, IntSet, Region
from tapestry.space.overlap import Overlaps

AXIS = range(8)


@st.composite
def regions(draw: st.DrawFn, ndim: int) -> Region:
    """A few grids of runs with gaps and strides."""
    runs = st.builds(range, st.sampled_from(AXIS), st.sampled_from(AXIS), st.integers(1, 3))
    axes = st.builds(lambda found: IntSet.of(*found), st.lists(runs, min_size=1, max_size=3))
    grids = draw(st.lists(st.tuples(*[axes] * ndim), max_size=3))
    return Region.of(*map(Grid, grids))


def points(region: Region, ndim: int) -> set[tuple[int, ...]]:
    return {point for point in product(AXIS, repeat=ndim) if region.contains(point)}


@given(st.data(), st.integers(0, 2))
def test_no_region_that_meets_another_is_left_out(data: st.DataObject, ndim: int) -> None:
    known, asked = data.draw(st.lists(regions(ndim), max_size=6)), data.draw(regions(ndim))
    found = Overlaps(known).candidates(asked)
    assert found == sorted(set(found))
    assert {k for k, region in enumerate(known) if points(region, ndim) & points(asked, ndim)} <= {*found}


def test_neighbours_are_not_taken_for_one_another() -> None:
    """Shards of a block cut, and of a cut whose shards are two intervals each."""
    block = [Region.of(Grid((IntSet.interval(k, k + 1),))) for k in range(100)]
    zigzag = [Region.of(Grid((IntSet.of(range(k, k + 1), range(99 - k, 100 - k)),))) for k in range(50)]
    assert [Overlaps(block).candidates(shard) for shard in block] == [[k] for k in range(100)]
    assert [Overlaps(zigzag).candidates(shard) for shard in zigzag] == [[k] for k in range(50)]


def test_coordinates_past_64_bits_are_kept_apart_or_together() -> None:
    far = [Region.of(Grid((IntSet.interval(a, b),))) for a, b in ((0, 5), (1 << 80, 1 << 90), (-(1 << 70), -5))]
    assert Overlaps(far).candidates(Region.of(Grid((IntSet.interval(1 << 85, 1 << 86),)))) == [1]
    assert Overlaps(far).candidates(Region.of(Grid((IntSet.interval(-10, 1),)))) == [0, 2]


@given(st.data(), st.integers(0, 2))
def test_the_union_of_many_regions(data: st.DataObject, ndim: int) -> None:
    many = data.draw(st.lists(regions(ndim), max_size=12))
    assert points(Region.union(many), ndim) == set().union(*(points(region, ndim) for region in many))
    assert Region.union(many).size == len(points(Region.union(many), ndim))
