"""Counts against enumeration, closed forms and isl; a bound never passes for a count."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound
from tapestry.space import Box, Grid, IndexSet, IntSet, Region, counting
from tapestry.space.counting import Exact, count, count_grid, floor_sum
from tapestry.testing.spaces import affines, grids, points, regions
from tapestry.testing.spaces import bounds as conditions

D = Affine.dim
T, S = D("t"), D("s")


def listed(names: Sequence[str], bounds: Sequence[Bound], grid: Grid) -> int:
    return sum(all(b.holds(dict(zip(names, p, strict=True))) for b in bounds) for p in points(grid.region()))


@given(st.integers(0, 30), st.integers(1, 20), st.integers(0, 60), st.integers(0, 60))
def test_sums_of_floors(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == sum((a * k + b) // m for k in range(n))


FACTOR = st.integers(-4, 4)


@given(grids(2, empty=True), FACTOR, FACTOR, st.none() | st.integers(-9, 9), st.integers(-9, 30))
def test_one_condition_over_two_dimensions(grid: Grid, a: int, b: int, lo: int | None, hi: int) -> None:
    bound = Bound(a * T + b * S + 1, lo, hi)
    assert count_grid(("t", "s"), (bound,), grid) == Exact(listed(("t", "s"), [bound], grid))


@given(st.data())
def test_any_conditions_over_few_points(data: st.DataObject) -> None:
    names = ("a", "b", "c")
    where = tuple(data.draw(st.lists(conditions(names), max_size=3)))
    grid = data.draw(grids(3, empty=True))
    assert count_grid(names, where, grid) == Exact(listed(names, where, grid))


@given(st.data())
def test_conditions_agree_with_isl(data: st.DataObject) -> None:
    extents = {name: data.draw(st.integers(1, 60)) for name in "ab"}
    where = tuple(data.draw(st.lists(conditions(tuple(extents)), max_size=2)))
    found = count_grid(tuple(extents), where, Box.of_shape(tuple(extents.values())).grid())
    truth = IndexSet.where(extents, where).points.count_val().to_python()
    assert found.value >= truth
    assert not found.exact or found.value == truth


def test_triangles_and_bands_in_closed_form_at_any_extent() -> None:
    n, w = 2**40, 2**12
    square = Box((0, 0), (n, n)).grid()
    causal, band = Bound(S - T, None, 1), Bound(T - S, 0, w)
    assert count_grid(("t", "s"), (causal,), square) == Exact(n * (n + 1) // 2)
    assert count_grid(("t", "s"), (band,), square) == Exact(n * w - w * (w - 1) // 2)
    assert count_grid(("t", "s"), (causal, Bound(T - S, None, w)), square) == Exact(n * w - w * (w - 1) // 2)
    prism = Grid((*square.axes, IntSet.interval(3, 3 + n)))
    assert count_grid(("t", "s", "h"), (causal,), prism) == Exact(n * n * (n + 1) // 2)


def test_too_many_points_to_list_are_a_bound() -> None:
    n = 10**6
    cube = Box((0,) * 3, (n,) * 3).grid()
    found = count_grid(("a", "b", "c"), (Bound(D("a") + D("b") + D("c"), None, n),), cube)
    assert found == counting.Bound(n**3)
    assert not found.exact


@given(st.integers(0, 3).flatmap(regions))
def test_regions_are_counted_without_isl(region: Region) -> None:
    assert count(region) == Exact(len(points(region)))


def test_a_space_without_dimensions_has_one_point() -> None:
    assert count(Box((), ())) == Exact(1)
    assert count_grid((), (), Grid(())) == Exact(1)
    assert count(IndexSet.where({})) == Exact(1)


def test_isl_is_asked_last_and_only_what_it_answers() -> None:
    triangle = IndexSet.where({"t": 100, "s": 100}, [Bound(S - T, None, 1)])
    assert count(triangle) == Exact(5050)
    boxes = IndexSet.of(("x",), Region.of(Box((0,), (2**40,)).grid(), Box((2**41,), (2**42,)).grid()))
    assert count(boxes) == Exact(2**40 + 2**41)  # disjoint boxes: nothing is listed
    n = 2**33
    huge = IndexSet.where({"a": n, "b": n, "c": n}, [Bound(D("a") + D("b") + D("c"), None, n)])
    assert count(huge) == counting.Bound(n**3)  # would list 2**66 points


def test_an_empty_set_has_exactly_no_points() -> None:
    assert count(IndexSet.where({"t": 4}, [Bound(T, 9, None)])) == Exact(0)
    assert count(Box((3,), (3,))) == Exact(0)


def test_sums_and_products_are_as_exact_as_their_parts() -> None:
    loose = counting.Bound(7)
    assert counting.total([Exact(1), loose]) == counting.Bound(8)
    assert counting.total([]) == Exact(0)
    assert counting.product([Exact(2), loose]) == counting.Bound(14)
    assert counting.product([Exact(0), loose]) == Exact(0)


@given(st.data())
def test_listing_gives_what_a_full_listing_gives(data: st.DataObject) -> None:
    """Floors in conditions on one dimension or more."""
    names = ("a", "b")
    where = (Bound(data.draw(affines(names, floors=2)) // 2, -1, 2),)
    grid = data.draw(grids(2))
    assert count_grid(names, where, grid) == Exact(listed(names, where, grid))
