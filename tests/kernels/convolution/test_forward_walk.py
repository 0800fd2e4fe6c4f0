"""The rows and columns of the input that a forward pass walks, against the definition of the convolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tapestry.kernels.convolution.forward_walk import walk
from tapestry.kernels.convolution.launch import ALL, Every, Taps, View, Walk
from tapestry.kernels.convolution.problem import ConvolutionProblem

from .test_direct import forward
from .test_input_gradient import places, problems


@given(problems())
def test_the_walk_is_the_convolution(problem: ConvolutionProblem) -> None:
    """Over the part of the input that it reads, with half the steps."""
    random = np.random.default_rng(problem.h * problem.w)
    x, w = random.integers(-9, 10, problem.input_shape), random.integers(-9, 10, problem.weight_shape)
    found = walk(problem)
    part = x[:, found.rows.first :: found.rows.step, found.columns.first :: found.columns.step]
    assert part.shape == found.problem.input_shape
    assert found.taps == Taps.plain(problem.r, problem.s)
    np.testing.assert_array_equal(forward(found.problem, part, w), forward(problem, x, w))


@given(problems())
def test_what_is_left_out_is_met_by_no_window(problem: ConvolutionProblem) -> None:
    found = walk(problem)
    steps = zip((problem.r, problem.s), problem.stride, problem.dilation, (problem.h, problem.w), strict=True)
    for (taps, stride, dilation, extent), every, axis in zip(steps, (found.rows, found.columns), (4, 5), strict=True):
        between = stride == 2 and (taps == 1 or dilation == 2)
        assert every.step == (2 if between and not (extent == 1 and every == ALL) else 1)
        assert {place[axis] % every.step for place in places(problem)} <= {every.first}


def test_a_view_of_every_second_row_and_column() -> None:
    problem = ConvolutionProblem(2, 9, 8, 16, 2, 1, 1, stride=(2, 2), padding=(1, 1, 0, 0))
    found = walk(problem)
    assert found == Walk(
        ConvolutionProblem(2, 4, 4, 16, 2, 1, 1, padding=(1, 1, 0, 0)), Taps.plain(1, 1), Every(2, 1), Every(2, 0)
    )
    x = View.dense(0x1000, problem.input_shape, "f16")
    assert found.read(x) == View(0x1000 + 2 * 8 * 16, (2, 4, 4, 16), (9 * 8 * 16, 2 * 8 * 16, 2 * 16), "f16")


@pytest.mark.parametrize(("size", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (3, 1, 2), (1, 1, 2), (2, 2, 1)])
def test_other_convolutions_are_walked_as_they_are(size: int, stride: int, dilation: int) -> None:
    problem = ConvolutionProblem(8, 28, 28, 64, 8, size, size, (stride,) * 2, (dilation,) * 2, (1, 1, 1, 1))
    assert walk(problem).problem == problem
    assert (walk(problem).rows, walk(problem).columns) == (ALL, ALL)
