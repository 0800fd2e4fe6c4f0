"""Packing against every offset tried, and what is said where nothing fits."""

from __future__ import annotations

import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.pack import Buffer, PackError, minimize_peak, pack
from tapestry.planner.solvers.pack.bounds import max_live
from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.portfolio import hunt
from tapestry.planner.solvers.pack.search import EXHAUSTED, FOUND

from .problems import least_capacity, problems, some_packing, without_slack

# What the search finds is tested, not how soon: on a busy machine its compilation alone may outlast the default limit.
searched = partial(pack, time_limit=3600.0)


@settings(max_examples=300, deadline=None)
@given(problems(), st.integers(0, 10))
def test_packs_exactly_what_can_be_packed(buffers: list[Buffer], capacity: int) -> None:
    packing = searched(buffers, capacity, jobs=1)
    assert packing.status == ("infeasible" if some_packing(buffers, capacity) is None else "packed")
    assert (packing.witness is None) == (packing.status == "packed")
    if packing.status == "packed":
        assert check_packing(buffers, packing.offsets, capacity) == []
        assert packing.lower_bound <= packing.peak <= capacity


@settings(max_examples=150, deadline=None)
@given(problems())
def test_search_alone_is_complete(buffers: list[Buffer]) -> None:
    least = least_capacity(buffers, 14)
    if least is None:
        return
    answer, offsets = hunt(buffers, least, deadline=time.monotonic() + 3600, seed=0, jobs=1)
    assert answer == FOUND
    assert offsets is not None
    named = {b.name: int(at) for b, at in zip(buffers, offsets, strict=True)}
    assert check_packing(buffers, named, least) == []
    pinned_above = any(b.offset is not None and b.offset + b.size > least - 1 for b in buffers)
    if least > 0 and not pinned_above:  # pins are proved first, and never reach the search
        assert hunt(buffers, least - 1, deadline=time.monotonic() + 3600, seed=0, jobs=1)[0] == EXHAUSTED


@settings(max_examples=150, deadline=None)
@given(problems(most=4))
def test_the_smallest_peak_and_its_bound(buffers: list[Buffer]) -> None:
    least = least_capacity(buffers, 20)
    quick, thorough = minimize_peak(buffers), minimize_peak(buffers, time_limit=3600.0, jobs=1)
    if least is None:
        assert quick.status == thorough.status == "infeasible"
        return
    assert quick.lower_bound <= least <= quick.peak
    assert thorough.peak == thorough.lower_bound == least
    assert check_packing(buffers, quick.offsets, quick.peak) == []


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(0, 40))
def test_a_peak_that_is_enough_ends_the_quick_orders(buffers: list[Buffer], enough: int) -> None:
    best, found = minimize_peak(buffers), minimize_peak(buffers, enough=enough)
    assert found.status == best.status
    if best.offsets:
        assert check_packing(buffers, found.offsets, found.peak) == []
        assert found.peak <= max(enough, best.peak)


@settings(max_examples=300, deadline=None)
@given(problems(), st.integers(0, 10))
def test_a_live_witness_adds_up(buffers: list[Buffer], capacity: int) -> None:
    witness = searched(buffers, capacity, jobs=1).witness
    if witness is None or witness.reason != "live":
        return
    named = [b for b in buffers if b.name in witness.buffers]
    assert witness.instant is not None
    assert all(b.lower <= witness.instant < b.upper for b in named)
    assert witness.needed > capacity
    # These alone do not fit, and without reuse their sizes say so.
    assert some_packing(named, capacity) is None
    if all(b.reuses is None for b in named):
        assert sum(b.size for b in named) == witness.needed


@pytest.mark.parametrize("seed", range(6))
def test_full_to_the_last_unit(seed: int) -> None:
    buffers = without_slack(seed, pieces=40)
    packing = searched(buffers, 64, jobs=1)
    assert packing.status == "packed"
    assert packing.optimal
    assert check_packing(buffers, packing.offsets, 64) == []


@pytest.mark.parametrize(("seed", "pieces"), [(3, 100), (6, 200), (3, 300), (4, 300)])
def test_plain_orders_going_upwards_come_first(seed: int, pieces: int) -> None:
    """Every 20th piece left out: short runs that go where it is tightest need many more tries than these five."""
    cut = without_slack(seed, pieces, height=1024, width=1024)
    buffers = [buffer for number, buffer in enumerate(cut) if number % 20]
    packing = searched(buffers, 1024, jobs=1, runs=5)
    assert packing.status == "packed"
    assert check_packing(buffers, packing.offsets, 1024) == []


