"""Many configurations at once: formulas say of columns, bit for bit, what they say of each configuration."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tapestry.kernels.convolution import (
    block_candidates,
    configuration,
    paired_candidates,
    weight_gradient_candidates,
    weight_gradient_configuration,
)
from tapestry.kernels.convolution import candidates as forward_candidates
from tapestry.kernels.convolution.configuration import ForwardConfiguration
from tapestry.kernels.convolution.problem import BadConvolution, ConvolutionProblem
from tapestry.kernels.convolution.recipes import walk
from tapestry.kernels.convolution.weight_gradient_configuration import Cut, WeightGradientConfiguration
from tapestry.kernels.cost import columns
from tapestry.kernels.cost.gpu import Gpu, known_gpu
from tapestry.kernels.cost.model import Pass, facts, predict_s

from ..shapes import SHAPES

SHARED = 100 << 10


def gpu(tuned: bool = True) -> Gpu:
    found = known_gpu("NVIDIA H200")
    assert found is not None
    return found if tuned else replace(found, sms=114, shared_per_block=SHARED, tuned=False)


@st.composite
def problems(draw: st.DrawFn) -> ConvolutionProblem:
    """Layers that kernels of narrow groups compute, and what is walked for their input gradients."""
    if draw(st.booleans()):
        problem = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    else:
        width, size = draw(st.sampled_from((1, 2, 4, 8, 16, 32))), draw(st.integers(1, 7))
        channels = max(8, width) * draw(st.integers(1, 30))
        steps = [draw(st.tuples(st.integers(1, 2), st.integers(1, 2))) for _ in range(2)]
        extents = draw(st.integers(1, 130)), draw(st.integers(7, 120)), draw(st.integers(7, 120))
        around = (size // 2, size // 2, size // 2, draw(st.integers(0, size)))
        try:
            problem = ConvolutionProblem(*extents, channels, channels // width, size, size, *steps, around)
        except BadConvolution:
            problem = SHAPES[min(SHAPES)]
    return walk(problem, "input_gradient").problem if draw(st.booleans()) and problem.narrow else problem


def same(many: Any, each: list[Any]) -> None:
    assert np.broadcast_to(many, len(each)).tolist() == each


def facts_agree(problem: ConvolutionProblem, what: Pass, cuts: list[Any]) -> None:
    """What is counted of many is what is counted of each."""
    found = facts(problem, what, columns.columns(cuts), gpu()).features()
    each = [facts(problem, what, cut, gpu()).features() for cut in cuts]
    for column, values in zip(found, zip(*each, strict=True), strict=True):
        same(column, list(values))


@given(problem=problems(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_forward_cuts(problem: ConvolutionProblem, data: st.DataObject) -> None:
    """Also those that are not legal: every field drawn by itself."""
    fields = st.builds(
        ForwardConfiguration,
        channels=st.sampled_from((8, 16, 32, 64)), images=st.integers(1, 9), units=st.integers(1, 16),
        tiles=st.integers(1, 4), octets=st.sampled_from((1, 2, 4)), stages=st.integers(2, 16),
        blocks=st.integers(1, 3), chunk=st.integers(1, 300), dynamic=st.booleans(), late=st.booleans(),
        filter=st.sampled_from(("registers", "staged", "shared")),
    )  # fmt: skip
    cuts = data.draw(st.lists(fields, min_size=1, max_size=6))
    many = columns.columns(cuts)
    same(configuration.legal(problem, many, SHARED), [configuration.legal(problem, cut, SHARED) for cut in cuts])
    guessed = [forward_candidates.guess(problem, cut, 132) for cut in cuts]
    same(forward_candidates.guess(problem, many, 132), guessed)
    facts_agree(problem, "forward", cuts)


@given(problem=problems(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_cuts_of_pairs(problem: ConvolutionProblem, data: st.DataObject) -> None:
    fields = st.builds(
        ForwardConfiguration,
        channels=st.sampled_from((32, 64)), images=st.integers(1, 16), units=st.integers(1, 16),
        tiles=st.integers(1, 2), stages=st.integers(2, 24), blocks=st.integers(1, 3), pairs=st.sampled_from((2, 4)),
        leaving=st.sampled_from((1, 1, 4, 5)), together=st.integers(1, 2),
        filter=st.sampled_from(("registers", "staged")),
    )  # fmt: skip
    cuts = data.draw(st.lists(fields, min_size=1, max_size=6))
    many = columns.columns(cuts)
    same(configuration.legal(problem, many, SHARED), [configuration.legal(problem, cut, SHARED) for cut in cuts])


@given(problem=problems(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_weight_gradients(problem: ConvolutionProblem, data: st.DataObject) -> None:
    fields = st.builds(
        WeightGradientConfiguration,
        channel_block=st.sampled_from((8, 16, 32, 64)), row_parts=st.integers(1, problem.r), units=st.integers(1, 16),
        images=st.integers(1, 8), out_blocks=st.just(1), share=st.sampled_from((1, 2, 4)), stages=st.integers(2, 17),
        residents=st.integers(1, 2), splits=st.integers(1, 9), together=st.booleans(),
    )  # fmt: skip
    chosen = data.draw(st.lists(fields, min_size=1, max_size=6))
    many, legal = columns.columns(chosen), weight_gradient_configuration.legal
    same(legal(Cut(problem, many), SHARED), [legal(Cut(problem, one), SHARED) for one in chosen])
    estimate = weight_gradient_candidates.estimate
    same(estimate(problem, many, 132), [estimate(problem, one, 132) for one in chosen])
    # A thread that may have no register at all has no share of them, of one or of many.
    if able := [one for one in chosen if Cut(problem, one).register_limit]:
        facts_agree(problem, "weight_gradient", able)


@given(problem=problems(), tuned=st.booleans())
@settings(max_examples=30, deadline=None)
def test_candidates_come_in_the_order_of_what_is_guessed_of_each(problem: ConvolutionProblem, tuned: bool) -> None:
    """And are legal, each by itself; nothing is there twice."""
    known = gpu(tuned)
    for module, guess in ((forward_candidates, forward_candidates.guess), (paired_candidates, paired_candidates.guess)):
        cuts = module.configurations(problem, known)
        assert all(configuration.legal(problem, cut, known.shared_per_block) for cut in cuts)
        guessed = [guess(problem, cut, known.sms) for cut in cuts]
        assert guessed == sorted(guessed)
        assert len(cuts) == len(set(cuts))
        assert all(type(cut.chunk) is int and type(cut.late) is bool for cut in cuts)
    *chosen, last = weight_gradient_candidates.configurations(problem, known)
    assert last.direct
    assert chosen == sorted(chosen, key=lambda one: (weight_gradient_candidates.estimate(problem, one, known.sms), one))
    assert all(weight_gradient_configuration.legal(Cut(problem, one), known.shared_per_block) for one in chosen)
    assert len(chosen) == len(set(chosen))


@pytest.mark.parametrize("what", ["forward", "input_gradient"])
def test_cuts_of_pairs_and_others_are_predicted_as_each_by_itself(what: Pass) -> None:
    """One of rows that are summed up together among them."""
    problem = ConvolutionProblem(64, 28, 28, 192, 192, 7, 7, padding=(3, 3, 3, 3))
    blocks = list(block_candidates.cuts(problem, gpu()))
    cuts = [
        *forward_candidates.configurations(problem, gpu())[:3],
        *paired_candidates.configurations(problem, gpu())[:3],
    ]
    mixed = [cut for pair in zip(cuts[::-1], [*cuts, *blocks], strict=False) for cut in pair]
    assert {cut.pairs > 0 for cut in mixed} == {True, False}
    seconds = predict_s(problem, what, mixed, gpu()).tolist()
    assert seconds == [float(predict_s(problem, what, [cut], gpu())[0]) for cut in mixed]


def test_plain_weight_gradients_are_predicted_beside_others() -> None:
    problem = ConvolutionProblem(8, 14, 14, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    *others, last = weight_gradient_candidates.configurations(problem, gpu())[-3:]
    options = [last, *others, last]
    seconds = predict_s(problem, "weight_gradient", options, gpu()).tolist()
    assert last.direct
    assert seconds == [float(predict_s(problem, "weight_gradient", [one], gpu())[0]) for one in options]
