"""The walk of an input gradient over dy, made by NumPy, against the adjoint by its definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution.input_gradient import Walk, walk
from tapestry.kernels.convolution.launch import Taps
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


def walked(found: Walk, dy: Array, w: Array) -> Array:
    """What the forward kernel does: the outputs [n, row, column, group, channel] of all cells."""
    problem, taps = found.problem, found.taps
    rows, columns = problem.cell
    out = np.zeros((problem.n, problem.p * rows, problem.q * columns, problem.groups, problem.width), np.int64)
    for p, q, r, s, at, left in places(problem):
        for a, b in product(range(rows), range(columns)):
            row, column = taps.rows.tap(a, r), taps.columns.tap(b, s)
            if row is not None and column is not None:
                out[:, p * rows + a, q * columns + b] += np.einsum(
                    "ngk,gkj->ngj", dy[:, at, left], w[:, :, row, column]
                )
    return out


@settings(max_examples=150)
@given(problems(), st.integers(0, 2**32 - 1))
def test_the_walk_is_the_gradient(problem: ConvolutionProblem, seed: int) -> None:
    random = np.random.default_rng(seed)
    dy = random.integers(-9, 10, (problem.n, problem.p, problem.q, problem.groups, problem.width))
    w = random.integers(-9, 10, (problem.groups, problem.width, problem.r, problem.s, problem.width))
    found = walk(problem)
    out = walked(found, dy, w)
    dx = out[:, : problem.h, : problem.w]
    np.testing.assert_array_equal(dx, adjoint(problem, dy, w))
    assert (found.problem.h, found.problem.w) == (problem.p, problem.q)


@given(problems())
def test_windows_are_half_as_long_as_the_filter(problem: ConvolutionProblem) -> None:
    """Half as many places as taps (one more for some even filters); cells cover dx; every tap is met by one parity."""
    found = walk(problem)
    steps = zip((problem.r, problem.s), problem.stride, problem.dilation, strict=True)
    sizes = zip(
        (found.problem.r, found.problem.s), (found.problem.p, found.problem.q), (problem.h, problem.w), strict=True
    )
    lines = (found.taps.rows, found.taps.columns)
    for (taps, stride, dilation), (window, cells, extent), line in zip(steps, sizes, lines, strict=True):
        assert window in ({taps} if stride == 1 or dilation == 2 else {(taps + 1) // 2, taps // 2 + 1})
        assert extent <= cells * stride < extent + stride
        met = [line.tap(a, t) for a, t in product(range(stride), range(window))]
        assert sorted(tap for tap in met if tap is not None) == list(range(taps))


def test_stride_one_is_one_flipped_convolution() -> None:
    problem = ConvolutionProblem(8, 28, 28, 64, 8, 3, 5, padding=(1, 1, 2, 2))
    assert walk(problem) == Walk(problem, Taps.flipped(3, 5))


def test_a_strided_gradient_is_walked_in_cells() -> None:
    problem = ConvolutionProblem(2, 9, 9, 8, 1, 3, 3, stride=(2, 2), padding=(1, 1, 1, 1))
    found = walk(problem)
    assert found.problem == ConvolutionProblem(2, 5, 5, 8, 1, 2, 2, padding=(0, 1, 0, 1), cell=(2, 2), taps=(3, 3))
    # Row 2i meets the middle tap at dy row i, row 2i + 1 the last tap there and the first one at i + 1.
    assert [[found.taps.rows.tap(a, t) for t in (0, 1)] for a in (0, 1)] == [[1, None], [2, 0]]


def test_stride_two_with_dilation_two_has_parities_without_taps() -> None:
    problem = ConvolutionProblem(1, 8, 8, 8, 1, 3, 3, stride=(2, 1), dilation=(2, 1), padding=(2, 2, 1, 1))
    taps = walk(problem).taps.rows
    assert [[taps.tap(a, t) for t in range(3)] for a in (0, 1)] == [[2, 1, 0], [None] * 3]
