"""Which runs follow each other, and for which problems there are runs over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapestry.planner.solvers.pack import Buffer
from tapestry.planner.solvers.pack.groups import Group, grouped
from tapestry.planner.solvers.pack.portfolio import Arrangement, RunByOrder, RunByPlace, RunOverTime
from tapestry.planner.solvers.pack.search import STOPPED

from .problems import without_slack


def groups_of(buffers: list[Buffer], *shared: tuple[int, int]) -> list[Group]:
    groups = grouped(buffers, list(shared))
    assert groups is not None
    return groups


def manners(buffers: list[Buffer], capacity: int, *shared: tuple[int, int]) -> list[type]:
    arrangement = Arrangement(buffers, groups_of(buffers, *shared), capacity)
    return [type(arrangement.next_run(seed=0)) for _ in range(13)]


def test_after_the_plain_orders_every_other_run_is_over_time() -> None:
    turns = [RunOverTime, RunByPlace, RunOverTime, RunByOrder]
    assert manners(without_slack(1, pieces=40), 64) == [RunByPlace] * 5 + turns * 2


def test_runs_below_the_capacity_are_of_all_manners_too() -> None:
    assert {RunByPlace, RunOverTime} <= set(manners(without_slack(1, pieces=40), 80)[10:])


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, offset=0) if b.name == "b0" else b,
        lambda b: replace(b, alignment=7) if b.name == "b0" else b,
    ],
)
def test_pins_and_places_between_sums_of_sizes_are_for_other_searches(change: object) -> None:
    assert callable(change)
    buffers = [change(b) for b in without_slack(1, pieces=40)]
    assert manners(buffers, 64) == [RunByPlace] * 5 + [RunByPlace, RunByOrder] * 4


def test_what_shares_a_place_is_one_item_where_its_height_stays() -> None:
    """An output of its input's size is the input for longer; a smaller one leaves a step."""
    chain = [Buffer("a", 0, 3, 4), Buffer("b", 2, 6, 4, reuses="a"), Buffer("c", 0, 6, 4)]
    assert RunOverTime in manners(chain, 8, (0, 1))
    assert RunOverTime not in manners([chain[0], replace(chain[1], size=2), chain[2]], 8, (0, 1))


@pytest.mark.parametrize("number", [0, 5, 8])
def test_a_stopped_run_ends_without_a_word(number: int) -> None:
    buffers = without_slack(1, pieces=40)
    arrangement = Arrangement(buffers, groups_of(buffers), 64)
    run = [arrangement.next_run(seed=0) for _ in range(number + 1)][-1]
    run.stop()
    assert run() == STOPPED
