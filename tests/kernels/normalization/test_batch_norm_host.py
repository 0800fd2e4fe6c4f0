"""The batch norm's very text, run on the host against the definition in f64."""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import erf

from tapestry.kernels.normalization import batch_norm
from tapestry.kernels.normalization.batch_norm import Gradients, NormKind, Operands, Remembered
from tapestry.kernels.normalization.stretches import Launch, balanced

from .. import host_compiler
from . import launches as launches_of
from .launches import DTYPES, UNITS, Array, close

pytestmark = pytest.mark.long

host_compiler.compiler()
KINDS = [
    NormKind("bf16", 8, "silu"),
    NormKind("bf16", 8, "relu", True),
    NormKind("f32", 4),
    NormKind("f16", 2, "hardswish", True),
    NormKind("f32", 1, "gelu"),
    NormKind("f16", 4, "relu6", True),
    NormKind("bf16", 4, "", True),
    NormKind("bf16", 8, "silu", parameters="bf16"),
    NormKind("f16", 8, "relu", True, "f16"),
    NormKind("bf16", 2, "", True, "bf16"),
]


@functools.cache
def library(kind: NormKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), *batch_norm.KERNELS)


def run(kind: NormKind, launches: tuple[Launch, ...], seed: int) -> None:
    for number, launch in enumerate(launches):
        launches_of.run(library(kind), launch, seed + number)


def activate(name: str, v: Array) -> tuple[Array, Array]:
    """Values and derivatives."""
    if name == "silu":
        gate = 1 / (1 + np.exp(-v))
        return v * gate, gate * (1 + v * (1 - gate))
    if name == "gelu":
        below = 0.5 * (1 + erf(v / np.sqrt(2)))
        return v * below, below + v * np.exp(-v * v / 2) / np.sqrt(2 * np.pi)
    if name == "hardswish":
        inside = (v > -3) & (v < 3)
        return v * np.clip(v + 3, 0, 6) / 6, np.where(inside, v / 3 + 0.5, v >= 3)
    if name in ("relu", "relu6"):
        top = 6.0 if name == "relu6" else np.inf
        return np.clip(v, 0, top), ((v > 0) & (v < top)).astype(float)
    return v, np.ones_like(v)


class Case(NamedTuple):
    kind: NormKind
    rows: int
    channels: int
    room: int
    seed: int
    affine: bool
    remembered: bool
    momentum: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    channels = kind.vector * draw(st.integers(1, 70))
    rows = draw(st.one_of(st.integers(2, 40), st.integers(40, 400)))
    flags = (draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([0.1, 0.0, 1.0, -1.0])))
    return Case(kind, rows, channels, draw(st.integers(1, 9)), draw(st.integers(0, 999)), *flags)


class Memory:
    """Operands of a case, and room for what is written: NaN until it is."""

    def __init__(self, case: Case) -> None:
        kind, random = case.kind, np.random.default_rng(case.seed)
        shape, dtype = (case.rows, case.channels), DTYPES[kind.dtype]
        centre = 8 * random.standard_normal(case.channels)
        self.x = (random.standard_normal(shape) * 2 + centre).astype(dtype)
        self.dy, self.residual = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        own = DTYPES[kind.parameters]
        self.weight, self.bias = (random.uniform(-1, 2, case.channels).astype(own) for _ in range(2))
        self.mean, self.variance = (random.uniform(1, 2, case.channels).astype(own) for _ in range(2))
        self.batches = np.array([3], np.int64)
        self.y, self.dx, self.given = (np.full(shape, np.nan, dtype) for _ in range(3))
        self.statistics, self.gradients = (np.full((2, case.channels), np.nan, of) for of in (np.float32, own))


def at(array: Array | None) -> int:
    return 0 if array is None else int(array.ctypes.data)


