"""Sweeps that share a launch: which can, how blocks are dealt among them, and which products cells need."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from tapestry.kernels.convolution import wide, wide_forward, wide_launch, wide_rows
from tapestry.kernels.convolution.input_gradient import walk
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.wide_forward_configuration import WideConfiguration as Cut
from tapestry.kernels.convolution.wide_forward_configuration import WideCut, images_met, legal
from tapestry.kernels.convolution.wide_launch import WideLaunch, side_by_side
from tapestry.kernels.convolution.wide_sweep import ways

from . import emulated
from .test_wide import gpu, spills_nothing


def strided(width: int, n: int, size: int, channels: int, taps: int = 3) -> ConvolutionProblem:
    sides = (taps // 2,) * 4
    return ConvolutionProblem(n, size, size, channels, channels // width, taps, taps, (2, 2), padding=sides)


LAYERS = [strided(112, 128, 28, 448), strided(96, 128, 28, 384), strided(64, 32, 14, 512), strided(120, 1, 56, 240)]


def launches(problem: ConvolutionProblem, most: int) -> list[WideLaunch]:
    """Of the sweeps of all parities: the first guesses."""
    sweeps = [part.sweep for part in ways(problem, "input_gradient")[1]]
    chosen = wide_launch.configurations(sweeps, gpu())[:most]
    made = []
    for cuts in chosen:
        found = tuple(zip(ways(problem, "input_gradient")[1], cuts, strict=True))
        ((_, launch),) = wide.launches(found)
        made.append(launch)
    return made


@pytest.mark.parametrize("problem", LAYERS, ids=lambda problem: f"{problem.n}x{problem.c}x{problem.h}")
def test_sweeps_of_all_parities_are_one_launch(problem: ConvolutionProblem) -> None:
    found = launches(problem, 8)
    assert found
    for launch in found:
        assert side_by_side(launch.cuts)
        assert all(cut.beside and legal(cut, gpu().shared_per_block) for cut in launch.cuts)
        assert {cut.threads_beside(0) for cut in launch.cuts} == {32 * 4 * launch.cuts[0].warpgroups}
        assert launch.shared == max(cut.shared for cut in launch.cuts)


@pytest.mark.parametrize("sms", [16, 78, 132])
@pytest.mark.parametrize("problem", LAYERS[:3], ids=lambda problem: f"{problem.n}x{problem.c}x{problem.h}")
def test_blocks_are_dealt_while_there_are_multiprocessors(problem: ConvolutionProblem, sms: int) -> None:
    for launch in launches(problem, 4):
        dealt = launch.stretches(sms)
        blocks = sum(cut.channel_blocks * count for cut, count in zip(launch.cuts, dealt, strict=True))
        least = sum(cut.channel_blocks for cut in launch.cuts)
        slots = sms * launch.blocks
        assert least <= blocks <= max(least, slots)
        assert all(1 <= count <= cut.line for cut, count in zip(launch.cuts, dealt, strict=True))
        if least < slots // 2:  # some are left out so that cuts fall between images
            assert blocks > slots - slots // 6 - max(cut.channel_blocks for cut in launch.cuts)


def test_a_sweep_of_more_taps_gets_more_blocks() -> None:
    cuts = tuple((part, Cut(1, 1, 1, 2, 8, 2, 2, 1)) for part in ways(LAYERS[0], "input_gradient")[1])
    ((_, launch),) = wide.launches(cuts)
    one, *two, four = launch.stretches(132)
    assert one < min(two) <= max(two) < four
    assert launch.clocks(gpu()) < sum(WideLaunch((cut,)).clocks(gpu()) for cut in launch.cuts)


def test_sweeps_of_other_threads_are_launches_of_their_own() -> None:
    parts = ways(LAYERS[0], "input_gradient")[1]
    tiles = (2, 2, 2, 1)
    found = wide.launches(tuple((part, Cut(1, 1, 1, t, 4 * t, 2, 2, 1)) for part, t in zip(parts, tiles, strict=True)))
    assert [len(launch.cuts) for _, launch in found] == [1, 1, 1, 1]
    assert not any(cut.beside for _, launch in found for cut in launch.cuts)


def test_a_launch_of_many_boxes_is_one_that_the_extension_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of images side by side with 15 columns: a map for each number of columns of a box, of four sweeps."""
    emulated.use_maps(monkeypatch, wide_forward, wide_rows)
    problem = strided(56, 4, 30, 56)
    parts = ways(problem, "input_gradient")[1]
    cut = Cut(1, 1, 1, 1, images_met(15, 64), 0, 2, 1)
    ((_, launch),) = wide.launches(tuple((part, cut) for part in parts))
    dy = View.dense(1 << 20, problem.output_shape, "f16")
    outputs = [part.of(View.dense(1 << 30, problem.input_shape, "f16")) for part in parts]
    _, given = wide_forward.arguments(launch, 132, dy, outputs, [], (1 << 25, 0, 0))
    sizes = [len(value) if isinstance(value, bytes) else 8 for value in given]
    text = (Path(wide.__file__).parent.parent / "native" / "launch.h").read_text(encoding="utf-8")
    words, parameters = (int(re.search(rf"{name} = (\d+)", text)[1]) for name in ("kWords", "kParameters"))  # type: ignore[index]
    assert 8192 < sum(sizes) < 8 * words - 64 * len(sizes)
    assert len(sizes) <= parameters


