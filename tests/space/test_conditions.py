"""Conditions of any form: what is printed, counted, projected, simplified and told isl holds point by point."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound, Inside, Table
from tapestry.expr.conditions import any_of, none_of
from tapestry.expr.simplify import simplify_bounds, simplify_index
from tapestry.parse import parse_bound, parse_expr
from tapestry.planner.check.alternatives import cases
from tapestry.planner.check.budget import Budget
from tapestry.planner.check.cells import Form
from tapestry.planner.check.reach import Reach
from tapestry.space import Access, Box, Grid, IndexSet, IntSet
from tapestry.space.counting import Exact, count_grid
from tapestry.space.projection import projection
from tapestry.testing.spaces import affines, conditions, grids, points, tables

D = Affine.dim
Q, K, B = D("q"), D("k"), D("b")
NAMES = ("q", "k")
few = settings(max_examples=40)


def held(names: tuple[str, ...], bounds: tuple[Bound, ...], grid: Grid) -> list[dict[str, int]]:
    places = [dict(zip(names, point, strict=True)) for point in points(grid.region())]
    return [at for at in places if all(bound.holds(at) for bound in bounds)]


def at(values: tuple[int, ...], inner: Affine) -> Affine:
    return Table(inner, values).over(inner)


@few
@given(st.lists(conditions(NAMES), min_size=1, max_size=3), grids(2))
def test_either_and_neither_hold_where_they_should(parts: list[tuple[Bound, ...]], grid: Grid) -> None:
    everywhere = held(NAMES, (), grid)
    each = [held(NAMES, part, grid) for part in parts]
    assert held(NAMES, any_of(parts), grid) == [place for place in everywhere if any(place in one for one in each)]
    assert held(NAMES, none_of(parts[0]), grid) == [place for place in everywhere if place not in each[0]]


@few
@given(conditions(NAMES))
def test_what_is_printed_is_read_back(bounds: tuple[Bound, ...]) -> None:
    for bound in bounds:
        assert parse_bound(str(bound)) == bound
    assert parse_expr(f"[{' and '.join(map(str, bounds))}]") == Inside(bounds)


@few
@given(st.lists(conditions(NAMES), max_size=2), grids(2))
def test_points_are_counted_one_by_one(parts: list[tuple[Bound, ...]], grid: Grid) -> None:
    bounds = tuple(bound for part in parts for bound in part)
    assert count_grid(NAMES, bounds, grid) == Exact(len(held(NAMES, bounds, grid)))


@few
@given(conditions(NAMES), affines(NAMES), affines(NAMES), grids(2))
def test_images_hold_what_is_reached(bounds: tuple[Bound, ...], row: Affine, other: Affine, grid: Grid) -> None:
    reached = {(row.evaluate(place), other.evaluate(place)) for place in held(NAMES, bounds, grid)}
    image = projection(NAMES, (row, other), bounds).image(grid.region())
    assert points(image.region) == reached if image.exact else reached <= points(image.region)


@few
@given(conditions(NAMES), tables(NAMES), grids(2))
def test_the_checker_counts_and_reaches_by_cases_of_its_own(bounds: tuple[Bound, ...], row: Affine, grid: Grid) -> None:
    tile = tuple(axis.runs for axis in grid.axes)
    places = held(NAMES, bounds, grid)
    parts = [Reach(NAMES, rows, apart, Budget(10**6).spend) for rows, apart in cases((row,), bounds)]
    assert sum(part.count(Form((tile,))) for part in parts) == len(places)
    found = {value for part in parts for (runs,) in part.image(Form((tile,))).tiles for run in runs for value in run}
    assert found == {row.evaluate(place) for place in places}


@few
@given(conditions(NAMES), tables(NAMES), st.tuples(st.integers(1, 7), st.integers(1, 7)))
def test_simplified_conditions_hold_at_the_same_points(
    bounds: tuple[Bound, ...], row: Affine, extents: tuple[int, int]
) -> None:
    grid = Box.of_shape(extents).grid()
    ranges = dict(zip(NAMES, ((0, extent) for extent in extents), strict=True))
    simple = simplify_bounds(bounds, ranges)
    assert held(NAMES, bounds, grid) == ([] if simple is None else held(NAMES, simple, grid))
    plain = simplify_index(row, ranges)
    assert all(plain.evaluate(place) == row.evaluate(place) for place in held(NAMES, (), grid))


@few
@given(conditions(NAMES, depth=1), tables(NAMES))
def test_isl_is_told_the_same(bounds: tuple[Bound, ...], row: Affine) -> None:
    extents = {"q": 6, "k": 5}
    places = held(NAMES, bounds, Box.of_shape(tuple(extents.values())).grid())
    chosen = IndexSet.where(extents, bounds)
    assert chosen.points.count_val().to_python() == len(places)
    image = Access(NAMES, (row,)).image_set(chosen)
    assert image.points.count_val().to_python() == len({row.evaluate(place) for place in places})


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (none_of([Bound(Q - K, 0, 1)]), "k - q != 0"),
        (any_of([[Bound(K, None, 4)], [Bound(Q - K, 0, 128)]]), "(-127 <= k - q < 1 or k < 4)"),
        (none_of(any_of([[Bound(K, None, 4)], [Bound(Q, 2)]])), "q < 2 and 4 <= k"),
        ((Bound(Q - at((3, 5, 0, 0, 0, 0), B), None, 0),), "q - [3, 5, 0*4][b] < 0"),
        (any_of([[Bound(Q, 1), Bound(K, 1)], [Bound(B, 1)]]), "(1 <= b or 1 <= k and 1 <= q)"),
    ],
)
def test_conditions_read_as_they_are_meant(bounds: tuple[Bound, ...], text: str) -> None:
    assert " and ".join(map(str, bounds)) == text


def test_large_domains_are_counted_without_listing_points() -> None:
    n, width, first = 8192, 512, 4
    square = Box.of_shape((n, n)).grid()
    window = any_of([[Bound(Q - K, 0, width)], [Bound(K, None, first), Bound(Q - K, 0)]])
    band = n * width - width * (width - 1) // 2
    corner = sum(min(first, q + 1 - width) for q in range(width, n))
    assert count_grid(NAMES, window, square) == Exact(band + corner)
    lengths = tuple(17 * k * k % n + 1 for k in range(64))
    rows = tuple(Bound(at(lengths, B) - axis, 1) for axis in (Q, K))
    batch = Grid((IntSet.interval(0, 64), *square.axes))
    causal = Bound(K - Q, None, 1)
    assert count_grid(("b", *NAMES), (*rows, causal), batch) == Exact(sum(m * (m + 1) // 2 for m in lengths))


def test_a_set_of_blocks_is_counted_block_by_block() -> None:
    side, edge = 64, 128
    mask = tuple(int(k * k % 7 < 2) for k in range(side * side))
    square = Box.of_shape((side * edge, side * edge)).grid()
    chosen = Bound(at(mask, side * (Q // edge) + K // edge), 1)
    assert count_grid(NAMES, (chosen,), square) == Exact(sum(mask) * edge * edge)
    below = sum(mask[side * q + k] for q in range(side) for k in range(q)) * edge * edge
    own = sum(mask[side * q + q] for q in range(side)) * edge * (edge + 1) // 2
    assert count_grid(NAMES, (chosen, Bound(K - Q, None, 1)), square) == Exact(below + own)


def test_a_table_is_as_long_as_its_values_are_needed() -> None:
    lengths = at((3, 5, 2, 7), B)
    assert str(simplify_index(lengths, {"b": (1, 3)})) == "[5, 2][b - 1]"
    assert str(simplify_index(lengths, {"b": (3, 4)})) == "7"
    assert str(simplify_index(at((0, 4, 8, 12), B), {"b": (0, 4)})) == "4*b"
    assert prod(len(table.values) for table in lengths.tables) == 4


def test_rows_with_long_tables_are_looked_up() -> None:
    """A shard of a packed triangle is one stretch of its storage."""
    side = 400
    start = at(tuple(k * (k + 1) // 2 for k in range(side)), Q)
    shard = Box((100, 0), (300, side)).region()
    image = projection(NAMES, (start + K,), (Bound(K - Q, None, 1),)).image(shard)
    assert image.exact
    assert str(image.region) == f"{100 * 101 // 2}:{300 * 301 // 2}"
