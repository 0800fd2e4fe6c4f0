"""cuDNN's times, and who computes a pass."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES
from tapestry.kernels.cost import cudnn, cudnn_train
from tapestry.kernels.cost.cudnn import Layer, cudnn_s, is_faster, ours_s
from tapestry.kernels.cost.gpu import known_gpu, tuned_gpu

GPU = tuned_gpu()
PROBLEM = ConvolutionProblem(128, 14, 14, 480, 480, 5, 5, padding=(2, 2, 2, 2), dtype="bf16")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[Layer, tuple[float, ...]]:
    """Times in microseconds that are known; no model."""
    known: dict[Layer, tuple[float, ...]] = {}
    monkeypatch.setattr(cudnn, "_measured_us", lambda: known)
    monkeypatch.setattr(cudnn, "_forests", dict)
    cudnn.cudnn_s.cache_clear()
    return known


def test_a_pass_is_left_to_whoever_is_faster(told: dict[Layer, tuple[float, ...]]) -> None:
    ours = [ours_s(PROBLEM, what, GPU) * 1e6 for what in PASSES]
    told[Layer(128, 14, 480, 1, 5)] = (ours[0] * 0.9, ours[1] * 1.1, ours[2] * 0.5)
    assert [is_faster(PROBLEM, what, GPU) for what in PASSES] == [True, False, True]


def test_a_pass_is_not_left_for_three_percent_that_are_guessed(told: dict[Layer, tuple[float, ...]]) -> None:
    """Of a small depthwise layer one gradient was, by 2 %: both together took the host three times as long."""
    ours = [ours_s(PROBLEM, what, GPU) * 1e6 for what in PASSES]
    told[Layer(128, 14, 480, 1, 5)] = (ours[0] * 0.96, ours[1] * 0.98, ours[2] * 0.98)
    assert [is_faster(PROBLEM, what, GPU) for what in PASSES] == [True, False, False]
    small = ConvolutionProblem(8, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1), dtype="bf16")
    told[Layer.of(small)] = tuple(0.98e6 * ours_s(small, what, GPU) for what in PASSES)  # type: ignore[index]
    assert not any(is_faster(small, what, GPU) for what in PASSES)


def test_wide_groups_are_left_to_it_where_they_are_hardly_faster(told: dict[Layer, tuple[float, ...]]) -> None:
    """Their guesses are less certain: 128 x 2048 x 7 x 7 was guessed 58 us and takes 68, where cuDNN takes 60."""
    problem = ConvolutionProblem(128, 7, 7, 2048, 16, 3, 3, padding=(1, 1, 1, 1))
    guessed = [ours_s(problem, what, GPU) * 1e6 for what in PASSES]
    told[Layer(128, 7, 2048, 128, 3)] = (guessed[0] * 1.1, guessed[1] * 0.9, guessed[2] * 1.3)
    assert [is_faster(problem, what, GPU) for what in PASSES] == [True, True, False]


@pytest.mark.parametrize(("share", "left"), [(1.1, [True, False]), (0.5, [True, True]), (1.3, [False, False])])
def test_what_follows_is_counted_where_torch_would_take_steps(
    share: float, left: list[bool], told: dict[Layer, tuple[float, ...]]
) -> None:
    dense = ConvolutionProblem(128, 64, 64, 120, 1, 7, 7, padding=(3, 3, 3, 3), dtype="bf16")
    told[Layer(128, 64, 120, 120, 7)] = (share * 1e6 * ours_s(dense, "forward", GPU), 1.0, 1.0)
    assert [is_faster(dense, "forward", GPU, followed) for followed in (False, True)] == left


def test_where_nothing_is_known_ours_computes(told: dict[Layer, tuple[float, ...]]) -> None:
    assert cudnn_s(PROBLEM, "forward", GPU) is None
    assert not is_faster(PROBLEM, "forward", GPU)
    told[Layer(128, 14, 480, 1, 5)] = (0.001,) * 3
    other = known_gpu("H100")
    assert other is not None
    assert not is_faster(PROBLEM, "forward", other)
    assert not is_faster(replace(PROBLEM, dilation=(2, 2)), "forward", GPU)


def test_other_channels_out_are_a_layer_of_their_own() -> None:
    """Its bytes and products are counted, so that the trees tell its time; that of the layer beside it is not taken."""
    wide = ConvolutionProblem(64, 28, 28, 96, 12, 3, 3, padding=(1, 1, 1, 1), channels_out=192)
    layer = Layer.of(wide)
    assert layer == Layer(64, 28, 96, 8, 3, channels_out=192)
    assert (layer.bytes_moved, layer.products) == (wide.bytes_moved, wide.flops // 2)
    for what in PASSES:
        theirs = cudnn_s(wide, what, GPU)
        assert theirs is not None
        assert theirs > GPU.roofline_s(wide.bytes_moved)
        assert is_faster(wide, what, GPU) == (theirs < cudnn.DOUBT * ours_s(wide, what, GPU))


def test_what_only_the_plain_kernel_computes_is_left_to_cudnn() -> None:
    ampere = known_gpu("A100")
    assert ampere is not None
    widths = ConvolutionProblem(64, 28, 28, 96, 4, 3, 3, padding=(1, 1, 1, 1))
    assert [is_faster(widths, what, ampere) for what in PASSES] == [True] * 3
    odd = ConvolutionProblem(64, 28, 28, 36, 12, 3, 3, padding=(1, 1, 1, 1), channels_out=60)
    no_octets = ConvolutionProblem(64, 28, 28, 54, 54, 3, 3, padding=(1, 1, 1, 1))
    for problem in (odd, no_octets):
        assert [is_faster(problem, what, GPU) for what in PASSES] == [True] * 3


def test_what_is_shipped_knows_every_pass() -> None:
    document = cudnn._document()
    assert document["features"] == list(cudnn.FEATURES)
    assert set(document["forests"]) in (set(), set(PASSES))
    assert all(len(times) == 3 and min(times) > 0 for times in cudnn._measured_us().values())


def rows(count: int) -> list[tuple[Layer, list[float]]]:
    """Times that follow from extents and width."""
    made = []
    for number in range(count):
        extent, width = (7, 14, 28, 56)[number % 4], (1, 8, 24, 64)[number // 4 % 4]
        layer = Layer(8 << number // 16 % 4, extent, 24 * width, width, (3, 5)[number // 64 % 2])
        time = GPU.roofline_s(layer.bytes_moved) * 1e6
        made.append((layer, [time * 3, time * (1 + width), time * extent]))
    return made


def test_trees_learn_what_times_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = json.loads(cudnn_train.document(rows(128), {"date": "today"}))
    monkeypatch.setattr(cudnn, "_document", lambda: made)
    for place, what in enumerate(PASSES):
        forest = cudnn.forest_of(made["forests"][what], len(cudnn.FEATURES))
        for layer, times in rows(128)[::7]:
            found = GPU.roofline_s(layer.bytes_moved) * 1e6 * cudnn.exp(forest.one(layer.features()))
            assert found == pytest.approx(times[place], rel=0.1)
    assert cudnn_train.held_out_errors(rows(128), 1).max() < 0.5


def test_few_layers_are_no_model() -> None:
    assert json.loads(cudnn_train.document(rows(20), {}))["forests"] == {}
