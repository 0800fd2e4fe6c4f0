"""The weight gradient of wide groups, its kernels' very text run on the host against NumPy."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import wide_rows, wide_weight_gradient
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.wide_weight_gradient import WideGradientCut
from tapestry.kernels.convolution.wide_weight_gradient import WideWeightGradient as Cut

from .. import host_compiler
from . import emulated
from .test_direct import DTYPES
from .test_direct import view as dense_view
from .test_forward_host import small, stored

pytestmark = pytest.mark.long

Array = NDArray[Any]

host_compiler.compiler()
SHARED = 227 << 10  # bytes that a block may have


@dataclass(frozen=True)
class Kind(emulated.Kind[Cut]):
    """What a source depends on."""


def cut(columns: int, images: int = 1, groups: int = 1, parts: int = 1, x_parts: int = 1, gathered: int = 0) -> Cut:
    """`gathered`: rows under way where what is left over is gathered."""
    return Cut(groups, parts, x_parts, images, columns, gathered or 2, 1, 1, gathered=gathered > 0)


# Lines of 32, 64 and 128 bytes, parts of both that do not divide, several groups and tiles, images of one unit and
# of two, and of columns that are no whole units; octets left over in one product and in two, beside whole tiles and
# alone, with rows under way that are as few as can be and more, and more steps than are loaded together.
KINDS = [
    Kind(cut(16), 3, 3, width=16),
    Kind(cut(8, images=4), 3, 3, width=24),
    Kind(cut(7, images=16, groups=2), 3, 3, width=32, dtype="bf16"),
    Kind(cut(16), 3, 2, width=32, stride=(2, 2)),
    Kind(cut(16, images=2), 3, 3, width=40, dtype="bf16"),
    Kind(cut(32, groups=2), 2, 3, width=24, stride=(2, 1), dilation=(1, 2)),
    Kind(cut(16, parts=2), 3, 2, width=40, stride=(1, 2), dilation=(2, 1)),
    Kind(cut(8, images=2, x_parts=2), 3, 3, width=72),
    Kind(cut(16, x_parts=2), 3, 3, width=3, stride=(2, 2)),
    Kind(cut(32), 1, 1, width=12, dtype="bf16"),
    Kind(cut(16), 3, 2, width=1, width_out=4, stride=(1, 2)),
    Kind(cut(16, parts=2, x_parts=3), 2, 3, width=40, width_out=24, dtype="bf16"),
    Kind(cut(16, parts=3, x_parts=2), 3, 3, width=24),  # an octet of dy, for whose line there is no swizzle so narrow
    # Ten and fourteen octets of x, of which four positions load the other one of two.
    Kind(cut(16, parts=2), 2, 3, width=80, stride=(1, 2)),
    Kind(cut(16, parts=7, gathered=5), 3, 3, width=112, dtype="bf16"),
    Kind(cut(7, images=16, gathered=4), 3, 3, width=24),
    Kind(cut(14, images=8, groups=2, gathered=3), 3, 3, width=24, dtype="bf16"),
    Kind(cut(6, images=8, gathered=5), 3, 3, width=48, dilation=(2, 1)),
    Kind(cut(12, images=4, gathered=4), 3, 3, width=56, stride=(2, 2)),
    Kind(cut(24, images=2), 3, 3, width=24, stride=(1, 2)),
    Kind(cut(16, x_parts=3, gathered=6), 5, 3, width=24, dilation=(1, 2)),
    Kind(cut(48, x_parts=2, parts=2, gathered=5), 5, 5, width=16, width_out=24),
    # No room for a row of zeros; sums in the order of the filter.
    Kind(replace(cut(14, images=16, groups=2), stages=3, spare=1), 3, 3, width=24),
    Kind(cut(16), 3, 3, width=5, dtype="bf16"),
]


def test_zeros_are_few_where_there_is_no_room() -> None:
    few = [WideGradientCut(kind.problem(1, 40, 40, kind.octets(), (0, 0, 0, 0)), kind.cut).few_zeros for kind in KINDS]
    assert any(few)
    assert not all(few)


@functools.cache
def library(problem: ConvolutionProblem, chosen: Cut, partial: bool) -> ctypes.CDLL:
    names = {name for kind in (False, True) for name in wide_weight_gradient.names(problem, chosen, kind)}
    return host_compiler.emulated(wide_weight_gradient.source(problem, chosen, partial), *sorted(names))


def weight_gradient(problem: ConvolutionProblem, x: Array, dy: Array) -> Array:
    """The definition, in f64: one product for each tap."""
    top, bottom, left, right = problem.padding
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    dw = np.zeros(problem.weight_shape)
    apart = (problem.n, problem.p, problem.q, problem.groups)
    given = dy.astype(np.float64).reshape(*apart, problem.width_out)
    for r in range(problem.r):
        for s in range(problem.s):
            first, second = r * problem.dilation[0], s * problem.dilation[1]
            rows = slice(first, first + (problem.p - 1) * problem.stride[0] + 1, problem.stride[0])
            columns = slice(second, second + (problem.q - 1) * problem.stride[1] + 1, problem.stride[1])
            found = np.einsum("npqgk,npqgj->gkj", given, wide[:, rows, columns].reshape(*apart, problem.width))
            dw[:, r, s] = found.reshape(problem.k, problem.width)
    return dw


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.r}x{kind.s} width {kind.width} {kind.stride}")
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(), splits=st.integers(1, 3), seed=st.integers(0, 999), partial=st.booleans(), clustered=st.booleans()
)
def test_the_kernels_sum_the_weight_gradient(
    kind: Kind, data: st.DataObject, splits: int, seed: int, partial: bool, clustered: bool
) -> None:
    """By one split, by several that a second launch adds, and by several that are a cluster."""
    tile = kind.cut.columns * kind.stride[1] if kind.cut.images > 1 else 0
    problem = data.draw(emulated.wide_problems(kind, tile))
    chosen = replace(kind.cut, splits=1)
    if chosen.images > 1 and WideGradientCut(problem, chosen).column_tiles > 1:
        return
    splits = min(splits, WideGradientCut(problem, chosen).work)
    check(kind, problem, replace(chosen, splits=splits, clustered=clustered and splits > 1), partial, seed)


@pytest.mark.parametrize("kind", [
    pytest.param(Kind(cut(8, images=2, x_parts=2), 3, 3, width=72), id="lines of dy side by side"),
    pytest.param(Kind(cut(16, images=2), 3, 3, width=40), id="more sums than the rings have room for"),
    pytest.param(Kind(cut(7, images=16, gathered=3), 3, 3, width=24), id="gathered"),
])  # fmt: skip
@pytest.mark.parametrize("splits", [2, 5])
def test_clusters_of_every_shape_sum_it(kind: Kind, splits: int) -> None:
    """The blocks of a cluster differ in their addresses, and leave sums where rings have been, and beyond."""
    problem = kind.problem(7, 7, 7, kind.octets(), (1, 1, 1, 1))
    check(kind, problem, replace(kind.cut, splits=splits, clustered=True), partial=False, seed=splits)


def check(kind: Kind, problem: ConvolutionProblem, chosen: Cut, partial: bool, seed: int) -> None:
    """All of a gradient that is NaN before; of numbers of two bytes, at any address."""
    random = np.random.default_rng(seed)
    x, dy = small(random, problem.input_shape, kind.dtype), small(random, problem.output_shape, kind.dtype)
    assert wide_weight_gradient.legal(WideGradientCut(problem, chosen), SHARED)
    alike = kind.problem(1, 40, 40, kind.octets(), (0, 0, 0, 0))
    alone = not chosen.apart
    loaded = library(alike, replace(chosen, splits=2) if chosen.apart else chosen, partial and alone)
    room = np.full(wide_weight_gradient.workspace_bytes(problem, chosen) // 4, np.nan, np.float32)
    dw = np.full(problem.weight_shape, np.nan, np.float32 if partial else DTYPES[kind.dtype])
    if not partial:
        dw = stored(dw, seed % 3)
    with pytest.MonkeyPatch.context() as patch:
        emulated.use_maps(patch, wide_weight_gradient, wide_rows)
        views = (dense_view(x, kind.dtype), dense_view(dy, kind.dtype))
        made = wide_weight_gradient.launches(problem, chosen, *views, room.ctypes.data, dw.ctypes.data)
    for name, launch in zip(wide_weight_gradient.names(problem, chosen, partial), made, strict=True):
        run, cluster = getattr(loaded, f"run_{name}"), (*launch.cluster, 1)[1]
        emulated.start(run, launch.grid, launch.block, launch.arguments, seed, cluster)
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(dw.astype("f8"), weight_gradient(problem, x, dy), rtol=0 if partial else unit, atol=unit)
