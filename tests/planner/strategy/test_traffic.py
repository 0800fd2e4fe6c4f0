"""Traffic and messages against element-by-element enumeration over random layouts, strided and empty ones included."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.format.messages import Message, moves
from tapestry.planner.strategy.layouts import Layout, Mesh
from tapestry.planner.strategy.traffic import Traffic
from tapestry.records import Width
from tapestry.space import Grid, IntSet, Region
from tapestry.space.cuts import Block

F32 = Width(4, 4)
SHAPE = (5, 4)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    axes = []
    for extent in SHAPE:
        lo = draw(st.integers(0, extent))
        axes.append(IntSet.of(range(lo, draw(st.integers(lo, extent)), draw(st.sampled_from([1, 1, 2])))))
    return Region.of(Grid(tuple(axes)))


def points(region: Region) -> set[tuple[int, ...]]:
    return {point for grid in region.grids for point in product(*grid.axes)}


@st.composite
def complete(draw: st.DrawFn) -> tuple[list[Region], list[Region]]:
    """Who has what, all elements somewhere, and who needs what."""
    ranks = draw(st.integers(1, 5))
    have = [draw(regions()) for _ in range(ranks)]
    whole = Region.of(Grid(tuple(IntSet.interval(0, n) for n in SHAPE)))
    last = have[-1]
    for region in have:
        whole = whole - region
    have[-1] = last | whole
    return have, [draw(regions()) for _ in range(ranks)]


@st.composite
def partial(draw: st.DrawFn) -> tuple[list[Region], list[int], list[Region]]:
    """Contributions of a split fold: every part covers the same elements, cut over some ranks, maybe redundantly."""
    parts = draw(st.integers(2, 3))
    pieces = draw(st.integers(1, 2))
    copies = draw(st.integers(1, 2))
    columns = IntSet.interval(0, SHAPE[1])
    have, numbers = [], []
    for part in range(parts):
        for piece in range(pieces):
            for _ in range(copies):
                have.append(Region.of(Grid((Block(pieces).part(piece, 0, SHAPE[0]), columns))))
                numbers.append(part)
    order = draw(st.permutations(range(len(have))))
    have, numbers = [have[k] for k in order], [numbers[k] for k in order]
    return have, numbers, [draw(regions()) for _ in have]


def remote(messages: list[Message]) -> int:
    return sum(m.region.size for m in messages if m.remote)


def traffic(ranks: int) -> Traffic:
    machine = load_machine("h200x8-2node")
    return Traffic(Mesh.of((ranks,), machine.device_count), machine)


@given(complete())
def test_complete_messages_bring_each_missing_element_once(layouts: tuple[list[Region], list[Region]]) -> None:
    have, need = layouts
    messages = moves(have, need)
    arrived: dict[tuple[int, tuple[int, ...]], int] = {}
    for message in messages:
        assert points(message.region) <= points(have[message.src])
        for point in points(message.region):
            arrived[message.dst, point] = arrived.get((message.dst, point), 0) + 1
            if message.remote:
                assert point not in points(have[message.dst])
    assert arrived == {(rank, point): 1 for rank, region in enumerate(need) for point in points(region)}


@given(complete())
def test_complete_traffic_is_needed_minus_held(layouts: tuple[list[Region], list[Region]]) -> None:
    have, need = layouts
    expected = sum(len(points(n) - points(h)) for h, n in zip(have, need, strict=True))
    move = traffic(len(have)).move(Layout(SHAPE, tuple(have)), Layout(SHAPE, tuple(need)), F32)
    assert move.elements == expected == remote(moves(have, need))


@given(partial())
def test_partial_traffic_counts_contributions_and_copies(case: tuple[list[Region], list[int], list[Region]]) -> None:
    """Per element |C| + |N| - 1 - [a needer contributes], with one contributor for each part."""
    have, parts, need = case
    distinct = len(set(parts))
    expected = 0
    for point in set().union(*map(points, need)):
        needers = {rank for rank, region in enumerate(need) if point in points(region)}
        holders = {rank for rank, region in enumerate(have) if point in points(region)}
        expected += distinct + len(needers) - 1 - bool(needers & holders)
    move = traffic(len(have)).move(Layout(SHAPE, tuple(have), tuple(parts)), Layout(SHAPE, tuple(need)), F32)
    assert move.elements == expected == remote(moves(have, need, parts))


@given(partial())
def test_partial_messages_fold_one_contribution_of_each_part(
    case: tuple[list[Region], list[int], list[Region]],
) -> None:
    have, parts, need = case
    folded: dict[tuple[int, tuple[int, ...]], list[int | None]] = {}
    final: dict[tuple[int, tuple[int, ...]], int] = {}
    for message in moves(have, need, parts):
        for point in points(message.region):
            if message.phase == 0:
                assert point in points(have[message.src])
                assert parts[message.src] == message.part
                folded.setdefault((message.dst, point), []).append(message.part)
            else:
                assert (message.src, point) in folded
                final[message.dst, point] = final.get((message.dst, point), 0) + 1
    assert all(found == sorted(set(parts)) for found in folded.values())
    complete_at = {*folded, *final}
    assert complete_at == {(rank, point) for rank, region in enumerate(need) for point in points(region)}
    assert not set(folded) & set(final)
    assert set(final.values()) <= {1}


@given(complete())
def test_time_grows_with_the_slower_link(layouts: tuple[list[Region], list[Region]]) -> None:
    """A transfer takes no less than its busiest rank's bytes over the fastest link, and nothing when nothing moves."""
    have, need = layouts
    move = traffic(len(have)).move(Layout(SHAPE, tuple(have)), Layout(SHAPE, tuple(need)), F32)
    assert (move.seconds > 0) == (move.elements > 0)
    assert move.seconds >= move.busiest * 4 / 332e9
