"""Transfers that are alike are counted once: what is said of each is what its own messages move."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.format.messages import Message
from tapestry.planner.format.senders import Groups, moves_by_host
from tapestry.planner.strategy.counted import Counts
from tapestry.planner.strategy.layouts import Layout, Layouts, relate
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.records import Width
from tapestry.space import Grid, IntSet, Region

WIDE = Width(2, 4)  # contributions take more than elements
RECORDS = Width(2, 4, packed=True)
MESHES = ((4,), (2, 2), (2, 3), (2, 2, 2))
# Scaled, turned, with axes that do not divide evenly, and with one more: what is alike in some is not in others.
SHAPES = ((16, 24), (24, 16), (96, 8), (12, 10), (5, 7), (8, 4, 6), (32,))


def groups(mesh: Mesh) -> Groups:
    """Two hosts."""
    return tuple(dict.fromkeys([tuple(int(rank >= mesh.size / 2) for rank in range(mesh.size)), (0,) * mesh.size]))


@st.composite
def cuts(draw: st.DrawFn, mesh: Mesh) -> tuple[Cut | None, ...]:
    """Of axes by their numbers; the kinds of cut of one axis are the same."""
    kinds = {axis: draw(st.sampled_from(["block", "zigzag", "cyclic"])) for axis in "012"}
    axes = draw(st.tuples(*[st.sampled_from(["0", "1", "2", "@0", None])] * len(mesh.shape)))
    return tuple(None if axis is None else Cut(axis, kinds.get(axis, "block")) for axis in axes)


def laid_out(chosen: tuple[Cut | None, ...], shape: tuple[int, ...], layouts: Layouts) -> Layout:
    """Cuts of axes that there are."""
    able = [None if c is not None and c.dim in "012" and int(c.dim) >= len(shape) else c for c in chosen]
    return layouts.cut(shape, able)


def busiest(messages: list[Message], of: Groups, width: tuple[int, int], way: str) -> list[int]:
    """Per level what the busiest rank sends or receives. ``width``: of an element, and of a contribution."""
    found = np.zeros((len(of), len(of[0])), dtype=int)
    for m in messages:
        if m.src != m.dst:
            level = next(k for k, its in enumerate(of) if its[m.src] == its[m.dst])
            found[level, getattr(m, way)] += m.region.size * width[m.part is not None]
    return found.max(axis=1).tolist()


@settings(max_examples=15)
@given(st.data())
def test_complete_data_moves_as_its_messages_say(data: st.DataObject) -> None:
    mesh = Mesh.of(data.draw(st.sampled_from(MESHES)), 8)
    counts, layouts = Counts(groups(mesh)), Layouts(mesh)
    chosen = data.draw(st.lists(cuts(mesh), min_size=2, max_size=4, unique=True))
    for shape in data.draw(st.permutations(SHAPES)):
        some = list(dict.fromkeys(laid_out(each, shape, layouts) for each in chosen))
        whole = [have for have in some if have.everything.size == np.prod(shape)] or [layouts.replicated(shape)]
        related = relate(whole, some)
        where = np.nonzero(related.missing > 0)
        if not len(where[0]):
            continue
        of, classes = counts.all_moved(whole, some, where, related)
        for k, (i, j) in enumerate(zip(*where, strict=True)):
            messages = moves_by_host(whole[i].regions, some[j].regions, counts.groups)
            for found in (classes[of[k]], counts.moved(whole[i], some[j])):
                assert list(found.received) == busiest(messages, counts.groups, (1, 1), "dst")
                assert list(found.sent) == busiest(messages, counts.groups, (1, 1), "src")


@settings(max_examples=15)
@given(st.data())
def test_folds_move_as_their_messages_say(data: st.DataObject) -> None:
    mesh = Mesh.of(data.draw(st.sampled_from(MESHES)), 8)
    counts, layouts = Counts(groups(mesh)), Layouts(mesh)
    reduced = data.draw(st.integers(0, len(mesh.shape) - 1))
    parts = mesh.shard_index([reduced])[1]
    held = tuple(None if k == reduced else c for k, c in enumerate(data.draw(cuts(mesh))))
    asked = data.draw(st.lists(cuts(mesh), min_size=1, max_size=3, unique=True))
    width = data.draw(st.sampled_from([WIDE, RECORDS]))
    for shape in data.draw(st.permutations(SHAPES)):
        if width.packed and len(shape) == 1:
            continue
        last = str(len(shape) - 1)
        mine, *theirs = (
            tuple(None if c and width.packed and c.dim == last else c for c in each) for each in (held, *asked)
        )
        plain = laid_out(mine, shape, layouts)
        have = layouts.of(shape, plain.regions, parts)
        if have.by_part[0].everything.size != np.prod(shape):
            continue
        needs = list(dict.fromkeys(laid_out(each, shape, layouts) for each in theirs))
        where = np.nonzero(np.ones((1, len(needs)), dtype=bool))
        of, classes = counts.all_folded([have], needs, where, width)
        for j, need in enumerate(needs):
            messages = moves_by_host(have.regions, need.regions, counts.groups, parts, records=width.packed)
            told = [busiest(messages, counts.groups, (width.complete, width.partial), way) for way in ("dst", "src")]
            for found in (classes[of[j]], counts.folded(have, need, width)):
                assert list(found.busiest) == [max(both) for both in zip(*told, strict=True)]
                assert found.elements == sum(m.region.size for m in messages if m.src != m.dst)


def test_one_tensor_in_four_ways_is_one_kind_of_transfer() -> None:
    """Half of a matrix for each rank, by rows or by columns, of two sizes: gathered, all of these are one count."""
    mesh = Mesh.of((2,), 2)
    counts, layouts = Counts(groups(mesh)), Layouts(mesh)
    for shape, axis in product([(16, 24), (24, 160)], "01"):
        have, need = layouts.cut(shape, [Cut(axis)]), layouts.replicated(shape)
        assert counts.moved(have, need).received[-1] == shape[0] * shape[1] // 2
    assert len(counts._known) == 1


def test_the_first_half_for_all_is_not_the_whole() -> None:
    """It begins at 0 too, and what completes it for some ranks would be counted for an all-gather."""
    counts, layouts = Counts(groups(Mesh.of((2,), 2))), Layouts(Mesh.of((2,), 2))
    have, half = layouts.cut((16, 24), [Cut("0")]), Region((Grid((IntSet.of(range(8)), IntSet.of(range(24)))),))
    assert counts.moved(have, layouts.of((16, 24), [half, half])).kind == "sends"
    assert counts.moved(have, layouts.replicated((16, 24))).kind == "all_gather"
