"""Packings found over time, checked by code that knows nothing of how they were found."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry.planner.solvers.pack import Buffer
from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.sweep import Sweep, fits_sweep, timeline

from .problems import least_capacity, problems, without_slack


def swept(buffers: list[Buffer], capacity: int, *, backward: bool = False, width: int = 8) -> dict[str, int] | None:
    """Offsets by name; None where nothing was found."""
    sizes = np.array([b.size for b in buffers], np.int64)
    line = timeline([b.lower for b in buffers], [b.upper for b in buffers], sizes, capacity, backward=backward)
    assert fits_sweep(line)
    offsets = Sweep(line, width, None, lambda: False).offsets()
    return None if offsets is None else {b.name: int(at) for b, at in zip(buffers, offsets, strict=True)}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_full_memory_is_packed_at_once(seed: int, backward: bool) -> None:
    buffers = without_slack(seed, pieces=60, height=1024, width=1024)
    found = swept(buffers, 1024, backward=backward)
    assert found is not None
    assert check_packing(buffers, found, 1024) == []


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("seed", range(12))
def test_lifetimes_cut_short_leave_places_that_are_found(seed: int, share: float) -> None:
    source = random.Random(seed)
    buffers = []
    for b in without_slack(seed, pieces=60, height=1024, width=1024):
        lower, upper = b.lower, b.upper
        if source.random() < share:
            lower, upper = sorted((source.randint(lower, upper), source.randint(lower, upper)))
        if lower < upper:
            buffers.append(Buffer(b.name, lower, upper, b.size))
    ways = [swept(buffers, 1024, backward=backward, width=32) for backward in (False, True)]
    found = next((way for way in ways if way is not None), None)
    assert found is not None
    assert check_packing(buffers, found, 1024) == []


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("count", [4, 8, 20])
@pytest.mark.parametrize("leave", [0, 2])
def test_one_takes_many_places_left_one_after_another(count: int, spare: int, leave: int, backward: bool) -> None:
    sizes = [2 * k + 3 for k in range(count)]
    parts = [Buffer(f"part {k}", 0, 10 + k, size) for k, size in enumerate(sizes)]
    wide = [Buffer("wide", 50, 60, sum(sizes[leave:]) - spare), *(Buffer(f"left {k}", 50, 60, 5) for k in range(leave))]
    buffers = [*parts, Buffer("kept", 0, 60, 7), *wide]
    capacity = sum(sizes) + 7 + (leave == 2) * 2
    if backward:
        buffers = [Buffer(b.name, 60 - b.upper, 60 - b.lower, b.size) for b in buffers]
    found = swept(buffers, capacity)
    assert found is not None
    assert check_packing(buffers, found, capacity) == []


def pinwheel(lower: int, upper: int, low: int, high: int) -> list[tuple[int, int, int, int]]:
    """Five pieces of a rectangle, around one in the middle, that no cut from side to side tells apart."""
    a, b = lower + (upper - lower) // 3, lower + 2 * (upper - lower) // 3
    c, d = low + (high - low) // 3, low + 2 * (high - low) // 3
    return [(lower, b, low, c), (b, upper, low, d), (a, upper, d, high), (lower, a, c, high), (a, b, c, d)]


@pytest.mark.parametrize("backward", [False, True])
def test_pieces_that_no_cut_from_side_to_side_parts(backward: bool) -> None:
    pieces = [small for big in pinwheel(0, 999, 0, 998) for small in pinwheel(*big)]
    buffers = [Buffer(str(k), lower, upper, high - low) for k, (lower, upper, low, high) in enumerate(pieces)]
    found = swept(buffers, 998, backward=backward, width=64)
    assert found is not None
    assert check_packing(buffers, found, 998) == []


@settings(max_examples=200, deadline=None)
@given(problems())
def test_what_is_found_is_a_packing(buffers: list[Buffer]) -> None:
    plain = [Buffer(b.name, b.lower, b.upper, b.size) for b in buffers if b.size]
    least = least_capacity(plain, 25)
    for capacity in range(0 if least is None else least - 1, 0 if least is None else least + 2):
        found = swept(plain, capacity) if plain and capacity >= max(b.size for b in plain) else None
        assert found is None or check_packing(plain, found, capacity) == []
