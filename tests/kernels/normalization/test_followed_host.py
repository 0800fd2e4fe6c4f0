"""The text of what follows a sum, run on the host against the definition in f64; and what the compiler makes of it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from tapestry.kernels.normalization import followed
from tapestry.kernels.normalization.followed import FollowedKind, Operands
from tapestry.kernels.normalization.stretches import RESIDENTS, THREADS

from .. import host_compiler
from . import launches as launches_of
from .launches import DTYPES, UNITS, close

pytestmark = pytest.mark.long

REGISTERS = 65536  # of a multiprocessor
host_compiler.compiler()
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
KINDS = [
    FollowedKind("bf16", 8, "gelu", False, "bf16"), FollowedKind("f16", 8, "silu", True, "f32"),
    FollowedKind("bf16", 2, "", True, "bf16"), FollowedKind("f32", 4, "hardswish", True, "f32"),
    FollowedKind("f16", 1, "relu", False, "f16"), FollowedKind("f32", 1, "gelu", False, "f32"),
]  # fmt: skip


@functools.cache
def library(kind: FollowedKind) -> ctypes.CDLL:
    return host_compiler.emulated(kind.source(), followed.KERNEL)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(KINDS), st.tuples(st.integers(1, 300), st.integers(1, 70)), st.integers(1, 9),
    st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(0, 999),
)  # fmt: skip
def test_the_kernel_computes_the_definition(
    kind: FollowedKind, extents: tuple[int, int], sms: int, there: tuple[bool, bool, bool], seed: int
) -> None:
    (rows, vectors), (scaled, biased, in_place) = extents, there
    random, shape = np.random.default_rng(seed), (rows, kind.vector * vectors)
    cut = kind.cut(*shape, sms)
    x, residual = ((random.standard_normal(shape) * 3).astype(DTYPES[kind.dtype]) for _ in range(2))
    scale, bias = (random.standard_normal(shape[1]).astype(DTYPES[kind.parameters]) for _ in range(2))
    total = x.astype(np.float64) * (scale.astype(np.float64) if scaled else 1)
    total = total + (bias.astype(np.float64) if biased else 0)
    total = total + (residual.astype(np.float64) if kind.residual else 0)
    y = x if in_place else np.full(shape, np.nan, x.dtype)
    present = ((x, True), (scale, scaled), (bias, biased), (residual, kind.residual))
    at = [each.ctypes.data if is_there else 0 for each, is_there in present]
    (launch,) = followed.launch(cut, Operands(*at), y.ctypes.data)
    launches_of.run(library(kind), launch, seed)
    close(y, ACTIVATIONS[kind.activation](total), UNITS[kind.dtype])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_register_is_spilled(kind: FollowedKind) -> None:
    (used,) = kind.recipe().compile().report.values()
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
    assert used.registers * THREADS * RESIDENTS <= REGISTERS
