"""Traffic and messages against element-by-element enumeration over random layouts, strided and empty ones included."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.format.messages import Message, moves
from tapestry.planner.format.senders import Groups, moves_by_host
from tapestry.planner.strategy.layouts import Layout, Layouts
from tapestry.planner.strategy.mesh import Cut, Mesh
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


def halves(ranks: int) -> Groups:
    """Two hosts: the first ranks on one, the others on the other."""
    near = dict.fromkeys([tuple(int(rank >= 2) for rank in range(ranks)), (0,) * ranks])
    return tuple(near)


first_rule = pytest.mark.parametrize("first", [False, True], ids=["by host", "first rule"])


def sent(first: bool, have: list[Region], need: list[Region], parts: list[int] | None = None) -> list[Message]:
    return moves(have, need, parts) if first else moves_by_host(have, need, halves(len(have)), parts)


@first_rule
@given(layouts=complete())
def test_complete_messages_bring_each_missing_element_once(
    layouts: tuple[list[Region], list[Region]], first: bool
) -> None:
    have, need = layouts
    messages = sent(first, have, need)
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
    assert move.elements == expected == remote(sent(False, have, need)) == remote(sent(True, have, need))


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
    assert move.elements == expected == remote(sent(False, have, need, parts)) == remote(sent(True, have, need, parts))


@first_rule
@given(case=partial())
def test_partial_messages_fold_one_contribution_of_each_part(
    case: tuple[list[Region], list[int], list[Region]], first: bool
) -> None:
    have, parts, need = case
    folded: dict[tuple[int, tuple[int, ...]], list[int | None]] = {}
    final: dict[tuple[int, tuple[int, ...]], int] = {}
    for message in sent(first, have, need, parts):
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
    assert move.seconds >= max(map(len, need_of(have, need)), default=0) * 4 / 332e9


def need_of(have: list[Region], need: list[Region]) -> list[set[tuple[int, ...]]]:
    """Per rank the elements that it lacks."""
    return [points(n) - points(h) for h, n in zip(have, need, strict=True)]


class Case:
    """A matrix of 64 MiB in bf16, laid out over the ranks of a machine."""

    SHAPE = (8192, 4096)
    BF16 = Width(2, 2)

    def __init__(self, machine: str, mesh: tuple[int, ...]) -> None:
        described = load_machine(machine)
        of = Mesh.of(mesh, described.device_count)
        self.layouts, self.traffic = Layouts(of), Traffic(of, described)

    def cut(self, *axes: str | None) -> Layout:
        return self.layouts.cut(self.SHAPE, [None if axis is None else Cut(axis) for axis in axes])

    def seconds(self, have: Layout, need: Layout) -> float:
        return self.traffic.move(have, need, self.BF16).seconds


def test_what_one_rank_sends_to_all_others_takes_its_link() -> None:
    """Eight ranks get an eighth each; the one that has all sends seven of them, at 332 GB/s after 29 us."""
    case = Case("h200x8", (8,))
    assert case.seconds(case.cut("@0"), case.cut("0")) == pytest.approx(29e-6 + 7 / 8 * 2**26 / 332e9)


def test_copies_on_the_host_are_asked_before_others() -> None:
    """Both hosts hold all of it, cut over their own ranks: nothing crosses."""
    case = Case("h200x8-2node", (2, 8))
    have, need = case.cut(None, "0"), case.cut(None, None)
    messages = moves_by_host(have.regions, need.regions, case.traffic.levels[1])
    assert all(m.src // 8 == m.dst // 8 for m in messages)
    assert any(m.src // 8 != m.dst // 8 for m in moves(have.regions, need.regions))
    assert case.seconds(have, need) < 300e-6


def test_copies_share_the_sending() -> None:
    """Of four quarters two copies each: all ranks send as much as they receive, whatever their numbers are."""
    case = Case("h200x8", (2, 2, 2))
    for cuts in (("0", None, "0"), (None, "0", "0"), ("0", "0", None)):
        messages = moves_by_host(case.cut(*cuts).regions, case.cut(None, None, None).regions, case.traffic.levels[1])
        sent = [sum(m.moved for m in messages if m.src == rank) for rank in range(8)]
        assert sent == [8192 * 4096 // 4 * 3] * 8


def test_contributions_within_a_host_do_not_cross() -> None:
    """Shares of a reduction over the ranks of each host, copies on both: only what is folded goes to the other host."""
    case = Case("h200x8-2node", (2, 8))
    whole, parts = case.cut(None, None), [rank % 8 for rank in range(16)]
    for need in (case.cut(None, "0"), whole):
        messages = moves_by_host(whole.regions, need.regions, case.traffic.levels[1], parts)
        assert {m.phase for m in messages if m.src // 8 != m.dst // 8} == {1}


def test_a_machine_of_one_device_needs_no_links() -> None:
    machine = replace(load_machine("h200x8"), links=(), devices_per_host=1)
    mesh = Mesh.of((1,), 1)
    whole = Layouts(mesh).replicated((4, 4))
    seconds, nbytes = Traffic(mesh, machine).costs([whole], [whole], Width(2, 2))
    assert (seconds.tolist(), nbytes.tolist()) == ([[0.0]], [[0]])
