"""Depthwise convolutions by pairs of channels: which are, how they are cut, and what is compiled of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapestry.kernels.convolution import block_candidates, paired_candidates
from tapestry.kernels.convolution.configuration import ForwardConfiguration, footprint, legal, pitch
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import forward_recipe, walk
from tapestry.kernels.cost import model
from tapestry.kernels.cost.gpu import Gpu, known_gpu
from tapestry.kernels.cost.model import choose

from ..machine_code import MOVES, PRODUCT, arrivals_before_their_loads, instructions


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
    chosen = choose(problem, "forward", gpu())  # one of them, or what was measured
    assert chosen is not None
    assert chosen.pairs
    assert legal(problem, chosen, gpu().shared_per_block)
    assert footprint(problem, chosen).threads <= 1024


def test_pairs_are_of_groups_of_one_or_two_channels_and_of_single_outputs() -> None:
    assert paired_candidates.configurations(layer(5), gpu())
    assert paired_candidates.configurations(replace(layer(5), groups=96), gpu())
    assert not paired_candidates.configurations(replace(layer(5), groups=48), gpu())
    assert not paired_candidates.configurations(walk(layer(5, stride=2), "input_gradient").problem, gpu())
    assert not paired_candidates.configurations(replace(layer(5), channels_out=384), gpu())


@pytest.mark.parametrize("problem", [layer(7, 14, 384, images=8), layer(7, 7, 160, images=128)])
def test_small_layers_of_many_taps_are_summed_up_by_blocks_of_rows(problem: ConvolutionProblem) -> None:
    assert problem.bytes_moved < model.LEAST_BYTES
    chosen = choose(problem, "forward", gpu())
    assert chosen is not None
    assert chosen.leaving > 1
    one_by_one = layer(3, 14, 384, images=8)
    assert not getattr(choose(one_by_one, "forward", gpu()), "pairs", 0)


def test_what_was_timed_before_rows_were_summed_up_together_does_not_stand_in_the_way() -> None:
    problem = layer(5, 7, 960, images=128)  # MobileNetV3's, of which rows one by one were timed
    chosen = choose(problem, "forward", gpu())
    assert chosen is not None
    assert chosen.leaving > 1


def test_small_layers_and_other_gpus_keep_the_kernels_of_octets() -> None:
    for problem, where in ((layer(7, images=1), gpu()), (layer(7), gpu("H100"))):
        chosen = choose(problem, "forward", where)
        assert chosen is not None
        assert not chosen.pairs


BLOCKS = [
    ForwardConfiguration(64, 2, 4, 1, stages=14, pairs=4, leaving=4, filter="staged"),
    ForwardConfiguration(32, 2, 4, 1, stages=20, pairs=2, leaving=7, together=2, filter="staged"),
    ForwardConfiguration(48, 2, 4, 1, stages=15, out_stages=1, pairs=2, leaving=7, filter="staged"),
]
NAMES = ["four", "seven", "twelve warps"]


@pytest.mark.parametrize("cut", BLOCKS, ids=NAMES)
def test_blocks_of_rows_hold_what_they_meet_in_the_ring(cut: ForwardConfiguration) -> None:
    problem, shared = layer(7), gpu().shared_per_block
    assert legal(problem, cut, shared)
    assert not legal(problem, replace(cut, stages=cut.leaving + 5), shared)
    assert legal(layer(7, 7), replace(cut, stages=7), shared)  # an image has no more rows
    assert not legal(problem, replace(cut, pairs=0, octets=1), shared)
    assert not legal(layer(1, stride=2), replace(cut, leaving=2), shared)  # every second row would not be met


@pytest.mark.parametrize(
    ("leaving", "together", "wanted"),
    [(4, 1, ((7, 22), (6, 18))), (7, 1, ((7, 37),)), (4, 2, ((4, 22), (3, 18))), (7, 2, ((4, 37),))],
)
def test_blocks_of_rows_meet_the_rows_there_are(
    leaving: int, together: int, wanted: tuple[tuple[int, int], ...]
) -> None:
    """Of an image of seven rows the first block of four meets all; rows beyond the last are added to as well.

    Padding is three rows: two that are loaded together are the third of it and the first of the image.
    """
    assert block_candidates.image_blocks(layer(7, 7), leaving, together) == wanted


def test_rows_are_loaded_together_where_an_image_has_enough() -> None:
    """Two are more than the registers of four pairs of channels hold, with as many columns as 7 x 7 asks for; twelve
    warps have work meanwhile."""
    for problem, wanted in ((layer(7), {2: 2, 4: 1}), (layer(7, 7, 768), {2: 1, 4: 1}), (layer(5), {2: 2, 4: 2})):
        found = list(block_candidates.cuts(problem, gpu()))
        assert {cut.warps for cut in found} == {8, 12}
        for cut in found:
            assert cut.together == (wanted[cut.pairs] if cut.warps == 8 else 1), (problem, cut)


def test_channels_that_fill_no_swizzle_lie_as_far_apart_as_it_is_wide() -> None:
    problem, narrow = layer(7), BLOCKS[2]
    wide = replace(narrow, channels=64)
    assert [pitch(channels) for channels in (8, 16, 24, 32, 40, 48, 64)] == [8, 16, 32, 32, 64, 64, 64]
    assert footprint(problem, narrow).row_bytes == footprint(problem, wide).row_bytes
    octets = ForwardConfiguration(32, units=4, tiles=1)
    assert legal(layer(3), octets, gpu().shared_per_block)
    assert not legal(layer(3), replace(octets, channels=48), gpu().shared_per_block)  # of pairs alone
    for channels, fits in ((56, True), (72, False)):  # no swizzle is wider than 64 channels
        cut = ForwardConfiguration(channels, 1, 2, 1, stages=5, pairs=2, leaving=2, filter="staged")
        assert legal(layer(3), cut, gpu().shared_per_block) == fits


@pytest.mark.long
@pytest.mark.parametrize("problem", [LAYERS[0], LAYERS[3]], ids=["7x7", "5x5"])
def test_what_is_compiled_spills_no_register(problem: ConvolutionProblem) -> None:
    """Nor in the cut with most rows at once."""
    chosen = choose(problem, "forward", gpu())
    assert chosen is not None
    options = list(block_candidates.cuts(problem, gpu()))
    for cut in (chosen, max(options, key=lambda cut: footprint(problem, cut).registers)):
        made = forward_recipe(problem, cut, {"scale": True, "bias": True, "activation": "silu"}).compile("sm_90")
        assert made.report["forward"].spill_stores == 0


@pytest.mark.long
@pytest.mark.parametrize("cut", [ForwardConfiguration(32, 4, 4, 2, stages=7, pairs=2), *BLOCKS], ids=["circle", *NAMES])
def test_what_is_loaded_is_not_copied_for_every_product(cut: ForwardConfiguration) -> None:
    """Copies were as many as products, twice over, and took a warp most of its time."""
    image = forward_recipe(layer(7), cut, {}).compile("sm_90").cubin
    code = [instruction.opcode for instruction in instructions(image, "forward")]
    assert sum(code.count(move) for move in MOVES) < code.count(PRODUCT) / 3


@pytest.mark.long
@pytest.mark.parametrize("cut", [ForwardConfiguration(32, 4, 4, 2, stages=7, pairs=2), *BLOCKS], ids=["circle", *NAMES])
@pytest.mark.parametrize("flags", [{}, {"residual": True, "bias": True}], ids=["plain", "fused"])
def test_no_row_is_given_back_before_what_was_loaded_of_it_is_there(
    cut: ForwardConfiguration, flags: dict[str, bool]
) -> None:
    code = instructions(forward_recipe(layer(7), cut, flags).compile("sm_90").cubin, "forward")
    assert sum(found.arrives for found in code) >= 2
    assert arrivals_before_their_loads(code) == []
