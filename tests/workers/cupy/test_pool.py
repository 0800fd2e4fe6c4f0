"""What torch allocates lies in the workspace of the plan."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.gemm import WORKSPACE
from tapestry.workers.cupy.pool import ALIGN, Segments

MIB = 1 << 20


def room(nbytes: int, at: int = 1 << 40) -> DeviceArray:
    return DeviceArray(Memory(at, nbytes, None), 0, (nbytes,), np.dtype(np.uint8))


def elsewhere(given: list[int], nbytes: int) -> Memory:
    given.append(nbytes)
    return Memory((1 << 50) + (len(given) << 40), nbytes, None)


@given(st.integers(1 << 40, (1 << 40) + 2 * ALIGN), st.lists(st.integers(1, 5000), max_size=12))
def test_segments_lie_apart_in_the_array_or_elsewhere(at: int, sizes: list[int]) -> None:
    beside: list[int] = []
    segments = Segments(partial(elsewhere, beside), room(8192, at))
    places = [(segments.allocate(n), n) for n in sizes]
    inside = sorted((place, n) for place, n in places if place < 1 << 50)
    assert len(inside) + len(beside) == len(sizes)
    assert all(place % ALIGN == 0 and at <= place and place + n <= at + 8192 for place, n in inside)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(inside))


def test_what_torch_gives_back_is_there_again() -> None:
    segments = Segments(partial(elsewhere, []), room(4096))
    first, second = segments.allocate(3000), segments.allocate(1000)
    segments.free(first)
    segments.free(second)
    assert segments.allocate(4096) == first


def test_where_there_is_no_memory_torch_is_told_so() -> None:
    def none(nbytes: int) -> Memory:
        raise MemoryError(nbytes)

    assert Segments(none, room(10)).allocate(11) == 0


def segment_bytes(sizes: list[int]) -> int:
    """What torch asks for so many results that are there together, by the rules of its allocator, without splitting."""
    small, middle = [n for n in sizes if n <= MIB], [n for n in sizes if MIB < n <= 10 * MIB]
    large = [n for n in sizes if n > 10 * MIB]
    shared = [
        2 * MIB * -(-sum(small) // MIB) if small else 0,
        20 * MIB * -(-sum(middle) // (10 * MIB)) if middle else 0,
    ]
    return sum(shared) + sum(-(-n // (2 * MIB)) * 2 * MIB for n in large)


@given(st.integers(1, 16384), st.integers(1, 64), st.sampled_from([64, 128]), st.integers(1, 2))
def test_the_workspace_holds_what_the_library_gives_of_an_attention(
    rows: int, heads: int, width: int, parts: int
) -> None:
    """Values of 16 bits and logs, beside what a product works in that reads them; a state is wider than both."""
    given = [rows * heads * width * 2] * parts + [rows * heads * 4] * parts
    wanted = load_machine("h200").device.workspace_bytes("attention", rows * heads * (width + 2) * 4)
    assert WORKSPACE + segment_bytes(given) + ALIGN <= wanted
