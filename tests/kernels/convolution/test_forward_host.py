"""The tensor-core convolution's very text, run on the host against NumPy.

`tests/kernels/emulation` runs whole blocks of threads with lanes as fibers in a random order: the cut of the work, the
ring and its barriers, the swizzles, the circle of open rows, the parts of an input gradient, what is fused and shards.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import forward, forward_walk, launch
from tapestry.kernels.convolution.configuration import ForwardConfiguration as Cut
from tapestry.kernels.convolution.configuration import footprint
from tapestry.kernels.convolution.input_gradient import walk
from tapestry.kernels.convolution.launch import Rows, Taps, View
from tapestry.kernels.convolution.problem import ConvolutionProblem

from .. import host_compiler
from . import emulated
from .test_direct import DTYPES, activated, input_gradient
from .test_direct import forward as expected
from .test_direct import view as dense_view

pytestmark = pytest.mark.long

Array = NDArray[Any]

host_compiler.compiler()


@dataclass(frozen=True)
class Kind(emulated.Kind[Cut]):
    """What a source depends on."""

    fused: bool = False
    activation: str | None = None


def cut(
    channels: int, images: int, units: int, tiles: int, octets: int = 1, stages: int = 3, rows: int = 1,
    chunk: int = 5, kept: Literal["registers", "staged", "shared"] = "registers", late: bool = False, pairs: int = 0,
    leaving: int = 1, outs: int = 2, together: int = 1, flat: bool = False,
) -> Cut:  # fmt: skip
    sizes = (channels, images, units, tiles, octets, stages)
    staged = {"stage_rows": rows, "out_stages": outs, "leaving": leaving, "together": together}
    return Cut(*sizes, chunk=chunk, filter=kept, late=late, pairs=pairs, flat=flat, **staged)


KINDS = [
    Kind(cut(16, 1, 2, 1), 3, 3),
    Kind(cut(16, 1, 2, 1, late=True), 3, 2, stride=(2, 1)),
    Kind(cut(32, 2, 1, 2, stages=4, late=True), 3, 3, stride=(2, 2), fused=True, activation="gelu"),
    Kind(cut(16, 1, 3, 2, rows=2), 2, 5, width=4, stride=(1, 2), dilation=(2, 1), dtype="bf16", fused=True),
    Kind(cut(32, 2, 2, 1, octets=2), 5, 2, width=16, stride=(2, 1), fused=True, activation="relu"),
    Kind(cut(16, 1, 3, 2, rows=2, late=True), 4, 2, dilation=(2, 1)),
]
# Pairs of channels: both widths, two and four pairs a warp, units beyond the last one, steps alone and in twos.
PAIRED = [
    Kind(cut(16, 2, 3, 1, pairs=2), 3, 3, width=1),
    Kind(cut(16, 1, 2, 1, late=True, pairs=4), 5, 7, width=1, dtype="bf16", fused=True, activation="relu"),
    Kind(cut(32, 1, 9, 2, pairs=2), 7, 7, width=1),  # registers are traded
    Kind(cut(32, 1, 9, 2, pairs=2), 2, 5, width=2, stride=(2, 1), fused=True),
    Kind(cut(16, 3, 1, 1, rows=2, late=True, pairs=2), 3, 4, width=1, stride=(2, 2), dilation=(1, 2)),
    Kind(cut(8, 2, 1, 1, pairs=4), 4, 1, width=2, dilation=(2, 1), dtype="bf16"),
]
# Pairs whose rows are summed up together: blocks that end inside a run, both widths, strides, dilations, a filter that
# is brought by all.
BLOCKED = [
    Kind(cut(16, 2, 3, 1, stages=9, kept="staged", pairs=4, leaving=3), 7, 7, width=1, fused=True, activation="relu"),
    Kind(cut(32, 1, 9, 2, stages=4, chunk=3, pairs=2, leaving=2, together=2), 3, 5, width=1, dtype="bf16"),
    Kind(cut(8, 3, 1, 1, stages=8, kept="staged", pairs=2, leaving=4, outs=1), 5, 2, width=2, dtype="bf16"),
    Kind(cut(8, 2, 1, 1, stages=9, chunk=7, kept="staged", pairs=4, leaving=3, together=2), 7, 7, width=1, fused=True),
    Kind(cut(16, 1, 2, 1, stages=8, kept="staged", pairs=4, leaving=3), 3, 3, width=1, stride=(2, 2)),
    Kind(cut(16, 1, 2, 1, stages=9, pairs=4, leaving=3, together=2), 4, 4, width=2, stride=(1, 2), dilation=(2, 1)),
    # Channels that are no whole swizzle.
    Kind(cut(48, 3, 1, 1, stages=9, kept="staged", pairs=2, leaving=3, together=2), 7, 7, width=1, fused=True),
    Kind(cut(24, 1, 3, 1, stages=5, kept="staged", pairs=4, leaving=2), 3, 5, width=2, dtype="bf16"),
]
# Whole rows: of an odd and an even number of octets, images in part, rows in twos.
FLAT = [
    Kind(cut(24, 1, 3, 2, late=True, flat=True), 3, 3, width=1, fused=True, activation="relu"),
    Kind(cut(40, 2, 1, 1, stages=4, flat=True), 5, 3, width=2, stride=(2, 2), dtype="bf16"),
    Kind(cut(16, 3, 2, 2, rows=2, flat=True), 2, 5, width=8, dilation=(2, 1), fused=True),
]
# The filter in shared memory: both widths, odd numbers of tiles, all octets of a group, taps apart, short runs.
WIDE = [
    Kind(cut(32, 1, 2, 1, 4, chunk=2, kept="shared"), 7, 7, width=32),
    Kind(cut(64, 2, 1, 1, 2, rows=2, kept="shared"), 5, 3, width=32, stride=(2, 1), fused=True, activation="relu"),
    Kind(cut(32, 1, 3, 2, 1, kept="shared"), 3, 4, width=16, stride=(1, 2), dilation=(2, 1), dtype="bf16"),
    Kind(cut(16, 3, 1, 1, 2, chunk=1, kept="shared"), 4, 2, width=16, stride=(2, 2), dilation=(1, 2)),
    Kind(cut(32, 1, 6, 3, 2, kept="shared"), 3, 3, width=32, stride=(2, 2), dilation=(2, 2)),
    Kind(cut(32, 2, 1, 1, 4, kept="staged"), 3, 2, width=32, stride=(1, 2), fused=True),
    Kind(cut(64, 1, 2, 1, 1, kept="staged", late=True), 2, 5, width=16, dilation=(2, 1), dtype="bf16"),
]
# Input gradients, with the filter in registers and in shared memory: cells of 2 x 2 and of two rows or columns; units
# beyond the last one, of one image and of several.
BACK = [
    Kind(cut(16, 1, 2, 1), 3, 3),
    Kind(cut(16, 2, 1, 1, late=True), 3, 2, width=2, stride=(2, 1), dtype="bf16"),
    Kind(cut(16, 1, 3, 1, late=True), 3, 3, stride=(2, 2)),
    Kind(cut(32, 3, 1, 2), 3, 3, stride=(2, 2)),
    Kind(cut(64, 1, 2, 1, rows=2, late=True), 4, 5, stride=(2, 2), dtype="bf16"),
    Kind(cut(8, 1, 2, 1), 7, 6, width=1, stride=(2, 2)),
    Kind(cut(32, 1, 2, 2, late=True), 1, 2, width=4, stride=(2, 2)),
    Kind(cut(32, 1, 3, 2, octets=2), 3, 5, width=16, stride=(2, 2)),
    Kind(cut(16, 1, 4, 1), 3, 4, stride=(2, 2), dilation=(2, 2)),
    Kind(cut(16, 3, 1, 1, late=True), 5, 3, stride=(1, 2), dilation=(2, 1)),
    Kind(cut(32, 1, 2, 1, 2, chunk=2, kept="shared"), 5, 4, width=32),
    Kind(cut(32, 2, 1, 1, 1, kept="shared"), 3, 3, width=16, stride=(2, 2)),
    Kind(cut(32, 1, 2, 1, 2, chunk=2, kept="shared"), 6, 7, width=32, stride=(2, 2), dtype="bf16"),
    Kind(cut(64, 1, 3, 2, 4, kept="shared"), 2, 3, width=32, stride=(1, 2), dilation=(2, 1)),
    Kind(cut(16, 1, 2, 1, 1, kept="shared"), 3, 3, width=16, stride=(2, 2), dilation=(1, 2)),
    Kind(cut(32, 1, 1, 1, 4, kept="staged", late=True), 3, 3, width=32, stride=(2, 2)),
    Kind(cut(16, 1, 2, 1, 1, kept="staged"), 4, 3, width=16),
    Kind(cut(16, 2, 2, 1, late=True, pairs=2), 5, 3, width=1),
    Kind(cut(16, 1, 3, 1, pairs=4), 3, 5, width=2, dilation=(1, 2), dtype="bf16"),
    Kind(cut(16, 2, 2, 1, stages=8, kept="staged", pairs=4, leaving=2), 5, 3, width=1),
    Kind(cut(16, 1, 3, 1, stages=7, kept="staged", pairs=2, leaving=3, together=2), 3, 5, width=2, dtype="bf16"),
]


@functools.cache
def library(problem: ConvolutionProblem, chosen: Cut, taps: Taps, flags: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    return host_compiler.emulated(forward.source(problem, chosen, taps=taps, **dict(flags)), "forward")


def run(
    problem: ConvolutionProblem, chosen: Cut, taps: Taps, rows: Rows, inputs: list[View], output: View,
    added: View | None, pointers: tuple[int, int, int], sms: int, seed: int, whole: bool = False, **flags: Any,
) -> None:  # fmt: skip
    """One launch. Sources depend on no extents, so that few are compiled."""
    alike = replace(
        problem, n=1, h=40, w=40, c=problem.width * ceil(64 / problem.width), groups=ceil(64 / problem.width)
    )
    alike = replace(alike, padding=(0, 0, 0, 0))
    loaded = library(alike, chosen, taps, (*sorted(flags.items()), ("whole", whole)))
    cells = launch.grid(problem, chosen, rows, sms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "tensor_map", emulated.tensor_map)
        views = (inputs[0], inputs[1], inputs[2])
        given = launch.arguments(problem, chosen, cells, rows, views, output, added, pointers, whole)
    threads = footprint(problem, chosen).threads
    emulated.start(loaded.run_forward, (cells.blocks,), (threads,), given, seed)


def strided_view(x: Array, dtype: str) -> View:
    """A part of a larger tensor."""
    images, rows, columns, _ = (step // 2 for step in x.strides)
    return View(x.ctypes.data, x.shape, (images, rows, columns), dtype)


def one_tile(problem: ConvolutionProblem, chosen: Cut) -> bool:
    """Several images in a box are for images of one tile across; so are whole rows, of which nothing is left out."""
    if chosen.flat and (problem.q > 8 * chosen.units or not 0 <= problem.padding[2] <= problem.q):
        return False
    return chosen.images == 1 or ceil(problem.q / (8 * chosen.units)) == 1


SIDE = st.integers(-1, 4)
CORNERS = st.tuples(SIDE, SIDE)


@st.composite
def problems(
    draw: st.DrawFn, kinds: list[Kind], channels: int = 48, corners: st.SearchStrategy[tuple[int, int]] = CORNERS
) -> tuple[Kind, ConvolutionProblem]:
    kind = draw(st.sampled_from(kinds))
    top, left = draw(corners)
    padding = (top, draw(SIDE), left, draw(SIDE))
    spans = [(taps - 1) * step + 1 for taps, step in zip((kind.r, kind.s), kind.dilation, strict=True)]
    least = [
        max(1, span - padding[2 * i] - padding[2 * i + 1], 1 - padding[2 * i], 1 - padding[2 * i + 1])
        for i, span in enumerate(spans)
    ]
    h, w = draw(st.integers(least[0], least[0] + 9)), draw(st.integers(least[1], least[1] + 19))
    step = max(8, kind.width)
    c = kind.cut.channels if kind.cut.flat else step * draw(st.integers(1, channels // step))
    return kind, kind.problem(draw(st.integers(1, 3)), h, w, c, padding)


def small(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Small integers: every sum is exact."""
    return random.integers(-3, 4, shape).astype(DTYPES[dtype])


