"""The weight gradient of depthwise convolutions: its very text on the host against NumPy, and what it compiles to."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import depthwise_weight_gradient, weight_gradient
from tapestry.kernels.convolution.depthwise_weight_gradient_configuration import (
    DepthwiseWeightGradient as Configuration,
)
from tapestry.kernels.convolution.depthwise_weight_gradient_configuration import configurations, first_rows
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import recipes
from tapestry.kernels.cost import depthwise as cost
from tapestry.kernels.cost import model, timed_cuts
from tapestry.kernels.cost.gpu import tuned_gpu
from tapestry.kernels.errors import WrongValue

from .. import host_compiler
from ..machine_code import LOAD_SHARED, arrivals_before_their_loads, instructions
from . import emulated

pytestmark = pytest.mark.long

Array = NDArray[Any]
host_compiler.compiler()

Kind = emulated.Kind[Configuration]
KINDS = [  # octets, shares, images, units, columns of a unit, stages, splits, together
    Kind(Configuration(2, 2, 4, 2, 7, 3, 3), 7, 7, width=1),  # registers are traded; two images a product
    Kind(Configuration(4, 1, 2, 3, 8, 2, 2), 7, 7, width=1, dtype="bf16"),  # odd units, places without one
    Kind(Configuration(8, 1, 1, 2, 7, 3, 2), 3, 5, width=1, dtype="bf16"),  # several column tiles
    Kind(Configuration(4, 1, 3, 2, 8, 3, 2), 4, 6, width=1),
    Kind(Configuration(1, 2, 5, 3, 7, 3, 1), 3, 2, width=1),
    Kind(Configuration(1, 3, 2, 2, 8, 4, 1), 1, 7, width=1),  # one row of dy is met
    Kind(Configuration(2, 1, 8, 1, 7, 2, 2), 7, 3, width=1),
    Kind(Configuration(1, 2, 1, 3, 8, 4, 2), 6, 7, width=1),
    Kind(Configuration(4, 1, 4, 2, 7, 3, 3, True), 7, 7, width=1, dtype="bf16"),
    Kind(Configuration(2, 2, 1, 3, 8, 3, 1, True), 5, 5, width=1),
    Kind(Configuration(1, 1, 2, 2, 8, 2, 8, True), 3, 3, width=1),  # ranks without a row, some of which add no sums
]


@functools.cache
def library(kind: Kind, top: int, first: tuple[int, int]) -> ctypes.CDLL:
    problem = kind.problem(1, 40, 40, 8, (top, 0, 0, 0))
    names = {name for partial in (False, True) for name in weight_gradient.kernel_names(kind.cut, partial)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depthwise_weight_gradient, "first_rows", lambda *_: first)
        return host_compiler.emulated(weight_gradient.source(problem, kind.cut), *sorted(names))


def seen(problem: ConvolutionProblem, x: Array, r: int, s: int) -> Array:
    """What tap (r, s) meets of x, for every output, in f64: zeros outside."""
    top, _, left, _ = problem.padding
    ys, xs = np.arange(problem.p) + r - top, np.arange(problem.q) + s - left
    inside = ((ys >= 0) & (ys < problem.h))[:, None] & ((xs >= 0) & (xs < problem.w))[None, :]
    met = x.astype(np.float64)[:, ys.clip(0, problem.h - 1)][:, :, xs.clip(0, problem.w - 1)]
    return np.where(inside[None, :, :, None], met, 0.0)


def expected(problem: ConvolutionProblem, x: Array, dy: Array) -> Array:
    """The definition in f64, tap by tap."""
    dw = np.zeros(problem.weight_shape)
    for r in range(problem.r):
        for s in range(problem.s):
            dw[:, r, s, 0] = (seen(problem, x, r, s) * dy.astype(np.float64)).sum((0, 1, 2))
    return dw


@st.composite
def problems(draw: st.DrawFn) -> tuple[Kind, ConvolutionProblem, int]:
    kind = draw(st.sampled_from(KINDS))
    side = st.integers(-1, 3)
    padding = (draw(side), draw(side), draw(side), draw(side))
    n, h, w, octets = (draw(st.integers(1, most)) for most in (4, 13, 21, 9))
    h, w = max(h, kind.r - padding[0] - padding[1]), max(w, kind.s - padding[2] - padding[3])
    return kind, kind.problem(n, h, w, 8 * octets, padding), draw(st.integers(0, 999))


def run(kind: Kind, problem: ConvolutionProblem, x: Array, dy: Array, out: Array, seed: int) -> None:
    """Both launches into `out`, in f32 or rounded."""
    views = [View.dense(each.ctypes.data, each.shape, problem.dtype) for each in (x, dy)]
    partials = np.full(weight_gradient.workspace_bytes(problem, kind.cut) // 4, np.nan, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depthwise_weight_gradient, "tensor_map", emulated.tensor_map)
        made = weight_gradient.launches(problem, kind.cut, *views, partials.ctypes.data, out.ctypes.data)
    for name, launch in zip(weight_gradient.kernel_names(kind.cut, out.dtype == np.float32), made, strict=True):
        loaded = library(kind, problem.padding[0] % kind.r, first_rows(problem, kind.cut))
        entry = getattr(loaded, f"run_{name}")
        _, cluster, _ = emulated.three(launch.cluster)
        emulated.start(entry, launch.grid, launch.block, launch.arguments, seed, cluster)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_it_is_the_definition_and_the_same_bits_whatever_the_order_of_lanes(
    case: tuple[Kind, ConvolutionProblem, int],
) -> None:
    kind, problem, seed = case
    rng = np.random.default_rng(seed)
    shapes = problem.input_shape, problem.output_shape
    x, dy = (rng.normal(size=shape).astype(emulated.DTYPES[problem.dtype]) for shape in shapes)
    wide = [np.full(problem.weight_shape, np.nan, np.float32) for _ in range(2)]
    for number, out in enumerate(wide):
        run(kind, problem, x, dy, out, seed + number)
    assert np.allclose(wide[0], expected(problem, x, dy), rtol=1e-5, atol=1e-5 * problem.n * problem.p * problem.q)
    assert wide[0].tobytes() == wide[1].tobytes()
    rounded = np.full(problem.weight_shape, np.nan, emulated.DTYPES[problem.dtype])
    run(kind, problem, x, dy, rounded, seed)
    assert np.array_equal(rounded, wide[0].astype(rounded.dtype))


def depthwise(extent: int, channels: int, size: int, **more: Any) -> ConvolutionProblem:
    half = size // 2
    return ConvolutionProblem(
        64, extent, extent, channels, channels, size, size, padding=(half, half, half, half), **more
    )


@pytest.mark.parametrize("problem", [depthwise(56, 96, 7, dtype="bf16"), depthwise(14, 384, 7), depthwise(28, 240, 5)])
def test_nothing_is_spilled_where_registers_are_scarcest(problem: ConvolutionProblem) -> None:
    """Of cuts whose places of the depth all have a unit, and of others."""
    options = configurations(problem, tuned_gpu())
    for whole in (True, False):
        alike = (cut for cut in options if (cut.images * cut.units == 8 * cut.shares) == whole)
        for cut in sorted(alike, key=lambda cut: (cut.together, cut.unit))[-1:]:
            (recipe, *_) = weight_gradient.recipes(problem, cut, partial=False)
            made = recipe.compile("sm_90")
            assert (made.spill_stores, made.spill_loads, made.stack) == (0, 0, 0), (cut, made.registers)


@pytest.mark.parametrize("problem", [depthwise(28, 192, 7, dtype="bf16"), depthwise(12, 1632, 5)])
def test_no_group_is_given_back_before_what_was_loaded_of_it_is_there(problem: ConvolutionProblem) -> None:
    """In the machine code: by the assembler's order an arrival that waits for nothing is ahead of the last loads."""
    for cut in configurations(problem, tuned_gpu())[::3]:
        (recipe, *_) = weight_gradient.recipes(problem, cut, partial=False)
        code = instructions(recipe.compile("sm_90").cubin, recipe.name)
        assert sum(found.opcode == LOAD_SHARED for found in code) > 5 * problem.r
        assert sum(found.arrives for found in code) >= 2
        assert arrivals_before_their_loads(code) == [], cut


