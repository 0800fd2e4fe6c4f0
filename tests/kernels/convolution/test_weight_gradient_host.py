"""The weight gradient's very text, run on the host against NumPy.

`tests/kernels/emulation` runs whole blocks of threads with lanes as fibers in a random order: the walk over the rows,
the ring and its barriers, the swizzles, the fragments and the fold are checked where there is no GPU.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import weight_gradient
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient import Launch
from tapestry.kernels.convolution.weight_gradient_configuration import Cut
from tapestry.kernels.convolution.weight_gradient_configuration import WeightGradientConfiguration as Configuration
from tapestry.kernels.convolution.weight_gradient_shard import Term, all_splits, terms

from .. import host_compiler
from . import emulated

pytestmark = pytest.mark.long

Array = NDArray[Any]
host_compiler.compiler()


Kind = emulated.Kind[Configuration]
KINDS = [  # block, parts, units, images, out_blocks, share, stages, residents, splits
    Kind(Configuration(32, 1, 2, 1, 1, 1, 3, 1, 1), 3, 3),
    Kind(Configuration(16, 1, 2, 2, 1, 2, 4, 1, 1), 3, 3, dtype="bf16"),
    Kind(Configuration(8, 1, 4, 1, 1, 2, 3, 1, 1), 3, 4, stride=(2, 2)),
    Kind(Configuration(16, 1, 1, 4, 1, 1, 3, 1, 1), 2, 5, width=4, stride=(1, 2), dilation=(2, 1)),
    Kind(Configuration(24, 1, 2, 2, 1, 2, 3, 1, 1, flat=True), 3, 3, width=1, dtype="bf16"),
    Kind(Configuration(16, 1, 4, 1, 1, 1, 3, 1, 1, flat=True), 5, 5, width=4, stride=(2, 2)),
    Kind(Configuration(32, 2, 2, 1, 2, 1, 3, 1, 1), 5, 2, width=32, stride=(2, 1)),
    Kind(Configuration(0, 1, 0, 0, 0, 0, 0, 0, 1), 3, 2, width=2, stride=(2, 1), dilation=(2, 2)),
    # One launch: one split, and clusters of splits.
    Kind(Configuration(32, 1, 2, 1, 1, 1, 3, 1, 1, True), 3, 3),
    Kind(Configuration(16, 1, 2, 2, 1, 2, 4, 1, 4, True), 3, 3, dtype="bf16"),
    Kind(Configuration(8, 1, 4, 1, 1, 2, 3, 1, 8, True), 3, 4, stride=(2, 2)),
    Kind(Configuration(24, 1, 4, 1, 1, 2, 3, 1, 4, True, True), 3, 3),
    Kind(Configuration(16, 1, 1, 4, 1, 1, 3, 1, 3, True), 2, 5, width=4, stride=(1, 2), dilation=(2, 1)),
    Kind(Configuration(32, 2, 2, 1, 2, 1, 3, 1, 2, True), 5, 2, width=32, stride=(2, 1)),
    Kind(Configuration(0, 1, 0, 0, 0, 0, 0, 0, 1, True), 3, 2, width=2, stride=(2, 1), dilation=(2, 2)),
    Kind(Configuration(0, 1, 0, 0, 0, 0, 0, 0, 1, True), 1, 3, width=16, dtype="bf16"),
]


def library(kind: Kind, chosen: Configuration) -> ctypes.CDLL:
    """The kernels of a cut; how many splits there are is in the source only where they add together."""
    return built(kind, chosen if chosen.together else replace(chosen, splits=1))


@functools.cache
def built(kind: Kind, chosen: Configuration) -> ctypes.CDLL:
    problem = kind.problem(1, 30, 16, 64, (0, 0, 0, 0))
    text = weight_gradient.source(problem, chosen)
    names = {name for partial in (False, True) for name in weight_gradient.kernel_names(chosen, partial)}
    return host_compiler.emulated(text, *sorted(names))


def run_launch(entry: Callable[..., bytes], launch: Launch, seed: int) -> None:
    _, cluster, _ = emulated.three(launch.cluster)
    emulated.start(entry, launch.grid, launch.block, launch.arguments, seed, cluster)


def expected(problem: ConvolutionProblem, x: Array, dy: Array) -> Array:
    """The definition in f64, tap by tap, x padded by zeros (or cut)."""
    top, _, left, _ = problem.padding
    n, p, q = problem.n, problem.p, problem.q
    dw = np.zeros(problem.weight_shape)
    upstream = dy.astype(np.float64).reshape(n, p, q, problem.groups, problem.width)
    for r in range(problem.r):
        for s in range(problem.s):
            ys = np.arange(p) * problem.stride[0] + r * problem.dilation[0] - top
            xs = np.arange(q) * problem.stride[1] + s * problem.dilation[1] - left
            inside = ((ys >= 0) & (ys < problem.h))[:, None] & ((xs >= 0) & (xs < problem.w))[None, :]
            seen = x.astype(np.float64)[:, ys.clip(0, problem.h - 1)][:, :, xs.clip(0, problem.w - 1)]
            seen = np.where(inside[None, :, :, None], seen, 0.0).reshape(n, p, q, problem.groups, problem.width)
            dw[:, r, s] = np.einsum("npqgk,npqgj->gkj", upstream, seen).reshape(problem.c, problem.width)
    return dw


@st.composite
def problems(draw: st.DrawFn) -> tuple[Kind, ConvolutionProblem, Configuration, int]:
    kind = draw(st.sampled_from(KINDS))
    side = st.integers(-1, 3)
    padding = (draw(side), draw(side), draw(side), draw(side))
    n, h, w = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(1, 20))
    step = max(8, kind.width) if not kind.cut.direct else kind.width
    c = kind.cut.channel_block if kind.cut.flat else step * draw(st.integers(1, max(1, 48 // step)))
    h = max(h, kind.dilation[0] * (kind.r - 1) + 1 - padding[0] - padding[1])
    w = max(w, kind.dilation[1] * (kind.s - 1) + 1 - padding[2] - padding[3])
    if kind.cut.flat:
        n = kind.cut.images * draw(st.integers(1, 2))
        padding = (*padding[:2], max(0, padding[2]), padding[3])
    if kind.cut.images > 1 or kind.cut.flat:  # one tile across
        most = 8 * kind.cut.units * kind.stride[1] - 1
        w = min(w, most + kind.dilation[1] * (kind.s - 1) + 1 - padding[2] - padding[3] - kind.stride[1] + 1)
        w = max(w, 1)
    problem = kind.problem(n, h, w, c, padding)
    chosen = kind.cut if kind.cut.together else replace(kind.cut, splits=draw(st.integers(1, 5)))
    return kind, problem, chosen, draw(st.integers(0, 999))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(problems())
def test_the_kernels_compute_the_gradient(case: tuple[Kind, ConvolutionProblem, Configuration, int]) -> None:
    kind, problem, chosen, seed = case
    if not one_tile(problem, chosen):
        return
    x, dy = tensors(problem, seed)
    sums, rounded = gradient(kind, problem, [Term(problem, chosen, 0)], [x], dy, seed)
    np.testing.assert_array_equal(sums, expected(problem, x, dy))  # small integers: every sum is exact
    np.testing.assert_array_equal(rounded, sums.astype(emulated.DTYPES[problem.dtype]))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(problems(), st.integers(0, 3), st.integers(0, 3))
def test_a_shard_is_the_sum_over_its_buffers(
    case: tuple[Kind, ConvolutionProblem, Configuration, int], above: int, below: int
) -> None:
    kind, problem, chosen, seed = case
    if not one_tile(problem, chosen):
        return
    whole = problem
    above, below = min(above, whole.h - 1), min(below, whole.h - 1 - min(above, whole.h - 1))
    top, bottom, left, right = whole.padding
    shard = replace(whole, h=whole.h - above - below, padding=(top + above, bottom + below, left, right))
    x, dy = tensors(whole, seed)
    buffers = [x[:, above : whole.h - below], x[:, :above], x[:, whole.h - below :]]
    found = terms(shard, chosen, above, below)
    assert all(term.problem.output_shape == whole.output_shape for term in found)
    sums, _ = gradient(kind, shard, list(found), [np.ascontiguousarray(rows) for rows in buffers], dy, seed)
    np.testing.assert_array_equal(sums, expected(whole, x, dy))


def one_tile(problem: ConvolutionProblem, chosen: Configuration) -> bool:
    """Several images in a stage are for images of one tile across, and whole rows are, too."""
    cut = Cut(problem, chosen)
    if chosen.flat and not problem.padding[2] < cut.x_columns:
        return False
    return chosen.direct or (chosen.images == 1 and not chosen.flat) or cut.column_tiles == 1


def tensors(problem: ConvolutionProblem, seed: int) -> list[Array]:
    numbers = np.random.default_rng(seed)
    shapes = problem.input_shape, problem.output_shape
    return [numbers.integers(-4, 5, shape).astype(emulated.DTYPES[problem.dtype]) for shape in shapes]


def gradient(
    kind: Kind, problem: ConvolutionProblem, parts: list[Term], buffers: list[Array], dy: Array, seed: int
) -> tuple[Array, Array]:
    """The f32 sums and the rounded ones, all memory prefilled with what must not remain."""
    alone = len(parts) == 1 and parts[0].chosen.together
    whole = parts[0].chosen if alone else all_splits(tuple(parts))
    space = np.full(weight_gradient.workspace_bytes(problem, whole) // 4 + 4, np.nan, np.float32)
    workspace = space[-space.ctypes.data % 16 // 4 :].ctypes.data
    sums = np.full(problem.weight_shape, np.nan, np.float32)
    rounded = np.full(problem.weight_shape, 0x7E01, np.uint16)
    views = [View.dense(a.ctypes.data, a.shape, problem.dtype) for a in (*buffers, dy)]  # type: ignore[arg-type]
    for partial, out in ((True, sums), (False, rounded)):
        *leaves, last = weight_gradient.kernel_names(whole, partial)
        place = out.ctypes.data if alone else workspace
        for part in parts:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(weight_gradient, "tensor_map", emulated.tensor_map)
                made = weight_gradient.first_launch(part.problem, part.chosen, views[part.buffer], views[-1], place)
            run_launch(getattr(library(kind, part.chosen), f"run_{[*leaves, last][0]}"), made, seed)
            place += weight_gradient.workspace_bytes(part.problem, part.chosen)
        if not alone:
            made = weight_gradient.second_launch(problem, whole, workspace, out.ctypes.data)
            run_launch(getattr(library(kind, whole), f"run_{last}"), made, seed)
    return sums, rounded.view(emulated.DTYPES[problem.dtype])
