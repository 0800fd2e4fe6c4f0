"""What is known of pairs of layouts at once, against sets of elements."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.strategy.layouts import Layout, relate
from tapestry.space import Grid, IntSet, Region

SHAPE = (7, 4)
Elements = set[tuple[int, ...]]


def axes(extent: int) -> st.SearchStrategy[IntSet]:
    """Intervals, pairs of intervals and strided runs."""
    run = st.builds(
        range, st.integers(0, extent), st.integers(0, extent), st.sampled_from([1, 1, 1, 2])
    )  # fmt: skip
    return st.builds(lambda runs: IntSet.of(*(r for r in runs if r)), st.lists(run, min_size=1, max_size=2))


def layouts(ranks: int, *, grids: int = 1) -> st.SearchStrategy[Layout]:
    """Per axis two sets, of which each rank has one: tiles, copies, prefixes, what overlaps and what is empty."""

    def made(sets: list[list[IntSet]], numbers: list[list[tuple[int, int]]], parts: list[int] | None) -> Layout:
        regions = (
            Region.of(*(Grid((sets[0][i], sets[1][j])) for i, j in mine[:grids])) for mine in numbers
        )  # fmt: skip
        return Layout(SHAPE, tuple(regions), None if parts is None else tuple(parts))

    pair = st.tuples(st.integers(0, 1), st.integers(0, 1))
    return st.builds(
        made,
        st.tuples(*(st.lists(axes(n), min_size=2, max_size=2) for n in SHAPE)),
        st.lists(st.lists(pair, min_size=2, max_size=2), min_size=ranks, max_size=ranks),
        st.one_of(st.none(), st.lists(st.integers(0, 1), min_size=ranks, max_size=ranks)),
    )


def points(region: Region) -> Elements:
    return {point for grid in region.grids for point in product(*grid.axes)}


@settings(max_examples=60)
@given(st.data())
def test_pairs_are_as_their_elements_say(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 5))
    several = st.sampled_from([1, 1, 2]).flatmap(lambda grids: layouts(ranks, grids=grids))
    haves = data.draw(st.lists(several, min_size=1, max_size=3))
    needs = data.draw(st.lists(several, min_size=1, max_size=3))
    relate(haves, needs)
    for have, need in product(haves, needs):
        held, wanted = [list(map(points, layout.regions)) for layout in (have, need)]
        lacking = [n - h for n, h in zip(wanted, held, strict=True)]
        pair = have.pair(need)
        assert (pair.missing, pair.busiest) == (sum(map(len, lacking)), max(map(len, lacking)))
        assert pair.lacking == sum(map(bool, lacking))
        assert pair.alike == all(n == m for n, lack in zip(wanted, lacking, strict=True) if lack
                                 for m, lost in zip(wanted, lacking, strict=True) if lost)  # fmt: skip
        assert pair.inside == have.within(need) == all(h <= n for n, h in zip(wanted, held, strict=True))
        if have.parts is not None:
            assert have._kept(need) == len(
                set[tuple[int, ...]]().union(*(n & h for n, h in zip(wanted, held, strict=True)))
            )
        around = [set[tuple[int, ...]]().union(*held[max(0, r - 1) : r + 2]) for r in range(ranks)]
        assert have.near(need) == all(n <= a for n, a in zip(wanted, around, strict=True))
