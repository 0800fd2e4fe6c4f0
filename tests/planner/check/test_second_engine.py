"""The second engine of the checker against lists of points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product

from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES
from tapestry.expr import Affine, Bound
from tapestry.planner.check import cells, lattice
from tapestry.planner.check.between import points_between
from tapestry.planner.check.cells import Form
from tapestry.planner.check.listing import runs_of
from tapestry.planner.check.reach import Reach
from tapestry.planner.check.storage import BYTES, record_size, stored
from tapestry.records import record_alignment, record_bytes
from tapestry.space import parse_region

NAMES = "abcd"
integers = st.integers(-3, 6)
factors = st.sampled_from([1, 1, 1, 2, -1, 3, -2, 4])
axes = st.lists(st.integers(0, 6), min_size=1, unique=True).map(lambda values: runs_of(sorted(values)))


def spend(units: int, what: str) -> None:
    """Work is not counted here."""


def forms(ndim: int, least: int = 0) -> st.SearchStrategy[Form]:
    return st.lists(st.tuples(*[axes] * ndim), min_size=least, max_size=2).map(lambda tiles: Form(tuple(tiles)))


def rows(names: str) -> st.SearchStrategy[Affine]:
    terms = st.lists(st.tuples(st.sampled_from(names), factors), max_size=3)
    plain = st.builds(Affine.sum_of, terms, integers)
    floor = st.builds(lambda e, by, times: (e // by) * times, plain, st.integers(2, 4), factors)
    return st.builds(lambda e, more: e + more, plain, st.one_of(st.just(0), floor))


def bounds(names: str) -> st.SearchStrategy[Bound]:
    return st.builds(Bound, rows(names), st.one_of(st.none(), integers), st.one_of(st.none(), st.integers(-2, 12)))


def points(form: Form) -> set[tuple[int, ...]]:
    return {point for tile in form.tiles for point in product(*(list(chain(*runs)) for runs in tile))}


def reached(names: str, exprs: Sequence[Affine], conditions: Sequence[Bound], chosen: Form) -> set[tuple[int, ...]]:
    places = [dict(zip(names, point, strict=True)) for point in points(chosen)]
    return {
        tuple(e.evaluate(place) for e in exprs) for place in places if all(bound.holds(place) for bound in conditions)
    }


@settings(max_examples=150)
@given(st.data(), st.integers(1, 4))
def test_projections_reach_what_listing_points_says(data: st.DataObject, ndim: int) -> None:
    names = NAMES[:ndim]
    chosen = data.draw(forms(ndim, 1))
    exprs = data.draw(st.lists(rows(names), min_size=1, max_size=3))
    conditions = data.draw(st.lists(bounds(names), max_size=2))
    reach = Reach(names, exprs, conditions, spend)
    truth = reached(names, exprs, conditions, chosen)
    assert points(reach.image(chosen)) == truth
    dims = [Affine.dim(name) for name in names]
    for tile in chosen.tiles:
        alone = Form((tile,))
        assert reach.count(alone) == len(reached(names, dims, conditions, alone))


@settings(max_examples=40)
@given(st.data(), st.integers(1, 3))
def test_isl_says_the_same(data: st.DataObject, ndim: int) -> None:
    names = NAMES[:ndim]
    chosen, exprs = data.draw(forms(ndim, 1)), data.draw(st.lists(rows(names), min_size=1, max_size=2))
    conditions = data.draw(st.lists(bounds(names), max_size=2))
    truth = sorted(reached(names, exprs, conditions, chosen))
    whole, some = (Form(tuple(tuple(runs_of([x]) for x in point) for point in p)) for p in (truth, truth[1:]))
    asked = [(names, exprs, conditions)]
    assert lattice.reaches(asked, chosen, whole, exact=True)
    assert not truth or not lattice.reaches(asked, chosen, some, exact=False)
    here = reached(names, [Affine.dim(name) for name in names], conditions, chosen)
    assert lattice.points_within(names, conditions, chosen) == len(here)


@settings(max_examples=100)
@given(st.data(), st.integers(1, 3))
def test_classes_count_what_sets_have_in_common(data: st.DataObject, ndim: int) -> None:
    one, other = data.draw(forms(ndim)), data.draw(forms(ndim))
    here, there = points(one), points(other)
    found = cells.classes([*one.tiles, *other.tiles], spend)
    mine = (1 << len(one.tiles)) - 1
    assert sum(found.values()) == len(here | there)
    assert sum(n for mask, n in found.items() if mask & mine and mask & ~mine) == len(here & there)
    assert not cells.apart(one, other) or not here & there
    assert not cells.within(one, other) or here <= there


@settings(max_examples=50)
@given(st.data(), st.integers(1, 3))
def test_texts_and_storage_are_those_of_regions(data: st.DataObject, ndim: int) -> None:
    tile = data.draw(forms(ndim, 1)).tiles[0]
    text = ",".join("|".join(f"{r.start}:{r.stop}:{r.step}" for r in runs) for runs in tile)
    region = parse_region(text)
    grid = region.storage()
    assert points(cells.read(text)) == points(cells.bare(region)) == points(Form((tile,)))
    assert grid is not None
    assert stored(cells.read(text)) == grid.size


ends = st.one_of(st.none(), st.integers(-60, 60))


@settings(max_examples=200)
@given(st.data())
def test_points_between_lines_are_counted_without_listing_them(data: st.DataObject) -> None:
    """Along one dimension intervals, along the other any runs; limits that rise, fall and cross."""
    low, step = data.draw(st.integers(-9, 9)), data.draw(st.integers(1, 3))
    end = low + data.draw(st.integers(1, 40))
    dims = {"a": (range(low, end), range(end + 3, end + 6)), "b": (range(0, 30, step), range(40, 45))}
    slopes = st.tuples(st.sampled_from([1, -1]), st.integers(-3, 3), st.integers(-40, 40), ends, ends)
    conditions = [
        Bound(Affine((("a", factor), *([("b", slope)] if slope else [])), const), lo, hi)
        for factor, slope, const, lo, hi in data.draw(st.lists(slopes, min_size=1, max_size=3))
    ]
    found = points_between("a", dims, conditions, spend)
    places = ({"a": a, "b": b} for a in chain(*dims["a"]) for b in chain(*dims["b"]))
    assert found == sum(all(bound.holds(place) for bound in conditions) for place in places)


@settings(max_examples=150)
@given(st.data())
def test_what_bands_reach_is_told_without_listing_them(data: st.DataObject) -> None:
    """A dimension that two conditions or three hold near to another one, in one run of values or in several."""
    units = st.sampled_from([1, -1])
    bands = st.builds(
        lambda a, b, const, lo, hi: Bound(Affine((("a", a), ("b", b)), const), lo, hi), units, units,
        st.integers(-9, 9), ends, ends,
    )  # fmt: skip
    conditions = data.draw(st.lists(bands, min_size=2, max_size=3))
    chosen = Form((((range(6), range(10, 20)), (range(-4, 8), range(9, 30))),))
    truth = {point[1:] for point in reached("ab", [Affine.dim("a"), Affine.dim("b")], conditions, chosen)}
    assert points(Reach("ab", [Affine.dim("b")], conditions, spend).image(chosen)) == truth


def test_a_band_of_any_size_is_projected_at_once() -> None:
    n, t, s = 1 << 40, Affine.dim("t"), Affine.dim("s")
    chosen = Form((((range(100, n),), (range(n),)),))
    reach = Reach("ts", [s], [Bound(s - t, None, 1), Bound(t - s, None, 10)], spend)
    assert reach.image(chosen).tiles == (((range(91, n),),),)


def test_a_triangle_of_any_size_is_counted_at_once() -> None:
    n, t, s = 1 << 40, Affine.dim("t"), Affine.dim("s")
    chosen = Form((((range(n),), (range(n),)),))
    units: list[int] = []
    reach = Reach("ts", [t], [Bound(s - t, None, 1)], lambda work, _: units.append(work))
    assert reach.count(chosen) == n * (n + 1) // 2
    assert sum(units) < 1000


def test_what_is_too_large_to_list_is_asked_of_isl() -> None:
    """A causal triangle of 8,192 by 8,192 under a floor, exactly and at once."""
    t, s = Affine.dim("t"), Affine.dim("s")
    chosen = Form((((range(4096),), (range(8192),)),))
    conditions = [Bound(s - t, None, 1)]
    claim = Form((((range(2048),),),))
    assert lattice.reaches([("ts", [s // 2], conditions)], chosen, claim, exact=True)
    assert not lattice.reaches([("ts", [s // 2], conditions)], chosen, Form((((range(2047),),),)), exact=False)
    assert Reach("ts", [s], conditions, spend).count(chosen) == 4096 * 4097 // 2


def test_bytes_are_those_of_the_types() -> None:
    assert {name: dtype.bytes for name, dtype in DTYPES.items()} == BYTES
    for record in [("f16", "int64"), ("f32",), ("bool", "bf16", "f32", "int8"), ("f64", "int8")]:
        assert record_size(record) == (record_bytes(record), record_alignment(record))
