"""Depthwise convolutions by pairs of channels: which are, how they are cut, and what is compiled of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapestry.kernels.convolution import paired_candidates
from tapestry.kernels.convolution.configuration import footprint, legal, trades
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import forward_recipe, walk
from tapestry.kernels.cost.gpu import Gpu, known_gpu
from tapestry.kernels.cost.model import choose


def gpu(name: str = "H200") -> Gpu:
    found = known_gpu(name)
    assert found is not None
    return found


def layer(size: int, extent: int = 28, channels: int = 192, stride: int = 1, images: int = 64) -> ConvolutionProblem:
    sides = (size // 2,) * 4
    return ConvolutionProblem(
        images, extent, extent, channels, channels, size, size, (stride, stride), (1, 1), sides, "bf16"
    )


LAYERS = [layer(7, 56, 96), layer(7), layer(7, 14, 384), layer(5, 28, 240, images=128), layer(3, 190, 144, 2, 16)]


@pytest.mark.parametrize("problem", LAYERS, ids=lambda found: f"{found.r}x{found.s} {found.h}")
def test_large_depthwise_layers_are_computed_by_pairs(problem: ConvolutionProblem) -> None:
    found = paired_candidates.configurations(problem, gpu())
    assert all(legal(problem, cut, gpu().shared_per_block) for cut in found)
    chosen = choose(problem, "forward", gpu())
    assert chosen == found[0]
    assert footprint(problem, chosen).threads <= 1024


def test_pairs_are_of_groups_of_one_or_two_channels_and_of_single_outputs() -> None:
    assert paired_candidates.configurations(layer(5), gpu())
    assert paired_candidates.configurations(replace(layer(5), groups=96), gpu())
    assert not paired_candidates.configurations(replace(layer(5), groups=48), gpu())
    assert not paired_candidates.configurations(walk(layer(5, stride=2), "input_gradient").problem, gpu())
    assert not paired_candidates.configurations(replace(layer(5), channels_out=384), gpu())


def test_small_layers_and_other_gpus_keep_the_kernels_of_octets() -> None:
    for problem, where in ((layer(7, images=1), gpu()), (layer(7), gpu("H100"))):
        chosen = choose(problem, "forward", where)
        assert chosen is not None
        assert not chosen.pairs


@pytest.mark.long
@pytest.mark.parametrize("problem", [LAYERS[0], LAYERS[3]], ids=["7x7", "5x5"])
def test_what_is_compiled_spills_no_register(problem: ConvolutionProblem) -> None:
    """Where seven rows of sums are open, loader and storer leave registers to the others."""
    cut = choose(problem, "forward", gpu())
    assert cut is not None
    assert trades(problem, cut) or problem.r < 7
    made = forward_recipe(problem, cut, {"scale": True, "bias": True, "activation": "silu"}).compile("sm_90")
    assert made.report["forward"].spill_stores == 0