def stored(values: Array, shift: int) -> Array:
    """A copy that begins `shift` numbers past a multiple of 16 bytes."""
    room = np.zeros(values.size + 16, values.dtype)
    first = -room.ctypes.data % 16 // 2 + shift
    room[first : first + values.size] = values.reshape(-1)
    return room[first : first + values.size].reshape(values.shape)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(problems(KINDS), st.integers(1, 3), st.integers(0, 999), st.data())
def test_the_kernel_convolves(case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, data: st.DataObject) -> None:
    convolves(*case, sms, seed, data, 0)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(problems(PAIRED), st.integers(1, 3), st.integers(0, 999), st.data(), st.sampled_from((0, 0, 2)))
def test_it_convolves_pairs_of_channels(
    case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, data: st.DataObject, shift: int
) -> None:
    convolves(*case, sms, seed, data, shift)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(problems(BLOCKED, 104), st.integers(1, 3), st.integers(0, 999), st.data(), st.sampled_from((0, 0, 2)))
def test_it_sums_up_rows_of_pairs_together(
    case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, data: st.DataObject, shift: int
) -> None:
    convolves(*case, sms, seed, data, shift)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(problems(FLAT), st.integers(1, 3), st.integers(0, 999), st.data(), st.booleans())
def test_whole_rows_come_and_leave(
    case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, data: st.DataObject, whole: bool
) -> None:
    """As they lie in memory, images and rows apart or not; or, where columns do not lie side by side, in boxes."""
    kind, problem = case
    if not one_tile(problem, kind.cut):
        return
    random = np.random.default_rng(seed)
    room = (problem.n, problem.h + 1, problem.w + 1, problem.c + (0 if whole else 8))
    x = small(random, room, kind.dtype)[:, 1:, 1:, : problem.c]
    w, added = small(random, problem.weight_shape, kind.dtype), small(random, problem.output_shape, kind.dtype)
    wanted = expected(problem, np.ascontiguousarray(x), w)
    scale, bias = (random.integers(-2, 3, problem.c).astype(np.float32) for _ in range(2))
    if kind.fused:
        wanted = activated(wanted * scale + bias + added.astype(np.float64), kind.activation)
    first = data.draw(st.integers(0, problem.p - 1))
    last = data.draw(st.integers(first + 1, problem.p))
    out = np.full(problem.output_shape, np.nan, DTYPES[kind.dtype])
    pointers = (w.ctypes.data, scale.ctypes.data if kind.fused else 0, bias.ctypes.data if kind.fused else 0)
    view = strided_view(x, kind.dtype)
    assert launch.in_lines(view) == whole
    run(
        problem, kind.cut, Taps.plain(kind.r, kind.s), Rows(first, last), [view] * 3, dense_view(out, kind.dtype),
        dense_view(added, kind.dtype) if kind.fused else None, pointers, sms, seed, whole=whole,
        activation=kind.activation, **dict.fromkeys(("scale", "bias", "residual"), kind.fused),
    )  # fmt: skip
    assert np.isnan(out[:, :first].astype("f4")).all()
    assert np.isnan(out[:, last:].astype("f4")).all()
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(out[:, first:last].astype("f8"), wanted[:, first:last], rtol=unit, atol=unit)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(problems(WIDE, 160), st.integers(1, 3), st.integers(0, 999), st.data(), st.sampled_from((0, 0, 0, 2)))
def test_it_convolves_with_its_filter_in_shared_memory(
    case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, data: st.DataObject, shift: int
) -> None:
    convolves(*case, sms, seed, data, shift)


