"""Largest values and means of windows: the kernels' text, run on the host beside torch; and how it is compiled."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tapestry.kernels.normalization.stretches import Launch
from tapestry.kernels.pooling import windows
from tapestry.kernels.pooling.windows import Extents, PoolKind, Window

from .. import host_compiler
from ..normalization import launches as launches_of
from ..normalization.launches import DTYPES, UNITS, Array, close

pytestmark = pytest.mark.long

host_compiler.compiler()
STEM = Window((3, 3), (2, 2), (1, 1))
KINDS = [
    PoolKind("bf16", 8, STEM), PoolKind("f16", 2, STEM), PoolKind("f32", 4, Window((2, 2), (2, 2), (0, 0))),
    PoolKind("bf16", 4, Window((3, 3), (1, 1), (1, 1))), PoolKind("bf16", 1, Window((2, 3), (1, 3), (1, 0))),
    PoolKind("f32", 1, Window((2, 2), (3, 2), (0, 1))), PoolKind("f16", 8, Window((1, 7), (3, 2), (0, 3))),
]  # fmt: skip


class Case(NamedTuple):
    kind: PoolKind
    images: int
    height: int
    width: int
    channels: int
    whole: bool
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    (rows, columns), _, (above, before) = kind.window
    height = draw(st.integers(max(1, rows - 2 * above), 14))
    width = draw(st.integers(max(1, columns - 2 * before), 14))
    channels = kind.vector * draw(st.integers(1, 40))
    return Case(kind, draw(st.integers(1, 3)), height, width, channels, draw(st.booleans()), draw(st.integers(0, 999)))


@functools.cache
def library(kind: PoolKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), *windows.KERNELS)


def of_torch(x: Array) -> torch.Tensor:
    """[n, h, w, c] as images, f64."""
    return torch.from_numpy(x.astype(np.float64)).permute(0, 3, 1, 2)


def run(kind: PoolKind, launches: tuple[Launch, ...], seed: int) -> None:
    for number, launch in enumerate(launches):
        launches_of.run(library(kind), launch, seed + number)


def extents(case: Case, **mean: int) -> Extents:
    down, right = case.kind.window.counts(case.height, case.width, case.whole)
    of = Extents(case.images, case.height, case.width, down, right, case.channels, **mean)
    assert windows.finds_room(case.kind, of)
    return of


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_maxima_are_what_torch_makes_of_them(case: Case) -> None:
    kind, of, random = case.kind, extents(case), np.random.default_rng(case.seed)
    shape, made = (case.images, case.height, case.width, case.channels), (case.images, *of[3:6])
    x = random.integers(-3, 3, shape).astype(DTYPES[kind.dtype])  # many are alike
    x[random.random(shape) < 0.1] = -np.inf
    x[random.random(shape) < 0.02] = np.nan
    y, taps = np.full(made, 7, x.dtype), np.full(made, 255, np.uint8)
    dy, dx = random.integers(-4, 5, made).astype(x.dtype), np.full(shape, np.nan, x.dtype)
    run(kind, windows.maxima(kind, of, x.ctypes.data, y.ctypes.data, taps.ctypes.data), case.seed)
    run(kind, windows.maxima_gradient(kind, of, dy.ctypes.data, taps.ctypes.data, dx.ctypes.data), case.seed)

    given, (size, step, padding) = of_torch(x).requires_grad_(), kind.window
    expected = functional.max_pool2d(given, size, step, padding, ceil_mode=not case.whole)
    assert tuple(expected.shape[2:]) == of[3:5]
    (gradient,) = torch.autograd.grad(expected, given, of_torch(dy))
    np.testing.assert_array_equal(of_torch(y).numpy(), expected.detach().numpy())
    np.testing.assert_array_equal(of_torch(dx).numpy(), gradient.numpy())
    alone = np.full_like(y, 7)
    run(kind, windows.maxima(kind, of, x.ctypes.data, alone.ctypes.data), case.seed)
    np.testing.assert_array_equal(of_torch(alone).numpy(), of_torch(y).numpy())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.sampled_from([0, 1, 3]), st.booleans())
def test_means_are_what_torch_makes_of_them(case: Case, divisor: int, padded: bool) -> None:
    kind, of, random = case.kind, extents(case, divisor=divisor, padded=padded), np.random.default_rng(case.seed)
    shape, made = (case.images, case.height, case.width, case.channels), (case.images, *of[3:6])
    x, dy = (random.standard_normal(each).astype(DTYPES[kind.dtype]) for each in (shape, made))
    y, dx = np.full(made, np.nan, x.dtype), np.full(shape, np.nan, x.dtype)
    run(kind, windows.averages(kind, of, x.ctypes.data, y.ctypes.data), case.seed)
    run(kind, windows.averages_gradient(kind, of, dy.ctypes.data, dx.ctypes.data), case.seed)

    given, (size, step, padding) = of_torch(x).requires_grad_(), kind.window
    how = {"ceil_mode": not case.whole, "count_include_pad": padded, "divisor_override": divisor or None}
    expected = functional.avg_pool2d(given, size, step, padding, **how)
    assert tuple(expected.shape[2:]) == of[3:5]
    (gradient,) = torch.autograd.grad(expected, given, of_torch(dy))
    for found, exact in ((y, expected.detach()), (dx, gradient)):
        close(found, exact.permute(0, 2, 3, 1).numpy(), UNITS[kind.dtype])


@pytest.mark.parametrize(
    ("window", "taken"),
    [
        (STEM, True), (Window((2, 2), (2, 2), (0, 0)), True), (Window((5, 5), (1, 1), (2, 2)), False),
        (Window((3, 3), (4, 2), (1, 1)), False), (Window((2, 2), (2, 2), (2, 0)), False),
        (Window((3, 3), (2, 2), (-1, 0)), False), (Window((3, 3), (0, 1), (0, 0)), False),
    ],
)  # fmt: skip
def test_which_windows(window: Window, taken: bool) -> None:
    assert window.is_computed is taken


def test_what_finds_no_room_is_not_computed() -> None:
    kind = PoolKind.of(64, "bf16", STEM)
    assert kind.vector == 8
    assert windows.finds_room(kind, Extents(128, 112, 112, 56, 56, 64))
    assert not windows.finds_room(kind, Extents(1 << 26, 112, 112, 56, 56, 64))
    assert not windows.finds_room(kind, Extents(1, 2, 1 << 23, 1, 1 << 22, 64))
    assert not windows.finds_room(kind, Extents(0, 2, 2, 1, 1, 64))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_register_is_spilled(kind: PoolKind) -> None:
    report = kind.recipe("maximum").compile().report
    assert set(report) == set(windows.KERNELS)
    for name, used in report.items():
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), name
        assert used.registers <= 128, name
