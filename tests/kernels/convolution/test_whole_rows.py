"""Rows that are copied whole: for which tensors, and that others have boxes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapestry.kernels.convolution import (
    choices,
    configuration,
    weight_gradient_configuration,
    wide,
    wide_candidates,
    wide_forward,
    wide_sweep,
)
from tapestry.kernels.convolution.candidates import FLAT_SHARE
from tapestry.kernels.convolution.launch import View, in_lines
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, Pass, recipes, walk
from tapestry.kernels.convolution.wide_forward_configuration import WideCut
from tapestry.kernels.cost import model
from tapestry.kernels.cost.contenders import contenders
from tapestry.kernels.cost.gpu import tuned_gpu

MANY = ConvolutionProblem(128, 56, 56, 72, 72, 3, 3, padding=(1, 1, 1, 1))


def flat(problem: ConvolutionProblem, what: Pass, whole: bool = True) -> bool:
    """Whether what is chosen copies rows whole."""
    if what == "weight_gradient":
        return bool(getattr(choices.gradient_cut(problem, tuned_gpu(), whole), "flat", False))
    return bool(choices.cut(walk(problem, what).problem, what, tuned_gpu(), whole).flat)


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize(
    "problem",
    [
        MANY,
        replace(MANY, c=24, groups=24),
        replace(MANY, c=16, groups=2, h=112, w=112),
        replace(MANY, r=5, s=5, stride=(2, 2), padding=(2, 2, 2, 2)),
        replace(MANY, n=32, c=24, groups=24, h=190, w=190),
    ],
)
def test_tensors_of_few_channels_whose_boxes_are_empty_in_part(problem: ConvolutionProblem, what: Pass) -> None:
    assert flat(problem, what)
    assert not flat(problem, what, whole=False)
    assert any(getattr(cut, "flat", False) for cut in contenders(problem, what, tuned_gpu(), 5))


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize(
    "problem",
    [
        replace(MANY, n=8),
        replace(MANY, c=80, groups=80),
        replace(MANY, r=5, s=5, padding=(2, 2, 2, 2)),
        replace(MANY, c=16, groups=16),
        replace(MANY, c=24, groups=8),
        replace(MANY, padding=(1, 1, -1, 1)),
    ],
)
def test_others_have_boxes(problem: ConvolutionProblem, what: Pass) -> None:
    """Few bytes, other channels, long filters, short rows of few channels, groups of three; rows that are cut."""
    if what == "input_gradient" and problem.padding[2] < 0:
        pytest.skip("of dy no column is left out there")
    found = choices.sweeps(problem, what, tuned_gpu(), False) if what != "weight_gradient" else ()
    assert found or not flat(problem, what)


def test_every_second_column_is_no_stretch_of_memory() -> None:
    """The same cut as for other tensors, and the kernels that are compiled ahead are those that are launched."""
    problem = replace(MANY, n=256, r=1, s=1, stride=(2, 2), padding=(0, 0, 0, 0))
    walked = walk(problem, "forward")
    x = View.dense(0, problem.input_shape, "f16")
    assert in_lines(x)
    assert not in_lines(walked.read(x))
    assert not in_lines(View(0, problem.input_shape, (1 << 20, 1 << 12, 80), "f16"))
    cut = choices.cut(walked.problem, "forward", tuned_gpu(), whole=False)
    (recipe,) = recipes(problem, "forward", tuned_gpu())
    assert f"CHANNELS = {cut.channels}," in recipe.source or f"CHANNELS = {cut.channels};" in recipe.source


def test_they_promise_a_part_of_the_time_by_boxes() -> None:
    gpu = tuned_gpu()
    by_boxes = model._chosen(MANY, "forward", gpu, False)[1]
    assert model.predicted_s(MANY, "forward", gpu) == pytest.approx(FLAT_SHARE[72] * by_boxes)


def test_a_block_has_all_channels_and_columns() -> None:
    shared = tuned_gpu().shared_per_block
    cut = choices.cut(MANY, "forward", tuned_gpu())
    assert configuration.legal(MANY, cut, shared)
    for other in (replace(MANY, c=144, groups=144), replace(MANY, w=66), replace(MANY, padding=(1, 1, -1, 1))):
        assert not configuration.legal(other, cut, shared)
    chosen = choices.gradient_cut(MANY, tuned_gpu())
    assert isinstance(chosen, weight_gradient_configuration.WeightGradientConfiguration)
    two = replace(chosen, images=2, stages=3)
    assert weight_gradient_configuration.legal(weight_gradient_configuration.Cut(MANY, two), shared)
    odd = weight_gradient_configuration.Cut(replace(MANY, n=127), two)
    assert not weight_gradient_configuration.legal(odd, shared)


GROUPS = ConvolutionProblem(128, 28, 28, 120, 5, 3, 3, padding=(1, 1, 1, 1))


@pytest.mark.parametrize("what", ["forward", "input_gradient"])
@pytest.mark.parametrize(
    ("problem", "whole"),
    [
        (GROUPS, True),
        (replace(GROUPS, h=112, w=112, n=64, c=24, groups=1), True),
        (replace(GROUPS, h=112, w=112, n=64, c=24, groups=8), True),
        (replace(GROUPS, h=56, w=56, c=48, groups=2), False),  # an even number of octets
        (replace(GROUPS, c=336, groups=14), False),  # more than a block has
        (replace(GROUPS, padding=(1, 1, 3, 3)), False),  # an input gradient's windows begin within dy
    ],
)
def test_rows_of_wide_groups_come_whole_where_a_block_has_them(
    problem: ConvolutionProblem, what: wide.Walked, whole: bool
) -> None:
    """As the kernels that are compiled ahead are, of dense tensors; of others the same cut has boxes."""
    if what == "forward" and problem.padding[2] > problem.s - 1:
        pytest.skip("only windows of an input gradient begin within it")
    found = wide.cuts(problem, what, tuned_gpu())
    ((_, launch),) = wide.launches(found)
    assert launch.cuts[0].flat == whole
    assert ("FLAT = true" in wide_forward.source(launch, {})) == whole
    ((_, boxed),) = wide.launches(found, whole=False)
    assert not boxed.cuts[0].flat
    assert boxed.cuts[0].configuration == launch.cuts[0].configuration
    assert boxed.shared == launch.shared


def test_sweeps_of_parities_have_boxes() -> None:
    """Their outputs are every second column."""
    problem = replace(GROUPS, stride=(2, 2))
    parts = wide_sweep.ways(problem, "input_gradient")[1]
    cuts = wide.options(parts, tuned_gpu(), False)[0]
    launches = wide.launches(tuple(zip(parts, cuts, strict=True)))
    assert not any(cut.flat for _, launch in launches for cut in launch.cuts)


def test_of_rows_that_come_whole_one_depth_is_tried() -> None:
    """The most that there is room for, since with more under way than that they take longer."""
    ((part,),) = wide_sweep.ways(GROUPS, "forward")
    cuts = list(wide_candidates.all_cuts(part.sweep, tuned_gpu(), False, whole=True))
    flat = [cut for cut in cuts if WideCut(part.sweep, cut, whole=True).flat]
    assert flat
    assert len(flat) == len({replace(cut, stages=0) for cut in flat})
    assert len(cuts) > len({replace(cut, stages=0) for cut in cuts})
