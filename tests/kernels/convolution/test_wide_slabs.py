"""Slabs of a filter: every tap and channel that a block wants comes in one of them, and has a place to go."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.convolution import wide_rows
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.wide_rows import octets_apart, swizzled
from tapestry.kernels.convolution.wide_slabs import CELL_PLACE, NOWHERE, Slabs, filter_map, places
from tapestry.kernels.convolution.wide_sweep import Line, ways

from . import emulated

TAPS = st.integers(1, 7)
STEP = st.integers(1, 2)


@st.composite
def lines(draw: st.DrawFn) -> list[Line]:
    """Those of all sweeps of a pass."""
    r, s, pad = draw(TAPS), draw(TAPS), st.integers(0, 3)
    stride, dilation = (draw(STEP), draw(STEP)), (draw(STEP), draw(STEP))
    padding = (draw(pad), draw(pad), draw(pad), draw(pad))
    problem = ConvolutionProblem(1, 16, 15, 32, 2, r, s, stride, dilation, padding)
    what = draw(st.sampled_from(("forward", "input_gradient")))
    sweeps = [part.sweep for way in ways(problem, what) for part in way]
    return [line for sweep in sweeps if not sweep.empty for line in (sweep.rows, sweep.columns)]


@given(found=lines())
def test_every_tap_that_is_met_is_brought_and_goes_where_it_is_met(found: list[Line]) -> None:
    for line in found:
        wanted = {(place, output): line.tap(output, place) for place in range(line.taps) for output in range(line.cell)}
        numbers = [places(line, line.brought) >> 4 * i & 15 for i in range(len(line.brought))]
        gone = {
            (number % CELL_PLACE, number // CELL_PLACE): tap
            for number, tap in zip(numbers, line.brought, strict=True)
            if number != NOWHERE
        }
        assert gone == {at: tap for at, tap in wanted.items() if tap is not None}


@given(
    units=st.integers(1, 4), outer=st.integers(1, 16), inner=st.integers(1, 16), rows=TAPS, columns=TAPS,
    room=st.integers(8, 600),
)  # fmt: skip
def test_slabs_fit_their_slots_and_no_larger_ones_would(
    units: int, outer: int, inner: int, rows: int, columns: int, room: int
) -> None:
    found = Slabs(units, outer, inner, (rows, columns), 128 * room)
    ahead = 1024 - 128 if swizzled(inner) and room % 8 else 0
    size = columns * 8 * 16 * octets_apart(inner)
    assert bool(found.octets) == (size + ahead <= found.room)
    if not found.octets:
        return
    assert found.rows * found.octets * size + ahead <= found.room
    assert found.rows == rows or rows * size + ahead > found.room
    # As many slabs as there have to be, of one size: the last of a row of taps is the only one in part.
    assert found.along == -(-outer // found.octets)
    assert found.number == units * found.along * rows // found.rows
    fewer = found.along - 1
    assert not fewer or found.rows * -(-outer // fewer) * size + ahead > found.room
    assert found.bytes <= found.rows * found.octets * size


def test_a_map_has_the_taps_of_a_parity_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated.use_maps(monkeypatch, wide_rows)
    problem = ConvolutionProblem(1, 16, 16, 128, 2, 3, 3, (2, 2), (1, 1), (1, 1, 1, 1))
    sweeps = [part.sweep for part in ways(problem, "input_gradient")[1]]
    assert [(list(sweep.rows.brought), list(sweep.columns.brought)) for sweep in sweeps] == [
        ([1], [1]), ([1], [0, 2]), ([0, 2], [1]), ([0, 2], [0, 2]),
    ]  # fmt: skip
    found = Slabs(1, 8, 8, (1, 2), 1 << 15)
    pointer, *numbers, swizzle = struct.unpack_from("<Q4q4q4ii", filter_map(sweeps[1], found, 4096))
    assert pointer == 4096 + 2 * 3 * 64  # from the second row of taps on
    assert tuple(numbers) == (64, 128, 2, 1, 1, 9 * 64, 2 * 64, 2 * 3 * 64, 64, 64, 2, 1)
    assert swizzle == 128
