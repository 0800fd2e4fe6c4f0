"""Which cuts of a pass are worth timing, and what is kept of those that were timed, for later processes too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tapestry.kernels.convolution import choices, tuned, wide
from tapestry.kernels.convolution.configuration import ForwardConfiguration
from tapestry.kernels.convolution.configuration import legal as forward_legal
from tapestry.kernels.convolution.depthwise_weight_gradient_configuration import DepthwiseWeightGradient
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, Pass, recipes, recipes_of, walk
from tapestry.kernels.convolution.wide_forward_configuration import WideCut
from tapestry.kernels.convolution.wide_forward_configuration import legal as wide_legal
from tapestry.kernels.convolution.wide_weight_gradient import WideGradientCut, WideWeightGradient
from tapestry.kernels.convolution.wide_weight_gradient import legal as wide_gradient_legal
from tapestry.kernels.cost.contenders import contenders
from tapestry.kernels.cost.gpu import known_gpu
from tapestry.kernels.tensors import convolution_calls, library

from .processes import another_process
from .tuned_kinds import GPU, KINDS, SQUARE

# -- what is worth timing ----------------------------------------------------------------------------------------------


def is_legal(problem: ConvolutionProblem, what: Pass, cut: Any) -> bool:
    shared = GPU.shared_per_block
    if isinstance(cut, tuple):
        return bool(cut[1]) and all(
            wide_legal(WideCut(p.sweep, own), shared) for p, own in wide.sweeps(problem, what, cut)
        )
    if isinstance(cut, ForwardConfiguration):
        return bool(forward_legal(walk(problem, what).problem, cut, shared))
    if isinstance(cut, WideWeightGradient):
        return wide_gradient_legal(WideGradientCut(problem, cut), shared)
    return True


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_contenders_are_legal_unlike_and_begin_with_what_is_taken(kind: str, what: Pass) -> None:
    problem = KINDS[kind]
    found = contenders(problem, what, GPU, 8)
    assert 3 <= len(found) <= 8
    assert len(set(found)) == len(found)
    assert all(is_legal(problem, what, cut) for cut in found)
    assert recipes_of(problem, what, found[0], {}) == recipes(problem, what, GPU)
    assert contenders(problem, what, GPU, 1) == found[:1]


def test_contenders_of_depthwise_gradients_are_of_both_kernels() -> None:
    found = contenders(KINDS["depthwise 7 x 7"], "weight_gradient", GPU, 6)
    kinds = Counter(isinstance(cut, DepthwiseWeightGradient) for cut in found)
    assert min(kinds[True], kinds[False]) >= 2


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("kind", ["width 32", "width 32, large"])
def test_contenders_of_groups_of_32_are_of_both_kernels(kind: str, what: Pass) -> None:
    found = contenders(KINDS[kind], what, GPU, 6)
    kinds = Counter(isinstance(cut, tuple | WideWeightGradient) for cut in found)
    assert min(kinds[True], kinds[False]) >= 2
    by_warpgroups = isinstance(found[0], tuple | WideWeightGradient)
    assert by_warpgroups == wide.takes(KINDS[kind], what, GPU) == kind.endswith("large")


def test_what_only_the_plain_kernel_computes_has_no_contenders() -> None:
    assert contenders(replace(SQUARE, c=36, groups=3), "forward", GPU, 8) == []


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_fastest_is_what_is_chosen(kind: str, what: Pass, folder: Path) -> None:
    problem = KINDS[kind]
    first, *_, last = contenders(problem, what, GPU, 5)
    before = recipes(problem, what, GPU)
    tuned.keep(problem, what, GPU, False, last)
    for _ in range(2):
        assert recipes(problem, what, GPU) == recipes_of(problem, what, last, {}) != before
        assert contenders(problem, what, GPU, 1) == [last]
        another_process()
    others = [replace(problem, n=problem.n + 1), replace(problem, dtype="f16")]
    assert all(contenders(other, what, GPU, 1) != [last] or other == problem for other in others[:1])
    assert recipes(problem, what, replace(GPU, name="another")) == before or not GPU.tuned
    tuned.keep(problem, what, GPU, False, first)
    assert recipes(problem, what, GPU) == before


def test_ways_are_kept_apart_by_what_follows_the_sums(folder: Path) -> None:
    problem = KINDS["width 24"]
    last = contenders(problem, "forward", GPU, 5, fused=True)[-1]
    before = choices.sweeps(problem, "forward", GPU, False)
    tuned.keep(problem, "forward", GPU, True, last)
    assert choices.sweeps(problem, "forward", GPU, False) == before
    assert choices.sweeps(problem, "forward", GPU, True) == wide.sweeps(problem, "forward", last)


def test_whoever_was_faster_computes_as_cudnn_is_set(folder: Path) -> None:
    setting, other = library.setting(), "cuDNN 1, benchmark"
    guessed = choices.left_to_cudnn(SQUARE, "forward", GPU)
    for theirs in (3.0, 5.0):
        tuned.keep_times(SQUARE, "forward", GPU, setting, 4.0, theirs)
        tuned.keep_times(SQUARE, "forward", GPU, other, 4.0, 8.0 - theirs)
        for _ in range(2):
            assert convolution_calls.left_on(SQUARE, "forward", GPU) is (theirs < 4.0)
            assert tuned.left(SQUARE, "forward", GPU, other) is (theirs > 4.0)
            another_process()
    assert convolution_calls.left_on(SQUARE, "weight_gradient", GPU) == choices.left_to_cudnn(
        SQUARE, "weight_gradient", GPU
    )
    with torch.backends.cudnn.flags(benchmark=not torch.backends.cudnn.benchmark):
        assert library.setting() != setting
        assert convolution_calls.left_on(SQUARE, "forward", GPU) is guessed


def test_other_sources_of_kernels_find_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = contenders(SQUARE, "forward", GPU, 5)[-1]
    tuned.keep(SQUARE, "forward", GPU, False, last)
    another_process()
    for shelf in (tuned._cuts, tuned._times):
        monkeypatch.setattr(shelf, "_version", lambda: "another")
    assert tuned.cut(walk(SQUARE, "forward").problem, "forward", GPU) is None


@pytest.mark.parametrize("spoiled", [b"", b"TAPESTRY and no more"])
def test_what_does_not_read_back_is_not_there(folder: Path, spoiled: bytes) -> None:
    tuned.keep_times(SQUARE, "forward", GPU, "some", 4.0, 3.0)
    another_process()
    for path in folder.glob("*.kernel"):
        path.write_bytes(spoiled)
    assert tuned.left(SQUARE, "forward", GPU, "some") is None


def test_known_gpu_and_the_one_that_is_here_are_asked_alike() -> None:
    """`warm_up` and `replace_convolutions` ask for a named GPU, calls for the one that they run on."""
    assert known_gpu("H200") == replace(GPU, l2_bytes=known_gpu("H200").l2_bytes)  # type: ignore[union-attr]
