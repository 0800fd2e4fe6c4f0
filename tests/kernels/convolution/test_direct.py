"""The plain kernel on the host: g++ compiles the very source that NVRTC gets, with loops for blocks and threads."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import direct
from tapestry.kernels.convolution.launch import Rows, View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.runtime.compiler import compile_source

from .. import host_compiler

Array = NDArray[Any]
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
ACTIVATIONS = [None, "relu", "silu", "gelu"]

host_compiler.compiler()

HOST = """
#include <cmath>
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __expf expf
#define __fdividef(a, b) ((a) / (b))
static struct { unsigned x; } threadIdx, blockIdx;
"""
RUN = """
extern "C" void run(int blocks, const tapestry::direct::Pass* pass) {
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < 256; ++threadIdx.x) direct(*pass);
}
"""


@dataclass(frozen=True)
class Kind:
    """What a source depends on."""

    r: int
    s: int
    width: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    dtype: str
    transposed: bool = False
    fused: bool = False
    activation: str | None = None
    width_out: int = 0

    def problem(self, n: int, h: int, w: int, groups: int, padding: tuple[int, int, int, int]) -> ConvolutionProblem:
        steps = {"stride": self.stride, "dilation": self.dilation, "padding": padding, "dtype": self.dtype}
        out = groups * (self.width_out or self.width)
        return ConvolutionProblem(n, h, w, groups * self.width, groups, self.r, self.s, **steps, channels_out=out)


KINDS = [
    Kind(3, 3, 8, (1, 1), (1, 1), "f16"),
    Kind(3, 3, 8, (2, 2), (1, 1), "bf16", fused=True, activation="gelu"),
    Kind(5, 2, 1, (1, 2), (2, 1), "f16", fused=True, activation="silu"),
    Kind(1, 7, 4, (2, 1), (1, 2), "bf16", fused=True),
    Kind(3, 3, 2, (1, 1), (1, 1), "f16", fused=True, activation="relu"),
    Kind(3, 3, 8, (1, 1), (1, 1), "bf16", transposed=True),
    Kind(3, 3, 4, (2, 2), (1, 1), "f16", transposed=True),
    Kind(4, 5, 1, (2, 1), (2, 2), "f16", transposed=True),
    Kind(2, 1, 16, (1, 2), (1, 1), "bf16", transposed=True),
    Kind(3, 2, 1, (1, 2), (1, 1), "f16", fused=True, width_out=3),
    Kind(3, 2, 6, (2, 1), (1, 1), "bf16", transposed=True, width_out=4),
]


def sources(kind: Kind) -> str:
    problem = kind.problem(1, 40, 40, 1, (0, 0, 0, 0))
    fused = {"scale": kind.fused, "bias": kind.fused, "residual": kind.fused, "activation": kind.activation}
    return direct.source(problem, transposed=kind.transposed, **fused)


@functools.cache
def library(kind: Kind) -> ctypes.CDLL:
    return host_compiler.library(HOST + sources(kind) + RUN, "-std=c++20", "-O1", "-w")


def forward(problem: ConvolutionProblem, x: Array, w: Array) -> Array:
    """The definition, in f64: one sum over the taps."""
    top, bottom, left, right = problem.padding
    sides = [(max(a, 0), max(b, 0)) for a, b in ((top, bottom), (left, right))]
    wide = np.pad(x.astype(np.float64), ((0, 0), *sides, (0, 0)))
    wide = wide[:, max(-top, 0) : wide.shape[1] - max(-bottom, 0), max(-left, 0) : wide.shape[2] - max(-right, 0)]
    y = np.zeros(problem.output_shape)
    for r in range(problem.r):
        for s in range(problem.s):
            first, second = r * problem.dilation[0], s * problem.dilation[1]
            rows = slice(first, first + (problem.p - 1) * problem.stride[0] + 1, problem.stride[0])
            columns = slice(second, second + (problem.q - 1) * problem.stride[1] + 1, problem.stride[1])
            seen = wide[:, rows, columns].reshape(*y.shape[:3], problem.groups, problem.width)
            taps = w[:, r, s].astype(np.float64).reshape(problem.groups, problem.width_out, problem.width)
            y += np.einsum("npqgj,gkj->npqgk", seen, taps).reshape(y.shape)
    return y


def input_gradient(problem: ConvolutionProblem, dy: Array, w: Array) -> Array:
    """The adjoint by its definition: every output hands its gradient back to every input it read."""
    dx = np.zeros(problem.input_shape)
    top, _, left, _ = problem.padding
    taps = w.astype(np.float64).reshape(problem.groups, problem.width_out, problem.r, problem.s, problem.width)
    for p in range(problem.p):
        for q in range(problem.q):
            given = dy[:, p, q].astype(np.float64).reshape(-1, problem.groups, problem.width_out)
            back = np.einsum("ngk,gkrsj->nrsgj", given, taps).reshape(-1, problem.r, problem.s, problem.c)
            for r in range(problem.r):
                for s in range(problem.s):
                    y = p * problem.stride[0] + r * problem.dilation[0] - top
                    x = q * problem.stride[1] + s * problem.dilation[1] - left
                    if 0 <= y < problem.h and 0 <= x < problem.w:
                        dx[:, y, x] += back[:, r, s]
    return dx


def activated(value: Array, activation: str | None) -> Array:
    if activation == "relu":
        return np.maximum(value, 0)
    if activation == "silu":
        return value / (1 + np.exp(-value))
    if activation == "gelu":
        return value * 0.5 * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))
    return value


def view(x: Array, dtype: str) -> View:
    strides = [step // x.itemsize for step in x.strides[:3]]
    return View(x.ctypes.data, x.shape, (strides[0], strides[1], strides[2]), dtype)


def pointer(x: Array | None) -> int:
    return 0 if x is None else x.ctypes.data


def launch(
    kind: Kind, problem: ConvolutionProblem, rows: Rows, inputs: list[Array], w: Array, out: Array, **fused: Array
) -> None:
    views = tuple(view(x, kind.dtype) for x in inputs)
    residual = view(fused["residual"], kind.dtype) if kind.fused else None
    pointers = (w.ctypes.data, pointer(fused.get("scale")), pointer(fused.get("bias")))
    made = direct.launch(problem, rows, views, view(out, kind.dtype), residual, pointers)
    library(kind).run(made.grid, made.argument)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Kind, ConvolutionProblem]:
    kind = draw(st.sampled_from(KINDS))
    padding = tuple(draw(st.integers(-1, 4)) for _ in range(4))
    spans = [(extent - 1) * step + 1 for extent, step in zip((kind.r, kind.s), kind.dilation, strict=True)]
    low = [
        max(1, span - padding[2 * i] - padding[2 * i + 1], 1 - padding[2 * i], 1 - padding[2 * i + 1])
        for i, span in enumerate(spans)
    ]
    h, w = (draw(st.integers(least, least + 9)) for least in low)
    return kind, kind.problem(draw(st.integers(1, 3)), h, w, draw(st.integers(1, 3)), padding)  # type: ignore[arg-type]


@settings(max_examples=120)
@given(problems(), st.integers(0, 2**32 - 1), st.data())
def test_any_problem(chosen: tuple[Kind, ConvolutionProblem], seed: int, data: st.DataObject) -> None:
    kind, problem = chosen
    random, dtype = np.random.default_rng(seed), DTYPES[kind.dtype]

    def drawn(*shape: int) -> Array:
        return random.normal(size=shape).astype(dtype)

    given_shape, shape = problem.input_shape, problem.output_shape
    if kind.transposed:
        given_shape, shape = shape, given_shape
    x, w = drawn(*given_shape), drawn(*problem.weight_shape)
    wanted = input_gradient(problem, x, w) if kind.transposed else forward(problem, x, w)
    fused: dict[str, Array] = {}
    if kind.fused:
        fused = {
            "scale": random.normal(size=problem.k).astype("f4"),
            "bias": random.normal(size=problem.k).astype("f4"),
        }
        fused["residual"] = drawn(*shape)
        wanted = wanted * fused["scale"] + fused["bias"] + fused["residual"].astype(np.float64)
    wanted = activated(wanted, kind.activation)

    above = data.draw(st.integers(0, given_shape[1] - 1))
    below = data.draw(st.integers(0, given_shape[1] - 1 - above))
    end = given_shape[1] - below
    inputs = [np.ascontiguousarray(part) for part in (x[:, :above], x[:, above:end], x[:, end:])]
    first = data.draw(st.integers(0, shape[1] - 1))
    last = data.draw(st.integers(first + 1, shape[1]))
    # The middle buffer's first row is row 0: what lies above it moves the padding.
    top, bottom, left, right = problem.padding
    step = -1 if kind.transposed else 1
    shifted = replace(problem, padding=(top, bottom, left, right))
    if not kind.transposed:
        shifted = replace(problem, padding=(top + step * above, bottom, left, right)) if above else problem
    elif above:
        inputs, above, below = [x[:, :0], x, x[:, :0]], 0, 0
    out = np.full(shape, np.nan, dtype)
    launch(kind, shifted, Rows(first, last, above, below), inputs, w, out, **fused)
    assert np.isnan(out[:, :first].astype("f4")).all()
    assert np.isnan(out[:, last:].astype("f4")).all()
    got = out[:, first:last].astype(np.float64)
    depth = problem.r * problem.s * problem.width
    unit = 2.0**-10 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(got, wanted[:, first:last], rtol=unit, atol=unit * 0.25 + depth * 2e-6)


def test_strided_tensors_are_read_where_they_lie() -> None:
    kind = KINDS[0]
    problem = kind.problem(2, 6, 5, 1, (1, 1, 1, 1))
    random = np.random.default_rng(3)
    whole = random.normal(size=(2, 12, 5, 11)).astype(np.float16)
    x = whole[:, ::2, :, 3:]  # every second row, channels at an odd address
    w = random.normal(size=problem.weight_shape).astype(np.float16)
    out = np.full((2, 6, 7, 8), np.nan, np.float16)[:, :, 1:6]
    launch(kind, problem, Rows(0, 6), [x, x, x], w, out)
    np.testing.assert_allclose(out.astype("f8"), forward(problem, x, w), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_compiles_for_gpus_without_spills(kind: Kind, arch: str) -> None:
    made = compile_source(sources(kind), name=direct.NAME, arch=arch)
    assert (made.spill_stores, made.stack) == (0, 0)
    assert made.entries[direct.NAME].parameters == (ctypes.sizeof(ctypes.c_int64) * 23 + 48,)