def convolves(kind: Kind, problem: ConvolutionProblem, sms: int, seed: int, data: st.DataObject, shift: int) -> None:
    """One launch over a range of rows of an image in three buffers, its filter `shift` numbers off."""
    if not one_tile(problem, kind.cut):
        return
    random = np.random.default_rng(seed)
    x, w = small(random, problem.input_shape, kind.dtype), small(random, problem.weight_shape, kind.dtype)
    w = stored(w, shift)
    wanted = expected(problem, x, w)
    scale, bias = (random.integers(-2, 3, problem.c).astype(np.float32) for _ in range(2))
    added = small(random, problem.output_shape, kind.dtype)
    if kind.fused:
        wanted = activated(wanted * scale + bias + added.astype(np.float64), kind.activation)

    # The rows of x in three buffers; row 0 is the middle one's first.
    above = data.draw(st.integers(0, problem.h - 1))
    below = data.draw(st.integers(0, problem.h - 1 - above))
    first = data.draw(st.integers(0, problem.p - 1))
    last = data.draw(st.integers(first + 1, problem.p))
    inputs = [
        np.ascontiguousarray(part)
        for part in (x[:, :above], x[:, above : problem.h - below], x[:, problem.h - below :])
    ]
    top, bottom, left, right = problem.padding
    shifted = replace(problem, h=problem.h - above - below, padding=(top + above, bottom + below, left, right))
    out = np.full(problem.output_shape, np.nan, DTYPES[kind.dtype])
    pointers = (w.ctypes.data, scale.ctypes.data if kind.fused else 0, bias.ctypes.data if kind.fused else 0)
    flags = dict.fromkeys(("scale", "bias", "residual"), kind.fused)
    run(
        shifted, kind.cut, Taps.plain(kind.r, kind.s), Rows(first, last, above, below),
        [dense_view(part, kind.dtype) for part in inputs], dense_view(out, kind.dtype),
        dense_view(added, kind.dtype) if kind.fused else None, pointers, sms, seed,
        sharded=True, activation=kind.activation, **flags,
    )  # fmt: skip
    assert np.isnan(out[:, :first].astype("f4")).all()
    assert np.isnan(out[:, last:].astype("f4")).all()
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(out[:, first:last].astype("f8"), wanted[:, first:last], rtol=unit, atol=unit)


