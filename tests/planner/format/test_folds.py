"""Folds from one source to many layouts at once: counted as one by one, message by message."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.format.folds import Source
from tapestry.planner.format.loads import partial_loads
from tapestry.planner.format.spread import Spread
from tapestry.planner.strategy.layouts import Layouts
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.space import Box, Region

SHAPE = (7, 12)
MESHES = ((6,), (2, 3), (2, 2, 2))


@settings(max_examples=80)
@given(st.data())
def test_counted_at_once_as_one_by_one(data: st.DataObject) -> None:
    """Layouts cut along axes, with copies, with ranks that have nothing, and some that overlap."""
    mesh = Mesh.of(data.draw(st.sampled_from(MESHES)), 8)
    layouts = Layouts(mesh)
    cuts = [None, Cut("0"), Cut("1"), Cut("1", "zigzag"), Cut("@0")]
    ways = st.sampled_from([way for way in product(cuts, repeat=len(mesh.shape)) if _one_kind(way)])
    held = list(layouts.cut(SHAPE, data.draw(ways)).regions)
    needs = [list(layouts.cut(SHAPE, data.draw(ways)).regions) for _ in range(3)]
    if data.draw(st.booleans()):
        needs[0] = [Region.union(needs[0][: rank + 1]) for rank in range(mesh.size)]
    if data.draw(st.booleans()):
        held = [Region.union(held[rank:]) for rank in range(mesh.size)]
    if data.draw(st.booleans()):
        held[data.draw(st.integers(0, mesh.size - 1))] = Region()
    parts = data.draw(st.lists(st.integers(0, 3), min_size=mesh.size, max_size=mesh.size))
    size = data.draw(st.sampled_from([2, 3, 4]))
    hosts = tuple(rank // size for rank in range(mesh.size))
    groups, records = (hosts, (0,) * mesh.size), data.draw(st.booleans())
    source = Source(Spread(held), parts, groups, records=records)
    loads = source.loads([Spread(need) for need in needs])
    for need, elements, folded in zip(needs, loads.elements, loads.records, strict=True):
        alone = partial_loads(held, need, parts, groups, records=records)
        assert (elements == alone.elements).all()
        assert (folded == alone.records).all()


def test_parts_of_a_scalar_are_folded_by_who_needs_it() -> None:
    scalar = Box((), ()).region()
    loads = Source(Spread([scalar] * 3), [0, 1, 2], ((0, 0, 0),), records=False).loads(
        [Spread([Region(), scalar, Region()])]
    )
    assert loads.records[0, :, 0].tolist() == [[0, 2, 0], [1, 0, 1]]
    assert not loads.elements.any()


def _one_kind(way: tuple[Cut | None, ...]) -> bool:
    kinds = {(c.dim, c.kind) for c in way if c is not None}
    return len({dim for dim, _ in kinds}) == len(kinds)
