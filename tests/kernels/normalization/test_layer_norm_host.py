"""The layer norm's very text, run on the host against the definition in f64; and what the compiler makes of it."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.kernels.normalization import layer_norm
from tapestry.kernels.normalization.layer_norm import Gradients, Operands, RowKind
from tapestry.kernels.normalization.stretches import Launch

from .. import host_compiler
from . import launches as launches_of
from .launches import DTYPES, UNITS, close

pytestmark = pytest.mark.long

REGISTERS = 65536  # of a multiprocessor
EPSILON = 1e-3
host_compiler.compiler()
WIDTHS = [  # channels, and the types of x, y and parameters: every number of lanes, rows that fill them or do not
    (96, "bf16", "bf16", "f32"), (40, "bf16", "f32", "f32"), (192, "f32", "bf16", "f32"), (384, "f16", "f16", "f32"),
    (17, "f32", "f32", "f32"), (8, "bf16", "bf16", "f32"), (1, "f32", "f16", "f32"), (768, "f16", "f16", "f16"),
    (1024, "f32", "f32", "f32"), (96, "bf16", "bf16", "bf16"), (56, "bf16", "f32", "bf16"),
]  # fmt: skip


class Case(NamedTuple):
    channels: int
    dtype: str
    result: str
    parameters: str
    rows: int
    sms: int
    affine: bool
    seed: int

    @property
    def kind(self) -> RowKind:
        found = RowKind.of(self.channels, self.dtype, self.result, self.parameters)
        assert found is not None
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(
        *draw(st.sampled_from(WIDTHS)), draw(st.integers(1, 150)), draw(st.integers(1, 4)), draw(st.booleans()),
        draw(st.integers(0, 999)),
    )  # fmt: skip


@functools.cache
def library(kind: RowKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), *layer_norm.KERNELS)


def run(kind: RowKind, launches: tuple[Launch, ...], seed: int) -> None:
    for number, launch in enumerate(launches):
        launches_of.run(library(kind), launch, seed + number)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_the_kernels_compute_the_definition(case: Case) -> None:
    random, shape, kind = np.random.default_rng(case.seed), (case.rows, case.channels), case.kind
    cut, narrow, made = kind.cut(case.rows, case.channels, case.sms), DTYPES[case.dtype], DTYPES[case.result]
    x = (3 * random.standard_normal(shape) + 9 * random.standard_normal((case.rows, 1))).astype(narrow)
    dy = random.standard_normal(shape).astype(made)
    own = DTYPES[case.parameters]
    weight, bias = (random.uniform(-1, 2, case.channels).astype(own) for _ in range(2))
    y, dx, room = np.full(shape, np.nan, made), np.full(shape, np.nan, narrow), np.full(cut.workspace, np.nan, "f")
    statistics, sums = np.full((case.rows, 2), np.nan, "f"), np.full((2, case.channels), np.nan, own)
    at = [array.ctypes.data for array in (x, weight, bias, statistics)]
    operands = Operands(at[0], *(at[1:3] if case.affine else (0, 0)), at[3])
    run(kind, layer_norm.forward(kind, cut, operands, EPSILON, y.ctypes.data), case.seed)
    gradients = Gradients(dy.ctypes.data, dx.ctypes.data, sums[0].ctypes.data, sums[1].ctypes.data)
    run(kind, layer_norm.gradient(kind, cut, operands, gradients, room.ctypes.data), case.seed)

    wide, slope = x.astype(np.float64), dy.astype(np.float64)
    inverse = 1 / np.sqrt(wide.var(1, keepdims=True) + EPSILON)
    normal = (wide - wide.mean(1, keepdims=True)) * inverse
    scale, shift = (weight.astype(np.float64), bias.astype(np.float64)) if case.affine else (1.0, 0.0)
    close(y, normal * scale + shift, UNITS[case.result])
    close(statistics, np.concatenate([wide.mean(1, keepdims=True), inverse], 1), 1e-5)
    close(sums, np.stack([(slope * normal).sum(0), slope.sum(0)]), max(1e-5, UNITS[case.parameters]))
    g = slope * scale
    expected = inverse * (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True))
    close(dx, expected, UNITS[case.dtype])


@given(st.integers(1, 128), st.sampled_from(["bf16", "f32"]), st.integers(1, 300_000), st.integers(1, 150))
def test_every_row_is_in_one_block(octets: int, dtype: str, rows: int, sms: int) -> None:
    kind = RowKind.of(8 * octets, dtype, "bf16")
    assert kind is not None
    cut = kind.cut(rows, 8 * octets, sms)
    assert (cut.blocks - 1) * cut.stretch < rows <= cut.blocks * cut.stretch
    assert cut.blocks <= sms * kind.sizes.residents  # one turn
    assert kind.lanes * kind.turns * kind.vector >= cut.channels > kind.lanes * (kind.turns - 1) * kind.vector


def test_rows_that_are_too_long() -> None:
    assert RowKind.of(1032, "bf16", "bf16") is None
    assert RowKind.of(1021, "bf16", "bf16") is not None  # no vectors, but as many threads


@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_no_register_is_spilled(width: tuple[int, str, str, str]) -> None:
    kind = RowKind.of(*width)
    assert kind is not None
    report = kind.recipe("layer_norm").compile().report
    assert set(report) == set(layer_norm.KERNELS)
    for name, used in report.items():
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), name
        if name != "layer_norm_fold":
            assert used.registers * kind.sizes.threads * kind.sizes.residents <= REGISTERS, name
