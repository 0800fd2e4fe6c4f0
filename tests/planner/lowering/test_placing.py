"""Addresses of buffers: where the quick orders need more than there is, the packing solver searches."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from tapestry.planner.lowering.memory import ALIGN, Arena, Lifetime, Linger, packed
from tapestry.planner.solvers.pack import Buffer, minimize_peak

pytestmark = pytest.mark.long


class Slot:
    """All that placing asks of a slot is which one it is."""


def lifetimes(seed: int) -> list[Lifetime]:
    """Some buffers of whole units of alignment, alive for some of fourteen steps, and one for the whole run."""
    draw = random.Random(seed)
    spans = [
        (first, first + draw.randint(1, 7) - 1) for first in (draw.randint(0, 14) for _ in range(draw.randint(20, 40)))
    ]
    slots: list[Any] = [Slot() for _ in range(len(spans) + 1)]
    resident = Lifetime(slots[-1], -1, 22, 3 * ALIGN)
    moving = [Lifetime(slot, *span, ALIGN * draw.randint(1, 12)) for slot, span in zip(slots, spans, strict=False)]
    return [*moving, resident]


def least(alive: list[Lifetime]) -> int:
    """The most bytes alive at one step: no arena is smaller."""
    return max(sum(life.nbytes for life in alive if life.first <= step <= life.last) for step in range(23))


def quick(alive: list[Lifetime]) -> int:
    """The peak of the quick orders alone."""
    moving = [life for life in alive if life.first >= 0]
    buffers = [Buffer(str(k), life.first, life.last + 1, life.nbytes, alignment=ALIGN) for k, life in enumerate(moving)]
    return minimize_peak(buffers).peak + 3 * ALIGN


def apart(arena: Arena) -> bool:
    """No two buffers that are alive at one step share a byte."""
    return not any(
        one.first <= other.last
        and other.first <= one.last
        and arena.offsets[id(one.slot)] < arena.offsets[id(other.slot)] + other.nbytes
        and arena.offsets[id(other.slot)] < arena.offsets[id(one.slot)] + one.nbytes
        for one, other in combinations(arena.lifetimes, 2)
    )


HARD = [seed for seed in range(120) if quick(lifetimes(seed)) > least(lifetimes(seed))]


def test_quick_orders_are_not_always_enough() -> None:
    assert HARD


@pytest.mark.parametrize("seed", HARD[:8])
def test_what_fits_only_after_search_is_placed(seed: int) -> None:
    alive = lifetimes(seed)
    arena = packed(alive, 22, least(alive), [Linger(0, set())])
    assert arena.peak <= least(alive) < quick(alive)
    assert apart(arena)
    assert all(offset % ALIGN == 0 for offset in arena.offsets.values())


@pytest.mark.parametrize("seed", HARD[:4])
def test_what_fits_in_no_way_keeps_the_quick_answer(seed: int) -> None:
    alive = lifetimes(seed)
    arena = packed(alive, 22, least(alive) - ALIGN, [Linger(0, set())])
    assert arena.peak == quick(alive)
    assert apart(arena)


def test_the_same_buffers_get_the_same_places() -> None:
    first, again = (packed(lifetimes(HARD[0]), 22, least(lifetimes(HARD[0])), [Linger(0, set())]) for _ in range(2))
    assert [*first.offsets.values()] == [*again.offsets.values()]
