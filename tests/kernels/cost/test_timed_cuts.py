"""The measured cuts of groups of any width and of depthwise convolutions, and when they decide."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from tapestry.kernels.convolution import paired_candidates, wide
from tapestry.kernels.convolution.configuration import ForwardConfiguration
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.cost import depthwise, model, timed_cuts
from tapestry.kernels.cost.gpu import tuned_gpu

MEASURED = ConvolutionProblem(128, 28, 28, 336, 14, 3, 3, padding=(1, 1, 1, 1))  # not as guessed
DEPTHWISE = ConvolutionProblem(128, 7, 7, 320, 320, 7, 7, padding=(3, 3, 3, 3))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_measured_problem_has_its_fastest_cut(dtype: str) -> None:
    problem = replace(MEASURED, dtype=dtype)
    for what in ("forward", "input_gradient"):
        fastest = timed_cuts.timed(problem, what)[0]
        assert tuple(astuple(cut) for _, cut in wide.cuts(problem, what, tuned_gpu())) == fastest.cuts
    chosen = wide.gradient_cut(problem, tuned_gpu())
    assert chosen is not None
    assert (astuple(chosen),) == timed_cuts.timed(problem, "weight_gradient")[0].cuts


def test_times_are_in_order_and_of_one_gpu() -> None:
    times = [each.microseconds for each in timed_cuts.timed(MEASURED, "forward")]
    assert len(times) > 1
    assert times == sorted(times)
    assert timed_cuts.timed(replace(MEASURED, n=127), "forward") == ()


def test_of_another_gpu_the_guess_decides() -> None:
    elsewhere = replace(tuned_gpu(), tuned=False)
    guessed = wide.cuts(replace(MEASURED, n=127), "forward", tuned_gpu())
    measured = wide.cuts(MEASURED, "forward", tuned_gpu())
    found = wide.cuts(MEASURED, "forward", elsewhere)
    assert [cut for _, cut in found] == [cut for _, cut in guessed]
    assert [cut for _, cut in found] != [cut for _, cut in measured]


def test_what_no_longer_fits_is_not_taken() -> None:
    """A GPU with so little shared memory that no measured cut is legal has another one, or none."""
    small = replace(tuned_gpu(), shared_per_block=48 << 10, shared_per_sm=50 << 10)
    fits = wide.cuts(MEASURED, "forward", small)
    known = [timed.cuts for timed in timed_cuts.timed(MEASURED, "forward")]
    assert tuple(astuple(cut) for _, cut in fits) not in known


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_measured_depthwise_weight_gradient_has_its_fastest_cut_and_time(dtype: str) -> None:
    problem = replace(DEPTHWISE, dtype=dtype)
    fastest = timed_cuts.timed(problem, "weight_gradient")[0]
    assert (astuple(depthwise.choose(problem, tuned_gpu())),) == fastest.cuts
    seconds = depthwise.predicted_s(problem, tuned_gpu())
    assert seconds == pytest.approx(1e-6 * (fastest.microseconds + depthwise.EVENTS_US))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_measured_depthwise_forward_pass_has_its_fastest_cut_and_time(dtype: str) -> None:
    problem = replace(DEPTHWISE, dtype=dtype)
    fastest = timed_cuts.timed(problem, "forward")[0]
    for what in ("forward", "input_gradient"):  # of one walk
        chosen = model.choose(problem, what, tuned_gpu())
        assert chosen == ForwardConfiguration(*fastest.cuts[0])
        assert model.predicted_s(problem, what, tuned_gpu()) == pytest.approx(1e-6 * fastest.microseconds)
    assert paired_candidates.measured(replace(problem, n=130), tuned_gpu()) is None
    assert paired_candidates.measured(problem, replace(tuned_gpu(), tuned=False)) is None
    assert paired_candidates.measured(problem, replace(tuned_gpu(), shared_per_block=48 << 10)) is None


def test_where_the_other_kernel_is_faster_than_all_that_was_measured_it_is_taken() -> None:
    problem = ConvolutionProblem(256, 14, 14, 24, 24, 5, 5, padding=(2, 2, 2, 2))
    assert timed_cuts.timed(problem, "weight_gradient")
    assert depthwise.choose(problem, tuned_gpu()) == model.choose(problem, "weight_gradient", tuned_gpu())


def test_depthwise_cuts_that_no_longer_fit_are_not_taken() -> None:
    small = replace(tuned_gpu(), shared_per_block=48 << 10)
    chosen = depthwise.choose(DEPTHWISE, small)
    assert (astuple(chosen),) not in [timed.cuts for timed in timed_cuts.timed(DEPTHWISE, "weight_gradient")]