def computed(case: Case) -> Memory:
    memory, kind = Memory(case), case.kind
    cut = balanced(case.rows, case.channels, kind.vector, case.room)
    room = np.full(cut.workspace, np.nan, np.float32)
    affine = (at(memory.weight), at(memory.bias)) if case.affine else (0, 0)
    added = at(memory.residual) if kind.residual else 0
    remembered = Remembered(at(memory.mean), at(memory.variance), at(memory.batches), case.momentum)
    operands = Operands(at(memory.x), added, *affine, at(memory.statistics), 1e-3)
    run(
        kind,
        batch_norm.forward(cut, operands, at(memory.y), at(room), remembered if case.remembered else Remembered()),
        case.seed,
    )
    room = np.full(batch_norm.gradient_workspace(cut), np.nan, np.float32)
    writes = kind.residual and kind.activation != ""
    if writes and kind.activation in batch_norm.TOLD_BY_RESULT:
        operands = operands._replace(residual=at(memory.y))
    made = Gradients(at(memory.dy), at(memory.dx), at(memory.given) if writes else 0, *map(at, memory.gradients))
    run(kind, batch_norm.gradient(cut, operands, made, at(room)), case.seed)
    return memory


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_the_kernels_compute_the_definition(case: Case) -> None:
    memory, unit = computed(case), UNITS[case.kind.dtype]
    x, dy = memory.x.astype(np.float64), memory.dy.astype(np.float64)
    weight = memory.weight.astype(np.float64) if case.affine else np.ones(case.channels)
    bias = memory.bias.astype(np.float64) if case.affine else np.zeros(case.channels)
    mean, variance = x.mean(0), x.var(0)
    close(memory.statistics, np.stack([mean, variance]), 1e-5)
    inverse = 1 / np.sqrt(variance + 1e-3)
    normal = (x - mean) * inverse
    before = normal * weight + bias + (memory.residual if case.kind.residual else 0)
    y, slope = activate(case.kind.activation, before)
    close(memory.y, y, unit)
    if case.kind.activation in batch_norm.TOLD_BY_RESULT and case.kind.residual:  # as it was rounded
        slope = activate(case.kind.activation, memory.y.astype(np.float64))[1]
    g = dy * slope
    if case.kind.residual and case.kind.activation:
        close(memory.given, g, unit)
        near = UNITS[case.kind.dtype]
    near = unit * np.sqrt(case.rows)
    near = max(near, UNITS[case.kind.parameters], 1e-4)
    close(memory.gradients, np.stack([(g * normal).sum(0), g.sum(0)]), near)
    close(memory.dx, weight * inverse * (g - g.mean(0) - normal * (g * normal).mean(0)), 4 * unit)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_what_a_layer_remembers(case: Case) -> None:
    memory, before = computed(case), Memory(case)
    x = memory.x.astype(np.float64)
    share = (0.25 if case.momentum < 0 else case.momentum) if case.remembered else 0.0
    unit, (mean, variance) = UNITS[case.kind.parameters], (v.astype(np.float64) for v in (before.mean, before.variance))
    close(memory.mean, mean * (1 - share) + share * x.mean(0), max(unit, 1e-5))
    close(memory.variance, variance * (1 - share) + share * x.var(0, ddof=1), max(unit, 1e-5))
    assert memory.batches[0] == 3 + case.remembered


def test_values_far_from_zero() -> None:
    """The sums are relative to one of the values: a mean of a thousand deviations costs no digits."""
    rows, channels = 3000, 4
    random = np.random.default_rng(5)
    x = (1000 + random.standard_normal((rows, channels))).astype(np.float32)
    x[0] = -1e6  # nor does one value that is far from all others, but where it is a part of the sums
    kind, cut = NormKind("f32", 4), balanced(rows, channels, 4, 3)
    statistics, y, room = np.zeros((2, channels), np.float32), np.zeros_like(x), np.zeros(cut.workspace, np.float32)
    run(kind, batch_norm.forward(cut, Operands(at(x), 0, 0, 0, at(statistics), 0.0), at(y), at(room), Remembered()), 1)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(statistics, np.stack([exact.mean(0), exact.var(0)]), rtol=1e-5)
    x[0] = 1000
    run(kind, batch_norm.forward(cut, Operands(at(x), 0, 0, 0, at(statistics), 0.0), at(y), at(room), Remembered()), 1)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(statistics, np.stack([exact.mean(0), exact.var(0)]), rtol=1e-5)