SPARSE = [Kind(cut(16, 1, 2, 1), 1, 2, stride=(2, 2), dilation=(1, 2)), Kind(cut(32, 2, 1, 1), 3, 1, stride=(2, 2))]


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(problems(SPARSE), st.integers(1, 3), st.integers(0, 999))
def test_it_walks_the_rows_and_columns_that_windows_meet(
    case: tuple[Kind, ConvolutionProblem], sms: int, seed: int
) -> None:
    """The others are NaN."""
    kind, problem = case
    found = forward_walk.walk(problem)
    if not one_tile(problem, kind.cut):
        return
    random = np.random.default_rng(seed)
    x, w = small(random, problem.input_shape, kind.dtype), small(random, problem.weight_shape, kind.dtype)
    wanted = expected(problem, x, w)
    for axis, every in ((1, found.rows), (2, found.columns)):
        between = np.arange(x.shape[axis]) % every.step != every.first
        x[(slice(None),) * axis + (between,)] = np.nan
    out = np.full(problem.output_shape, np.nan, DTYPES[kind.dtype])
    read = found.read(dense_view(x, kind.dtype))
    run(
        found.problem, kind.cut, found.taps, Rows(0, problem.p), [read] * 3, dense_view(out, kind.dtype), None,
        (w.ctypes.data, 0, 0), sms, seed,
    )  # fmt: skip
    np.testing.assert_array_equal(out.astype("f8"), wanted)


