"""Ranges of keys of one shape that lie evenly are one call of a library."""

from __future__ import annotations

import pytest

from tapestry.dtypes import numpy_dtype
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.batched import asked_of
from tapestry.workers.cupy.machine import Attention, Heads, Keys

ROWS, HEADS, GROUPS, WIDTH = 16, 4, 2, 64
BF16 = numpy_dtype("bf16")


def chunk(row: int, first_key: int, *parts: Keys, batches: int = 1, rows: int = ROWS) -> Attention:
    """Queries from a row on, of all keys from one on."""

    def lying(pointer: int, row: int, heads: int, count: int) -> Heads:
        array = DeviceArray(Memory(pointer, 2 * count * heads * WIDTH, None), 0, (count, heads, WIDTH), BF16)
        return Heads(array, row * heads * WIDTH, count * heads * WIDTH, heads * WIDTH, WIDTH)

    query, key, value = (
        lying(512, row, HEADS, 2 * ROWS),
        *(lying(at, first_key, GROUPS, 64) for at in (1 << 20, 2 << 20)),
    )
    return Attention(query, key, value, query, batches, rows, HEADS, GROUPS, WIDTH, 0.125, parts)


def test_both_halves_of_a_zigzag_see_their_own_keys_in_one_call() -> None:
    """Early rows 0:16 of 64 and late rows 48:64, stored one after the other; the late ones see 48 keys more, all."""
    own, before = Keys(0, ROWS, True), Keys(0, 48, False)
    calls = asked_of([chunk(0, 0, own), chunk(ROWS, 0, before, Keys(48, ROWS, True))])
    assert [(one.batches, one.members, one.part.causal) for one in calls] == [
        (2, ((0, 0), (1, 1)), True),
        (1, ((1, 0),), False),
    ]
    [both, _] = calls
    assert (both.query.offset, both.query.batch) == (0, ROWS * HEADS * WIDTH)
    assert (both.key.offset, both.key.batch) == (0, 48 * GROUPS * WIDTH)
    assert both.value.batch == both.key.batch


@pytest.mark.parametrize(
    "other",
    [
        chunk(ROWS, 0, Keys(0, ROWS, False)),  # sees all keys of its range
        chunk(ROWS, 0, Keys(0, ROWS + 1, True)),
        chunk(ROWS, 0, Keys(16, ROWS, True), rows=ROWS - 1),
        chunk(ROWS, 0, Keys(0, ROWS, True)),  # the very same keys: there is no step between them
        chunk(ROWS, 0, Keys(16, ROWS, True), batches=2),
    ],
)
def test_what_differs_is_a_call_of_its_own(other: Attention) -> None:
    calls = asked_of([chunk(0, 0, Keys(0, ROWS, True)), other])
    assert [one.members for one in calls] == [((0, 0),), ((1, 0),)]


def test_what_does_not_lie_evenly_is_not_one_call() -> None:
    own = (chunk(row, 0, Keys(key, 8, True), rows=8) for row, key in ((0, 0), (8, 8), (16, 40)))
    assert [one.batches for one in asked_of([*own])] == [1, 1, 1]
