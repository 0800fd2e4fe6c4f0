"""From what tasks took to tables by their shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.machine import ShapeTable
from tapestry.planner.machine.timing import Timing
from tapestry.planner.probe.shapes import below_all, lower_envelope, table_of
from tapestry.planner.probe.sizes import GPU, Grid

GRID = Grid((2, 4), (2, 4), (3, 9))
SHAPES = [shape for shape in product(*GRID.axes) if shape[0] >= shape[1]]


@given(st.lists(st.floats(1e-6, 1.0), min_size=len(SHAPES), max_size=len(SHAPES)))
def test_a_table_never_falls_and_says_no_less_than_was_measured(seconds: list[float]) -> None:
    measured = dict(zip(SHAPES, seconds, strict=True))
    table = table_of("matmul", "f32", GRID, measured)
    assert table is not None
    assert table.fall() is None
    for (m, n, k), took in measured.items():
        assert table.at(m, n, k) == pytest.approx(table.at(n, m, k))
        assert table.at(m, n, k) >= took * (1 - 1e-12)


@given(st.lists(st.floats(1e-6, 1.0), min_size=8, max_size=8))
def test_a_table_of_convolutions_says_what_was_measured(seconds: list[float]) -> None:
    """A library may have a quicker kernel for more channels."""
    measured = dict(zip(product(*GRID.axes), seconds, strict=True))
    table = table_of("conv", "f32", replace(GRID, window=9), measured)
    assert table is not None
    assert table.window == 9
    for shape, took in measured.items():
        assert table.at(*shape) == took


def test_times_that_rise_stay_what_they_are() -> None:
    measured = {(m, n, k): float(m * n * k) for m, n, k in SHAPES}
    table = table_of("matmul", "f32", GRID, measured)
    assert table is not None
    assert [table.at(*shape) for shape in SHAPES] == list(measured.values())


def test_a_grid_with_a_hole_is_no_table() -> None:
    assert table_of("matmul", "f32", GRID, dict.fromkeys(SHAPES[1:], 1.0)) is None


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(1e-6, 1.0)), min_size=1))
def test_no_sample_is_below_the_envelope(samples: list[tuple[int, float]]) -> None:
    found = lower_envelope(samples)
    assert [seconds for _, seconds in found] == sorted(seconds for _, seconds in found)
    assert all(dict(found)[size] <= seconds for size, seconds in samples)
    assert min(seconds for _, seconds in found) == min(seconds for _, seconds in samples)


@given(
    st.lists(st.floats(1e-6, 1.0), min_size=len(SHAPES), max_size=len(SHAPES)),
    st.tuples(st.floats(2, 4), st.floats(2, 4), st.floats(3, 9)),
)
def test_no_shape_of_a_table_is_below_its_curve(seconds: list[float], shape: tuple[float, float, float]) -> None:
    table = table_of("matmul", "f32", GRID, dict(zip(SHAPES, seconds, strict=True)))
    assert table is not None
    curve = Timing(below_all([(2.0 * m * n * k, took) for (m, n, k), took in zip(SHAPES, seconds, strict=True)]))
    assert curve.seconds(2 * prod(shape)) <= table.at(*shape) * (1 + 1e-9)
    assert [took for _, took in curve.points] == sorted(took for _, took in curve.points)


@pytest.mark.parametrize("name", ["h200", "h200x2", "h200x4", "h200x8", "h200x8-2node"])
def test_no_packaged_shape_of_attention_is_below_its_curve(name: str) -> None:
    """Measured at 4,466 and 2,268 thousand million operations of heads of 128 and 64: one of 128 that does half as much
    as the first had been given what the second takes."""
    for pace in load_machine(name).device.paces:
        curves = {(curve.kernel, curve.dtype): Timing(curve.points) for curve in pace.curves}
        for table in (table for table in pace.shapes if table.kernel == "attention"):
            for shape in between(table):
                assert curves[table.kernel, table.dtype].seconds(4 * prod(shape)) <= table.at(*shape) * 1.001, shape


def between(table: ShapeTable) -> Iterator[tuple[float, ...]]:
    """The shapes that were measured, and those halfway between two sizes."""
    yield from product(*([*axis, *((a + b) / 2 for a, b in pairwise(axis))] for axis in table.axes))


def test_of_two_products_with_their_sides_exchanged_one_is_measured() -> None:
    found = GPU.products_of("bf16")
    assert len(found) == len({(*sorted((m, n)), k) for m, k, n in found}) + sum(
        1 for m, k, n in found if m < n and (n, k, m) in found
    )
    assert found == sorted(found, key=lambda shape: (shape[0] * shape[1] * shape[2], shape))