@pytest.mark.parametrize("together", [False, True])
def test_what_is_packed_is_as_large_as_the_parameters(together: bool) -> None:
    problem = depthwise(28, 192, 7)
    cut = next(cut for cut in configurations(problem, tuned_gpu()) if cut.together == together)
    views = View.dense(0, problem.input_shape, "f16"), View.dense(0, problem.output_shape, "f16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depthwise_weight_gradient, "tensor_map", emulated.tensor_map)
        made = weight_gradient.launches(problem, cut, *views, 0, 0)
    (recipe, *_) = weight_gradient.recipes(problem, cut, partial=False)
    entries = recipe.compile("sm_90").entries
    for name, launch in zip(weight_gradient.kernel_names(cut, partial=False), made, strict=True):
        given = [len(value) if isinstance(value, bytes) else size for value, size in
                 zip(launch.arguments, entries[name].parameters, strict=True)]  # fmt: skip
        assert given == list(entries[name].parameters)


@pytest.mark.parametrize("other", [depthwise(28, 20, 7), depthwise(28, 240, 5, stride=(2, 2)),
                                   ConvolutionProblem(4, 28, 28, 64, 8, 7, 7)])  # fmt: skip
def test_other_problems_have_no_configuration_and_are_refused_one(other: ConvolutionProblem) -> None:
    assert configurations(other, tuned_gpu()) == []
    with pytest.raises(WrongValue, match="of another problem"):
        weight_gradient.require(other, Configuration(), tuned_gpu().shared_per_block)


@pytest.mark.parametrize("problem", [depthwise(56, 96, 7), depthwise(28, 192, 7, dtype="bf16"), depthwise(14, 384, 7),
                                     depthwise(7, 768, 7)])  # fmt: skip
def test_it_is_chosen_where_it_was_the_faster_and_what_is_compiled_is_what_runs(problem: ConvolutionProblem) -> None:
    chosen = cost.choose(problem, tuned_gpu())
    assert isinstance(chosen, Configuration)
    assert cost.predicted_s(problem, tuned_gpu()) < model.predicted_s(problem, "weight_gradient", tuned_gpu())
    found = [(recipe.name, recipe.source) for recipe in recipes(problem, "weight_gradient", tuned_gpu())]
    text = weight_gradient.source(problem, chosen)
    assert found == [(name, text) for name in weight_gradient.kernel_names(chosen, partial=False)]


def test_of_cuts_that_count_alike_that_whose_lanes_meet_fewest_banks_again_is_guessed() -> None:
    """Rows of 56 are eight units of seven columns or seven of eight: 26.2 and 28.9 µs for 64 images of 96 channels."""
    problem = depthwise(56, 104, 7)
    assert not timed_cuts.timed(problem, "weight_gradient")
    chosen = cost.choose(problem, tuned_gpu())
    assert isinstance(chosen, Configuration)
    assert (chosen.units, chosen.unit) == (8, 7)


SLOWER = [depthwise(14, 480, 3), depthwise(28, 240, 3), depthwise(112, 96, 3, stride=(2, 2))]


@pytest.mark.parametrize("problem", SLOWER)
def test_it_is_not_where_it_was_the_slower(problem: ConvolutionProblem) -> None:
    usual = model.choose(problem, "weight_gradient", tuned_gpu())
    assert cost.choose(problem, tuned_gpu()) == usual
    assert cost.predicted_s(problem, tuned_gpu()) == model.predicted_s(problem, "weight_gradient", tuned_gpu())