@pytest.mark.parametrize(
    ("width", "taps", "cut", "outputs"),
    [
        (64, 3, Cut(1, 2, 1, 2, 8, 2, 3, 1), 2),
        (48, 3, Cut(1, 2, 1, 2, 8, 2, 3, 1), 2),
        (56, 3, Cut(1, 2, 1, 2, 8, 2, 3, 1), 2),
        (32, 3, Cut(1, 1, 1, 2, 8, 2, 3, 1), 4),
        (56, 5, Cut(1, 2, 1, 2, 8, 2, 2, 1), 2),
        (112, 3, Cut(1, 4, 1, 2, 8, 2, 2, 1), 1),
        (24, 3, Cut(2, 1, 1, 1, 4, 2, 4, 1), 1),
    ],
)
def test_cells_have_the_products_that_meet_a_tap(width: int, taps: int, cut: Cut, outputs: int) -> None:
    """Counted for every pair of octets, as the definition of the gradient says."""
    problem = strided(width, 128, 28, 8 * width, taps)
    (part,) = ways(problem, "input_gradient")[0]
    found = WideCut(part.sweep, cut)
    assert found.apart == (outputs > 1)
    assert found.product_octets == found.written // outputs
    window, octets, pad = walk(problem).problem, width // 8, taps // 2
    pairs = [{octet // octets for octet in (first, first + 1)} for first in range(0, window.s * octets, 2)]
    before = -window.padding[0]  # of the first row of dy under a cell

    def meets(parity: int, place: int) -> bool:
        # dx[2 i + parity] = sum over dy[p] w[r] with 2 p + r - pad = 2 i + parity, at p = i + before + place
        return 0 <= parity + pad - 2 * (before + place) < taps

    wanted = 0
    for r, places, output in product(range(window.r), pairs, range(outputs)):
        cells = [divmod(piece * outputs + output, 2) for piece in range(cut.parts)]
        inside = [s for s in places if s < window.s]
        wanted += outputs == 1 or any(meets(y, r) and any(meets(x, s) for s in inside) for y, x in cells)
    assert found.products == wanted


@pytest.mark.long
@pytest.mark.parametrize("problem", LAYERS[:2], ids=lambda problem: f"{problem.n}x{problem.c}x{problem.h}")
def test_sweeps_side_by_side_spill_nothing(problem: ConvolutionProblem) -> None:
    spills_nothing(wide.recipe(launches(problem, 1)[0], {}))


@pytest.mark.long
@pytest.mark.parametrize(("width", "taps"), [(48, 3), (56, 3), (64, 3), (56, 5)])
def test_products_of_single_outputs_run_side_by_side(width: int, taps: int) -> None:
    problem = strided(width, 128, 28, 8 * width, taps)
    (part,) = ways(problem, "input_gradient")[0]
    found = [cuts for cuts in wide.options((part,), gpu(), False) if WideCut(part.sweep, cuts[0]).apart]
    assert found
    spills_nothing(*wide.recipes(((part, found[0][0]),), {}))
