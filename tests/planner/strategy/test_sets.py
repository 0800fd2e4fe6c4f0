"""What ranks have inside of something, or without something, all at once, is what each of them has by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.strategy.layouts import Layout, Layouts, united
from tapestry.planner.strategy.mesh import Cut, Mesh, Shards, choices_per_axis, full_box
from tapestry.space import Grid, IntSet, Region

SHAPE = (6, 4)
RANKS = 4
SETS = st.sampled_from(
    [IntSet.interval(a, b) for a in range(4) for b in range(a, 5)]
    + [IntSet.of(range(1), range(3, 4)), IntSet.of(range(0, 4, 2)), IntSet.of(range(2), range(3, 4))]
)
REGIONS = st.builds(lambda a, b: Grid((a, b)).region(), SETS, SETS)
SEVERAL = st.builds(lambda a, b: a | b, REGIONS, REGIONS)


@st.composite
def layouts(draw: st.DrawFn, table: Layouts) -> Layout:
    """Mostly products of sets of the axes, as cuts are."""
    if draw(st.booleans()):
        rows, columns = (draw(st.lists(SETS, min_size=2, max_size=2)) for _ in range(2))
        return table.of(SHAPE, [Grid((a, b)).region() for a in rows for b in columns])
    pool = draw(st.sampled_from([REGIONS, SEVERAL]))
    return table.of(SHAPE, [draw(pool) for _ in range(RANKS)])


@given(st.data())
def test_of_all_ranks_as_of_each(data: st.DataObject) -> None:
    table = Layouts(Mesh((RANKS,), ("mesh0",)))
    one, other = data.draw(layouts(table)), data.draw(layouts(table))
    to = data.draw(st.one_of(REGIONS, SEVERAL))
    pairs = list(zip(one.regions, other.regions, strict=True))
    assert _same(table.inside(one, to), [region & to for region in one.regions])
    assert _same(table.without(one, other), [a - b for a, b in pairs])
    assert _same(table.both(one, other), [a & b for a, b in pairs])
    assert _same(united([one, other], table), [Region.union(pair) for pair in pairs])
    assert one.everything.same(Region.union(one.regions))


@given(st.sampled_from([(6,), (2, 3), (3, 2, 2)]), st.data())
def test_cut_axis_by_axis_as_rank_by_rank(shape: tuple[int, ...], data: st.DataObject) -> None:
    """The same regions, and the same layout as of these; what rests is each element on the first that needs it."""
    mesh = Mesh.of(shape, 12)
    table = Layouts(mesh)
    options = [None, Cut("0"), Cut("1"), Cut("1", "zigzag"), Cut("0", "cyclic"), Cut("@1")]
    cuts = data.draw(st.sampled_from([*choices_per_axis(options, mesh)]))
    regions = Shards.of(mesh, {"0": 7, "1": 12}, cuts).regions
    found = table.cut((7, 12), cuts)
    assert found.regions == regions
    assert [found.region(rank) for rank in range(mesh.size)] == list(regions)
    assert table.of((7, 12), regions) is found
    shared = found.shared_out(single=True)
    if shared is not None:
        first = [region if regions.index(region) == rank else Region() for rank, region in enumerate(regions)]
        assert list(table.of_columns((7, 12), shared).regions) == first
    whole = found.everything == full_box((7, 12))
    assert (found.shared_out(single=False) is not None) == whole


def _same(layout: Layout, regions: list[Region]) -> bool:
    return all(a.same(b) for a, b in zip(layout.regions, regions, strict=True))
