"""Gelu's very text, run on the host against the definition in f64; and what the compiler makes of it."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from tapestry.kernels.normalization import gelu
from tapestry.kernels.normalization.gelu import GeluKind
from tapestry.kernels.normalization.stretches import RESIDENTS, THREADS

from .. import host_compiler
from . import launches as launches_of
from .launches import DTYPES, UNITS, close

pytestmark = pytest.mark.long

REGISTERS = 65536  # of a multiprocessor
host_compiler.compiler()
KINDS = [GeluKind("bf16", 8), GeluKind("f16", 8), GeluKind("bf16", 2), GeluKind("f16", 1)]


@functools.cache
def library(kind: GeluKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), *gelu.KERNELS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), st.integers(1, 300), st.integers(1, 70), st.integers(1, 9), st.integers(0, 999))
def test_the_kernels_compute_the_definition(kind: GeluKind, rows: int, vectors: int, sms: int, seed: int) -> None:
    random, shape = np.random.default_rng(seed), (rows, kind.vector * vectors)
    cut = kind.cut(*shape, sms)
    x, dy = ((random.standard_normal(shape) * size).astype(DTYPES[kind.dtype]) for size in (3, 1))
    y, dx = np.full(shape, np.nan, x.dtype), np.full(shape, np.nan, x.dtype)
    sums, room = np.full(shape[1], np.nan, np.float32), np.full(gelu.workspace(cut), np.nan, np.float32)
    launches = gelu.forward(cut, x.ctypes.data, y.ctypes.data)
    launches += gelu.gradient(cut, *(each.ctypes.data for each in (x, dy, dx, sums, room)))
    for number, launch in enumerate(launches):
        launches_of.run(library(kind), launch, seed + number)

    wide, slopes = x.astype(np.float64), dy.astype(np.float64)
    below = special.ndtr(wide)
    gradient = slopes * (below + wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi))
    close(y, wide * below, UNITS[kind.dtype])
    close(dx, gradient, UNITS[kind.dtype])
    close(sums, gradient.sum(0), 1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_register_is_spilled(kind: GeluKind) -> None:
    report = kind.recipe("gelu").compile().report
    assert set(report) == set(gelu.KERNELS)
    for name, used in report.items():
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), name
        assert used.registers * THREADS * RESIDENTS <= REGISTERS, name
