"""Stretches of rows, against a walk over single rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.convolution.stretches import SPARED, evenest, rows_of_busiest


def walked(line: int, height: int, stretches: int, stride: int, shared: int) -> float:
    """Rows of the busiest stretch: those under each met row, and half of what is shared where a neighbour of a met row,
    of the same image, is another stretch's."""
    owner = [number for number in range(stretches) for _ in range(line // stretches + (number < line % stretches))]
    rows = [0.0] * stretches
    for row in range(line):
        beside = [other for other in (row - 1, row + 1) if 0 <= other < line and other // height == row // height]
        rows[owner[row]] += stride + sum(owner[other] != owner[row] for other in beside) * shared / 2
    return max(rows)


lines = st.tuples(st.integers(1, 6), st.integers(1, 9)).map(lambda both: (both[0] * both[1], both[1]))


@given(lines, st.integers(1, 20), st.integers(1, 2), st.integers(0, 6))
def test_rows_of_the_busiest_are_counted(line: tuple[int, int], most: int, stride: int, shared: int) -> None:
    count = min(most, line[0])
    assert rows_of_busiest(*line, count, stride, shared) == walked(*line, count, stride, shared)


@given(lines, st.integers(1, 20), st.integers(1, 2), st.integers(0, 6))
def test_no_other_number_leaves_the_busiest_less(line: tuple[int, int], most: int, stride: int, shared: int) -> None:
    most = min(most, line[0])
    count, rows = evenest(*line, most, stride, shared)
    others = {other: walked(*line, other, stride, shared) for other in range(most - most // SPARED, most + 1)}
    assert rows == others[count] == min(others.values())
    assert all(others[other] > rows for other in others if other > count)  # as many as do as well


@pytest.mark.parametrize(
    ("line", "height", "most", "found"),
    [(224, 14, 18, (16, 14)), (896, 28, 33, (32, 28)), (3584, 56, 132, (132, 29)), (7, 7, 1, (1, 7))],
)
def test_cuts_fall_between_images_where_that_leaves_less(
    line: int, height: int, most: int, found: tuple[int, float]
) -> None:
    assert evenest(line, height, most, 1, 2) == found