@pytest.mark.parametrize("room", [1, 3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_room_above_what_is_alive_is_no_hindrance(seed: int, room: int) -> None:
    buffers = without_slack(seed, pieces=60)
    packing = searched(buffers, 64 + room, jobs=1)
    assert packing.status == "packed"
    assert check_packing(buffers, packing.offsets, 64 + room) == []


def test_a_ceiling_below_the_capacity_proves_nothing_about_the_capacity() -> None:
    """Live never exceeds 4, but x must stay where it is while a and b change sides around it: 5 are needed."""
    buffers = [
        Buffer("a", 0, 2, 2), Buffer("y", 0, 1, 1), Buffer("x", 0, 4, 1),
        Buffer("z", 3, 4, 1), Buffer("c", 1, 3, 1), Buffer("b", 2, 4, 2),
    ]  # fmt: skip
    answer, offsets = hunt(buffers, 5, deadline=time.monotonic() + 3600, seed=0, jobs=1)
    assert answer == FOUND
    assert offsets is not None
    least = least_capacity(buffers, 6)
    assert least is not None
    assert hunt(buffers, least - 1, deadline=time.monotonic() + 3600, seed=0, jobs=1)[0] == EXHAUSTED


def test_the_answer_depends_on_the_seed_and_nothing_else() -> None:
    buffers = without_slack(3, pieces=60)
    answers = [searched(buffers, 64, seed=seed, jobs=jobs) for seed, jobs in [(0, 1), (0, 2), (0, 1), (5, 1), (5, 2)]]
    assert answers[0] == answers[1] == answers[2]
    assert answers[3] == answers[4]
    assert all(check_packing(buffers, a.offsets, 64) == [] for a in answers)


def test_search_is_needed_and_does_it() -> None:
    buffers = without_slack(3, pieces=60)
    assert minimize_peak(buffers).peak > 64
    assert minimize_peak(buffers, time_limit=3600.0).peak == 64


def test_an_expired_limit_is_unknown() -> None:
    assert pack(without_slack(3, pieces=60), 64, time_limit=0.0).status == "unknown"


def test_live_above_capacity_names_instant_and_buffers() -> None:
    buffers = [Buffer("w", 0, 9, 40), Buffer("x", 1, 4, 30), Buffer("y", 3, 6, 31), Buffer("z", 6, 9, 50)]
    packing = searched(buffers, 100)
    assert packing.status == "infeasible"
    assert packing.witness is not None
    assert (packing.witness.reason, packing.witness.instant, packing.witness.needed) == ("live", 3, 101)
    assert packing.witness.buffers == ("w", "x", "y")
    assert str(packing.witness) == "101 units alive at 3, capacity 100: w, x, y"


def test_full_everywhere_and_yet_impossible() -> None:
    """Live never exceeds 4, but x must stay where it is while a and b change sides around it."""
    buffers = [
        Buffer("a", 0, 2, 2, offset=0),
        Buffer("b", 1, 3, 2, offset=0),
    ]
    packing = searched(buffers, 4)
    assert packing.witness is not None
    assert packing.witness.reason == "pins"
    assert set(packing.witness.buffers) == {"a", "b"}


def test_exhausted_search_is_a_proof() -> None:
    """Alignment alone: 3 + 3 units fit 7, but not at multiples of 4."""
    buffers = [Buffer("a", 0, 1, 3, alignment=4), Buffer("b", 0, 1, 3, alignment=4)]
    packing = searched(buffers, 6)
    assert packing.status == "infeasible"
    assert packing.witness is not None
    assert packing.witness.reason == "search"
    assert packing.lower_bound == 7
    assert searched(buffers, 7).offsets in ({"a": 0, "b": 4}, {"a": 4, "b": 0})


def test_reuse_saves_the_output() -> None:
    chain = [Buffer(f"t{k}", k, k + 2, 8, reuses=f"t{k - 1}" if k else None) for k in range(5)]
    assert searched(chain, 8).offsets == {f"t{k}": 0 for k in range(5)}
    assert max_live(chain)[0] == 8
    without = [Buffer(b.name, b.lower, b.upper, b.size) for b in chain]
    assert searched(without, 15).status == "infeasible"
    assert searched(without, 16).status == "packed"


def test_two_outputs_cannot_both_take_one_place() -> None:
    buffers = [Buffer("x", 0, 2, 8), Buffer("y", 1, 3, 8, reuses="x"), Buffer("z", 1, 3, 8, reuses="x")]
    assert max_live(buffers)[0] == 16
    assert searched(buffers, 15).status == "infeasible"
    assert searched(buffers, 16).status == "packed"


def test_reuse_is_declined_where_it_does_not_fit() -> None:
    """y could lie in x, but x is pinned where z will be while y is still alive."""
    buffers = [Buffer("x", 0, 2, 4, offset=0), Buffer("y", 1, 4, 4, reuses="x"), Buffer("z", 2, 4, 4, offset=0)]
    packing = searched(buffers, 8)
    assert packing.offsets == {"x": 0, "y": 4, "z": 0}


def test_a_pin_that_reaches_the_input_counts_against_the_capacity() -> None:
    """Sharing would put x, two units, at y's pin: 2 to 4. Beside it, it fits in three."""
    buffers = [Buffer("x", 0, 1, 2), Buffer("y", 0, 1, 1, offset=2, reuses="x")]
    answer, offsets = hunt(buffers, 3, deadline=time.monotonic() + 3600, seed=0, jobs=1)
    assert answer == FOUND
    assert offsets is not None
    assert offsets.tolist() == [0, 2]


def test_nothing_to_pack() -> None:
    assert pack([], 0).status == "packed"
    assert pack([Buffer("empty", 0, 1, 0)], 0).offsets == {"empty": 0}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: [Buffer("a", 3, 3, 1)], "lifetime is empty"),
        (lambda: [Buffer("a", 0, 1, -1)], "size is at least 0"),
        (lambda: [Buffer("a", 0, 1, 1, alignment=0)], "alignment at least 1"),
        (lambda: [Buffer("a", 0, 1, 1, alignment=4, offset=6)], "multiple of its alignment"),
        (lambda: [Buffer("a", 0, 1, 1), Buffer("a", 1, 2, 1)], "two buffers have this name"),
        (lambda: [Buffer("a", 0, 1, 1, reuses="b")], "no buffer has that name"),
        (lambda: [Buffer("a", 0, 1, 1, reuses="a")], "the buffer itself"),
        (lambda: [Buffer("a", 0, 2, 1), Buffer("b", 1, 3, 2, reuses="a")], "too large"),
        (lambda: [Buffer("a", 0, 4, 1), Buffer("b", 1, 3, 1, reuses="a")], "does not follow"),
        (lambda: [Buffer("a", 0, 1, 2**62)], "too large for exact"),
    ],
)
def test_contradictions_are_refused(make: object, complaint: str) -> None:
    with pytest.raises(PackError, match=complaint):
        pack(make(), 10)  # type: ignore[operator]
