"""The layer scale's very text, run on the host against the definition in f64; and what the compiler makes of it."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.kernels.normalization import scaled_sum
from tapestry.kernels.normalization.scaled_sum import Operands, ScaleKind
from tapestry.kernels.normalization.stretches import RESIDENTS, THREADS, Launch

from .. import host_compiler
from . import launches as launches_of
from .launches import DTYPES, UNITS, close

pytestmark = pytest.mark.long

REGISTERS = 65536  # of a multiprocessor
host_compiler.compiler()
KINDS = [  # x, residual, y, gamma
    ScaleKind("bf16", "f32", "f32", "f32", 4), ScaleKind("bf16", "bf16", "f32", "f32", 2, True),
    ScaleKind("bf16", "bf16", "bf16", "bf16", 8, True), ScaleKind("f16", "f32", "f32", "f32", 1),
    ScaleKind("f32", "f32", "f32", "f32", 4, True), ScaleKind("f16", "f16", "f16", "f32", 8),
]  # fmt: skip


class Case(NamedTuple):
    kind: ScaleKind
    images: int
    pixels: int
    channels: int
    sms: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    channels = kind.vector * draw(st.integers(1, 70))
    return Case(
        kind,
        draw(st.integers(1, 9)),
        draw(st.integers(1, 40)),
        channels,
        draw(st.integers(1, 9)),
        draw(st.integers(0, 999)),
    )


@functools.cache
def library(kind: ScaleKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), *scaled_sum.KERNELS)


def run(kind: ScaleKind, launches: tuple[Launch, ...], seed: int) -> None:
    for number, launch in enumerate(launches):
        launches_of.run(library(kind), launch, seed + number)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_the_kernels_compute_the_definition(case: Case) -> None:
    kind, random = case.kind, np.random.default_rng(case.seed)
    shape, cut = (
        (case.images * case.pixels, case.channels),
        kind.cut(case.images * case.pixels, case.channels, case.sms),
    )
    x, residual, dy = (random.standard_normal(shape).astype(DTYPES[of]) for of in (kind.dtype, kind.added, kind.result))
    gamma = random.uniform(-1, 2, case.channels).astype(DTYPES[kind.parameters])
    factors = (random.integers(0, 2, case.images) * 1.25).astype(np.float32)
    y, dx = np.full(shape, np.nan, DTYPES[kind.result]), np.full(shape, np.nan, DTYPES[kind.dtype])
    to_gamma = np.full(case.channels, np.nan, gamma.dtype)
    room = np.full(scaled_sum.workspace(cut), np.nan, np.float32)
    given = Operands(x.ctypes.data, gamma.ctypes.data, factors.ctypes.data if kind.factors else 0, case.pixels)
    run(kind, scaled_sum.forward(cut, given, residual.ctypes.data, y.ctypes.data), case.seed)
    made = (dy.ctypes.data, dx.ctypes.data, to_gamma.ctypes.data, room.ctypes.data)
    run(kind, scaled_sum.gradient(cut, given, *made), case.seed)

    wide, added, slope, scale = (each.astype(np.float64) for each in (x, residual, dy, gamma))
    factor = np.repeat(factors.astype(np.float64), case.pixels)[:, None] if kind.factors else 1.0
    close(y, wide * scale * factor + added, UNITS[kind.result])
    close(dx, slope * scale * factor, UNITS[kind.dtype])
    close(to_gamma, (slope * factor * wide).sum(0), max(UNITS[kind.parameters], 1e-5))


@pytest.mark.parametrize(
    ("channels", "types", "vector"),
    [
        (96, ("bf16", "f32", "f32"), 4),
        (96, ("bf16", "bf16", "bf16"), 8),
        (18, ("f32", "f32", "f32"), 2),
        (7, ("f16",) * 3, 1),
    ],
)
def test_a_vector_divides_the_channels(channels: int, types: tuple[str, str, str], vector: int) -> None:
    assert ScaleKind.of(channels, *types, "f32").vector == vector


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_register_is_spilled(kind: ScaleKind) -> None:
    report = kind.recipe("scaled_sum").compile().report
    assert set(report) == set(scaled_sum.KERNELS)
    for name, used in report.items():
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), name
        assert used.registers * THREADS * RESIDENTS <= REGISTERS, name
