"""The parts of an input gradient, put together by NumPy, against the adjoint by its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution.input_gradient import Phase, complete, phases
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem

Array = NDArray[Any]


@st.composite
def problems(draw: st.DrawFn) -> ConvolutionProblem:
    r, s = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    stride, dilation = (tuple(draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))) for _ in range(2))
    padding = tuple(draw(st.integers(-2, 8)) for _ in range(4))
    extents = []
    for axis, taps in enumerate((r, s)):
        before, after = padding[2 * axis : 2 * axis + 2]
        least = max(1, (taps - 1) * dilation[axis] + 1 - before - after, 1 - before, 1 - after)
        extents.append(draw(st.integers(least, least + 7)))
    return ConvolutionProblem(2, *extents, 4, 2, r, s, stride, dilation, padding)  # type: ignore[arg-type]


def places(problem: ConvolutionProblem) -> list[tuple[int, int, int, int, int, int]]:
    """Every (p, q, r, s, y, x): output (p, q) reads input (y, x) under tap (r, s)."""
    top, _, left, _ = problem.padding
    return [
        (p, q, r, s, y, x)
        for p in range(problem.p)
        for q in range(problem.q)
        for r in range(problem.r)
        for s in range(problem.s)
        if 0 <= (y := p * problem.stride[0] + r * problem.dilation[0] - top) < problem.h
        and 0 <= (x := q * problem.stride[1] + s * problem.dilation[1] - left) < problem.w
    ]


def adjoint(problem: ConvolutionProblem, dy: Array, w: Array) -> Array:
    """dx[n, y, x, group c'] = sum of dy[n, p, q, group k] w[group k, r, s, c']."""
    dx = np.zeros((problem.n, problem.h, problem.w, problem.groups, problem.width), np.int64)
    for p, q, r, s, y, x in places(problem):
        dx[:, y, x] += np.einsum("ngk,gkj->ngj", dy[:, p, q], w[:, :, r, s])
    return dx


def walk(phase: Phase, dy: Array, w: Array) -> Array:
    """What the forward kernel does with a phase: weights transposed, stored taps first + i * step."""
    problem, taps = phase.problem, phase.taps
    y = np.zeros((problem.n, problem.p, problem.q, problem.groups, problem.width), np.int64)
    for p, q, r, s, at, left in places(problem):
        stored = w[:, :, taps.row_first + r * taps.row_step, taps.column_first + s * taps.column_step]
        y[:, p, q] += np.einsum("ngk,gkj->ngj", dy[:, at, left], stored)
    return y


@settings(max_examples=150)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_parts_are_the_whole(problem: ConvolutionProblem, seed: int) -> None:
    random = np.random.default_rng(seed)
    dy = random.integers(-9, 10, (problem.n, problem.p, problem.q, problem.groups, problem.width))
    w = random.integers(-9, 10, (problem.groups, problem.width, problem.r, problem.s, problem.width))
    dx = np.zeros((problem.n, problem.h, problem.w, problem.groups, problem.width), np.int64)
    written = np.zeros((problem.h, problem.w), int)
    for phase in phases(problem):
        part = slice(phase.rows.first, None, phase.rows.step), slice(phase.columns.first, None, phase.columns.step)
        dx[:, part[0], part[1]] = walk(phase, dy, w)
        written[part] += 1
        assert phase.problem.stride == (1, 1)
        assert (phase.problem.h, phase.problem.w) == (problem.p, problem.q)
    np.testing.assert_array_equal(dx, adjoint(problem, dy, w))
    assert written.max(initial=0) <= 1
    assert complete(problem) == bool((written == 1).all())


def test_stride_one_is_one_flipped_convolution() -> None:
    problem = ConvolutionProblem(8, 28, 28, 64, 8, 3, 5, padding=(1, 1, 2, 2))
    (phase,) = phases(problem)
    assert phase.problem == problem
    assert (phase.taps.row_first, phase.taps.row_step, phase.taps.column_first) == (2, -1, 4)
    assert complete(problem)


def test_a_part_is_a_tensor_of_its_own() -> None:
    problem = ConvolutionProblem(2, 9, 9, 8, 1, 3, 3, stride=(2, 2), padding=(1, 1, 1, 1))
    dx = View.dense(0x1000, problem.input_shape, "f16")
    views = [phase.output(dx) for phase in phases(problem)]
    assert [view.shape for view in views] == [(2, 5, 5, 8), (2, 5, 4, 8), (2, 4, 5, 8), (2, 4, 4, 8)]
    assert [view.pointer - 0x1000 for view in views] == [0, 16, 144, 160]
    assert {view.strides for view in views} == {(648, 144, 16)}


def test_stride_two_with_dilation_two_leaves_rows_untouched() -> None:
    problem = ConvolutionProblem(1, 8, 8, 8, 1, 3, 3, stride=(2, 1), dilation=(2, 1), padding=(2, 2, 1, 1))
    assert [phase.rows.first for phase in phases(problem)] == [0]
    assert not complete(problem)
