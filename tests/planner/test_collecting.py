"""Garbage is looked for rarely while a plan is made, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import Infeasible
from tapestry.planner import plan
from tapestry.planner.collecting import RARELY, collected_rarely


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@tp.program
def net(x: f32[Tensor, "n"]) -> Tensor:
    return tp.exp(x)


@pytest.mark.parametrize("threshold", [(700, 10, 10), (0, 10, 10), (RARELY[0] + 1, 10, RARELY[2] + 1)])
def test_it_is_as_before_afterwards(threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*threshold)
    with collected_rarely():
        first, _, last = gc.get_threshold()
        assert first == (max(RARELY[0], threshold[0]) if threshold[0] else 0)  # 0: never, which stays
        assert last == max(RARELY[2], threshold[2])
    assert gc.get_threshold() == threshold


def test_planning_leaves_it_as_it_was_also_where_there_is_no_plan() -> None:
    gc.set_threshold(701, 11, 12)
    seen: set[int] = set()
    plan(net.bind(n=64), "cpu-4", progress=lambda _: seen.add(gc.get_threshold()[0]))
    assert seen == {RARELY[0]}
    with pytest.raises(Infeasible):
        plan(net.bind(n=1 << 20), "cpu-4", memory="1KiB")
    assert gc.get_threshold() == (701, 11, 12)