def corners_of(kind: Kind) -> st.SearchStrategy[tuple[int, int]]:
    """Paddings before the first row and column. A source depends on whether they are odd, and is compiled for seconds:
    one kind gets those that are both odd or both even, the next the others; all of them where much is tried."""
    other = BACK.index(kind) % 2
    return CORNERS if "TAPESTRY_FUZZ" in os.environ else CORNERS.filter(lambda corner: sum(corner) % 2 == other)


@pytest.mark.parametrize("kind", BACK, ids=lambda kind: f"{kind.r}x{kind.s} width {kind.width} {kind.stride}")
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(sms=st.integers(1, 3), seed=st.integers(0, 999), shift=st.sampled_from((0, 0, 0, 2)), data=st.data())
def test_its_foundover_dy_is_the_input_gradient(
    kind: Kind, sms: int, seed: int, shift: int, data: st.DataObject
) -> None:
    """All of dx, which is full of NaN before, and nothing beside it; dy in one buffer, or in three."""
    channels = 48 if kind.cut.filter == "registers" else 128
    problem = data.draw(problems([kind], channels, corners_of(kind)))[1]
    found = walk(problem)
    walked = found.problem
    if not one_tile(walked, kind.cut):
        return
    random = np.random.default_rng(seed)
    dy, w = small(random, problem.output_shape, kind.dtype), small(random, problem.weight_shape, kind.dtype)
    w = stored(w, shift)
    room = np.full((problem.n, problem.h + 2, problem.w + 2, problem.c), np.nan, DTYPES[kind.dtype])
    dx = room[:, 1:-1, 1:-1]
    above = data.draw(st.integers(0, problem.p - 1))
    below = data.draw(st.integers(0, problem.p - 1 - above))
    inputs = [
        np.ascontiguousarray(part)
        for part in (dy[:, :above], dy[:, above : problem.p - below], dy[:, problem.p - below :])
    ]
    top, bottom, left, right = walked.padding
    shifted = replace(walked, h=walked.h - above - below, padding=(top + above, bottom + below, left, right))
    middle = data.draw(st.integers(0, walked.p))
    for first, last in ((0, middle), (middle, walked.p)):
        if first < last:
            run(
                shifted, kind.cut, found.taps, Rows(first, last, above, below),
                [dense_view(part, kind.dtype) for part in inputs], strided_view(dx, kind.dtype), None,
                (w.ctypes.data, 0, 0), sms, seed, transposed=True, sharded=True,
            )  # fmt: skip
    assert np.isnan(room.astype("f4")).sum() == room.size - dx.size
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(dx.astype("f8"), input_gradient(problem, dy, w), rtol=unit, atol=unit)


