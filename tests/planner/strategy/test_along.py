"""What ranks receive and send, by the sets of axes, as by the pieces that they have and the regions that they need."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.format.folds import Source
from tapestry.planner.format.loads import complete_loads
from tapestry.planner.format.senders import Groups
from tapestry.planner.strategy import along
from tapestry.planner.strategy.along import Along
from tapestry.planner.strategy.folding import Folding
from tapestry.planner.strategy.layouts import Layout, Layouts
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.space import Box, Grid, IntSet, Region

SHAPE = (7, 12)
MESHES = ((6,), (2, 3), (3, 2), (4, 3), (2, 2, 2), (3, 2, 2))
CUTS = [None, Cut("0"), Cut("1"), Cut("1", "zigzag"), Cut("@0")]


@settings(max_examples=300)
@given(st.data())
def test_moved_as_piece_by_piece(data: st.DataObject) -> None:
    layouts = _layouts(data)
    have, need, groups = _cut(data, layouts), _needed(data, layouts), _groups(data, layouts.mesh.size)
    mine = Along.of(have, groups)
    assert mine is not None
    found = mine.moved(need)
    assert found is not None
    assert (found == complete_loads(have.spread, [need.spread], groups)[0]).all()


@settings(max_examples=300)
@given(st.data())
def test_folded_as_piece_by_piece(data: st.DataObject) -> None:
    layouts = _layouts(data)
    size = layouts.mesh.size
    regions, groups, records = _cut(data, layouts).regions, _groups(data, size), data.draw(st.booleans())
    parts = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    have, need = layouts.of(SHAPE, regions, parts), _tangled(data, layouts)
    mine = Folding.of_parts(have, groups)
    assert mine is not None
    found = mine.folded(need, records=records)
    if found is None:
        assert any(not region <= have.everything for region in need.regions)
        return
    loads, sharing = Source(have.spread, parts, groups, records=records).shared([need.spread])
    assert (found[0] == loads.elements[0]).all()
    assert (found[1] == loads.records[0]).all()
    assert found[2] == sharing[0] or not any(need.sizes)


def test_pieces_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables of a few entries counts are the same."""
    layouts = Layouts(Mesh.of((4, 3), 12))
    groups = (tuple(rank // 3 for rank in range(12)), (0,) * 12)
    have = layouts.cut(SHAPE, (Cut("0"), None))
    need = layouts.cut(SHAPE, (Cut("1"), Cut("0")))
    partial = layouts.of(SHAPE, layouts.cut(SHAPE, (None, Cut("1"))).regions, [rank // 3 for rank in range(12)])
    whole = _counts(have, partial, need, groups)
    monkeypatch.setattr(along, "ENTRIES", 12)
    apart = _counts(have, partial, need, groups)
    assert all((a == b).all() for a, b in zip(whole, apart, strict=True))


def test_nothing_is_said_of_what_overlaps_or_has_gaps() -> None:
    layouts = Layouts(Mesh.of((3,), 3))
    groups = ((0, 0, 0),)
    halo = layouts.of(SHAPE, [Box((max(0, 2 * rank - 1), 0), (2 * rank + 2, 12)).region() for rank in range(3)])
    assert Along.of(halo, groups) is None
    assert Along.of(layouts.cut(SHAPE, (Cut("1", "cyclic"),)), groups) is None
    assert Folding.of_parts(layouts.replicated(SHAPE), groups) is None
    partial = Folding.of_parts(layouts.of(SHAPE, layouts.replicated(SHAPE).regions, [0, 1, 2]), groups)
    assert partial is not None
    corners = layouts.of(SHAPE, [Box((rank, rank), (rank + 2, rank + 2)).region() for rank in range(3)])
    assert partial.folded(corners, records=False) is None


def _counts(have: Layout, partial: Layout, need: Layout, groups: Groups) -> list[Any]:
    mine, parts = Along.of(have, groups), Folding.of_parts(partial, groups)
    assert mine is not None
    assert parts is not None
    folded = parts.folded(need, records=False)
    assert folded is not None
    return [mine.moved(need), *folded[:2]]


def _layouts(data: st.DataObject) -> Layouts:
    return Layouts(Mesh.of(data.draw(st.sampled_from(MESHES)), 16))


def _cut(data: st.DataObject, layouts: Layouts) -> Layout:
    """Cut along axes, with copies; some ranks may have nothing."""
    ways = [way for way in product(CUTS, repeat=len(layouts.mesh.shape)) if _one_kind(way)]
    found = layouts.cut(SHAPE, data.draw(st.sampled_from(ways)))
    if not data.draw(st.booleans()):
        return found
    regions = list(found.regions)
    regions[data.draw(st.integers(0, len(regions) - 1))] = Region()
    return layouts.of(SHAPE, regions)


def _needed(data: st.DataObject, layouts: Layouts) -> Layout:
    """The same, or regions that overlap."""
    found = _cut(data, layouts)
    if not data.draw(st.booleans()):
        return found
    boxes = [Box((rank // 3, 0), (rank // 3 + 3, 5 + rank % 3)).region() for rank in range(layouts.mesh.size)]
    return layouts.of(SHAPE, boxes)


def _tangled(data: st.DataObject, layouts: Layouts) -> Layout:
    """Cut along axes, or overlapping along one: all that ranks before need, or a halo."""
    found = _cut(data, layouts)
    if not data.draw(st.booleans()):
        return found
    beside, width = data.draw(st.sampled_from([None, Cut("0")])), data.draw(st.integers(1, 12))
    mine = layouts.cut((7,), (beside, *(None,) * (len(layouts.mesh.shape) - 1))).regions
    sets = [IntSet.of(range(max(0, rank - width), rank + 1), range(11, 12)) for rank in range(layouts.mesh.size)]
    order = data.draw(st.permutations(sets))
    grids = [Grid((*region.grids[0].axes, values)) for region, values in zip(mine, order, strict=True)]
    return layouts.of(SHAPE, [grid.region() for grid in grids])


def _groups(data: st.DataObject, size: int) -> Groups:
    """Rows of ranks of equal size or not, on one level or two; all together at last."""
    least = data.draw(st.sampled_from([2, 3, 4]))
    hosts, islands = tuple(r // least for r in range(size)), tuple(r // (2 * least) for r in range(size))
    return data.draw(st.sampled_from([((0,) * size,), (hosts, (0,) * size), (hosts, islands, (0,) * size)]))


def _one_kind(way: tuple[Cut | None, ...]) -> bool:
    kinds = {(c.dim, c.kind) for c in way if c is not None}
    return len({dim for dim, _ in kinds}) == len(kinds)