FLAT_BACK = [
    Kind(cut(24, 1, 3, 1, late=True, flat=True), 3, 3, stride=(2, 2)),
    Kind(cut(40, 2, 1, 1, flat=True), 5, 4, width=1, stride=(2, 1), dtype="bf16"),
]


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    problems(FLAT_BACK, corners=CORNERS.filter(lambda corner: sum(corner) % 2 == 0)), st.integers(1, 3),
    st.integers(0, 999), st.booleans(),
)  # fmt: skip
def test_rows_of_cells_leave_whole(case: tuple[Kind, ConvolutionProblem], sms: int, seed: int, whole: bool) -> None:
    """The last row of dx may be the first of a cell, and nothing is written beside it."""
    kind, problem = case
    found = walk(problem)
    if not one_tile(found.problem, kind.cut):
        return
    random = np.random.default_rng(seed)
    dy, w = small(random, problem.output_shape, kind.dtype), small(random, problem.weight_shape, kind.dtype)
    extents = problem.n, problem.h + 2, problem.w + 2, problem.c + (0 if whole else 8)
    room = np.full(extents, np.nan, DTYPES[kind.dtype])
    dx = room[:, 1:-1, 1:-1, : problem.c]
    source = dense_view(dy, kind.dtype)
    run(
        found.problem, kind.cut, found.taps, Rows(0, found.problem.p), [source] * 3, strided_view(dx, kind.dtype), None,
        (w.ctypes.data, 0, 0), sms, seed, transposed=True, whole=whole,
    )  # fmt: skip
    assert np.isnan(room.astype("f4")).sum() == room.size - dx.size
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(dx.astype("f8"), input_gradient(problem, dy, w), rtol=unit, atol=unit)
