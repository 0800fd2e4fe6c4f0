"""Groups of other widths than the narrow kernels': which are taken, how they are cut, and what is compiled of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import lcm
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.convolution import (
    wide,
    wide_candidates,
    wide_gradient_candidates,
    wide_rows,
    wide_weight_gradient,
)
from tapestry.kernels.convolution.configuration import register_limit
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import GROUP_WIDTHS, ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, recipes
from tapestry.kernels.convolution.wide_forward_configuration import WideConfiguration, WideCut, legal
from tapestry.kernels.convolution.wide_sweep import Part, ways
from tapestry.kernels.convolution.wide_threads import Warpgroups
from tapestry.kernels.convolution.wide_weight_gradient import WideGradientCut
from tapestry.kernels.cost.cudnn import ours_s
from tapestry.kernels.cost.gpu import Gpu, known_gpu
from tapestry.kernels.runtime.compiler import Recipe

Walked = Literal["forward", "input_gradient"]


def gpu(name: str = "H200") -> Gpu:
    found = known_gpu(name)
    assert found is not None
    return found


def layer(width: int, **given: Any) -> ConvolutionProblem:
    """3 x 3 on [16, 14, 14, some 400 channels]."""
    channels = lcm(8, width) * -(-400 // lcm(8, width))
    usual = ConvolutionProblem(16, 14, 14, channels, channels // width, 3, 3, padding=(1, 1, 1, 1))
    return replace(usual, **given)


@pytest.mark.parametrize("width", [3, 5, 6, 7, 12, 20, 24, 28, 40, 48, 56, 64, 72, 88, 96, 104, 112, 120, 128])
def test_octets_of_every_width_are_cut(width: int) -> None:
    problem = layer(width)
    for what in ("forward", "input_gradient"):
        found = wide.cuts(problem, what, gpu())
        assert found
        for part, cut in found:
            assert legal(WideCut(part.sweep, cut), gpu().shared_per_block)
    chosen = wide.gradient_cut(problem, gpu())
    assert chosen is not None
    assert wide_weight_gradient.legal(WideGradientCut(problem, chosen), gpu().shared_per_block)


def test_other_gpus_and_odd_channels_have_the_plain_kernel() -> None:
    assert not wide.cuts(layer(24), "forward", gpu("A100"))
    assert not wide.cuts(layer(12, c=36, groups=3), "forward", gpu())
    assert wide.gradient_cut(layer(12, c=36, groups=3), gpu()) is None
    for what in PASSES:
        assert {recipe.feature for recipe in recipes(layer(24), what, gpu("A100"))} == {""}
        assert "direct" in recipes(layer(24), what, gpu("A100"))[0].name


@pytest.mark.parametrize(("width", "width_out"), [(1, 2), (1, 3), (2, 4), (8, 16), (24, 8), (40, 120)])
def test_other_channels_out_than_in_are_cut(width: int, width_out: int) -> None:
    found = layer(width)
    problem = replace(found, channels_out=found.groups * width_out)
    for what in ("forward", "input_gradient"):
        assert wide.cuts(problem, what, gpu())
    assert wide.gradient_cut(problem, gpu()) is not None
    assert problem.weight_shape == (found.groups * width_out, 3, 3, width)


def test_narrow_groups_keep_their_kernels() -> None:
    for width in GROUP_WIDTHS[:-1]:
        assert not any(wide.takes(layer(width), what, gpu()) for what in PASSES)


def test_groups_of_32_channels_are_computed_by_warpgroups_but_for_strided_input_gradients() -> None:
    large = layer(32, n=64)
    strided = replace(large, stride=(2, 2))
    assert all(wide.takes(large, what, gpu()) for what in PASSES)
    assert [wide.takes(strided, what, gpu()) for what in PASSES] == [True, False, True]
    assert {recipe.feature for what in PASSES for recipe in recipes(large, what, gpu())} == {"a"}
    assert recipes(strided, "input_gradient", gpu())[0].name == "forward"
    assert not any(wide.takes(layer(32, n=4), what, gpu()) for what in PASSES)
    elsewhere = gpu("A100")  # which has none
    assert not wide.cuts(large, "forward", elsewhere)
    assert recipes(large, "weight_gradient", elsewhere)[0].name != "wide_weight_gradient"


def test_a_pass_takes_no_less_than_its_roofline_allows() -> None:
    for width in (24, 48, 112):
        problem = layer(width, n=128)
        for what in PASSES:
            assert gpu().roofline_s(problem.bytes_moved) < ours_s(problem, what, gpu()) < 1e-2


EXTENT = st.integers(1, 9)
PAIR = st.tuples(st.integers(1, 2), st.integers(1, 2))


@given(EXTENT, EXTENT, PAIR, PAIR, st.integers(1, 5), st.integers(1, 5), st.tuples(*[st.integers(0, 3)] * 4))
def test_the_sweeps_of_an_input_gradient_meet_every_product_once(
    h: int, w: int, stride: tuple[int, int], dilation: tuple[int, int], r: int, s: int,
    padding: tuple[int, int, int, int],
) -> None:  # fmt: skip
    """Counted for every output and tap, as the definition of the adjoint does."""
    if h + padding[0] + padding[1] <= dilation[0] * (r - 1) or w + padding[2] + padding[3] <= dilation[1] * (s - 1):
        return
    problem = ConvolutionProblem(1, h, w, 24, 1, r, s, stride, dilation, padding)
    wanted = {
        (p * stride[0] + i * dilation[0] - padding[0], q * stride[1] + j * dilation[1] - padding[2], i, j): (p, q)
        for p in range(problem.p)
        for q in range(problem.q)
        for i in range(r)
        for j in range(s)
    }
    inside = {place: at for place, at in wanted.items() if 0 <= place[0] < h and 0 <= place[1] < w}
    for way in ways(problem, "input_gradient"):
        found, written = {}, np.zeros((h, w), int)
        for part in way:
            rows, columns = part.sweep.rows, part.sweep.columns
            written[part.rows.first :: part.rows.step, part.columns.first :: part.columns.step] += 1
            for y, x in product(range(rows.outputs), range(columns.outputs)):
                (cell_y, a), (cell_x, b) = divmod(y, rows.cell), divmod(x, columns.cell)
                for i, j in product(range(rows.taps), range(columns.taps)):
                    p, q = cell_y + i * rows.dilation - rows.before, cell_x + j * columns.dilation - columns.before
                    tap, other = rows.tap(a, i), columns.tap(b, j)
                    if 0 <= p < rows.inputs and 0 <= q < columns.inputs and tap is not None and other is not None:
                        place = (part.rows.first + y * part.rows.step, part.columns.first + x * part.columns.step)
                        found[(*place, tap, other)] = (p, q)
        assert (written == 1).all()
        assert found == inside


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "what", "stride", "fused"),
    [
        (24, "forward", 1, False),
        (24, "forward", 1, True),
        (48, "forward", 1, False),
        (48, "forward", 2, True),
        (64, "forward", 1, False),
        (56, "input_gradient", 1, False),
        (24, "input_gradient", 2, False),
        (48, "weight_gradient", 1, False),
        (128, "weight_gradient", 2, False),
    ],
)
def test_what_is_compiled_spills_no_register_and_multiplies_side_by_side(
    width: int, what: Any, stride: int, fused: bool
) -> None:
    problem = layer(width, n=128, stride=(stride, stride))
    recipe = recipes(problem, what, gpu(), FUSED if fused else {})[0]  # the others of a pass differ in taps alone
    spills_nothing(recipe)


@pytest.mark.long
@pytest.mark.parametrize(("width", "size"), [(24, 5), (40, 5), (24, 7)])
def test_products_of_large_filters_run_side_by_side(width: int, size: int) -> None:
    """Of all cuts worth trying: those that the guess puts first."""
    part = ways(layer(width, n=128, h=28, w=28, r=size, s=size, padding=(size // 2,) * 4), "forward")[0][0]
    cuts = wide_candidates.configurations(part.sweep, gpu())
    for cut in {replace(cut, stages=2): cut for cut in reversed(cuts[:4])}.values():
        spills_nothing(of_sweep(part, cut))


FUSED: dict[str, Any] = {"scale": True, "bias": True, "residual": True, "activation": "silu"}


def of_sweep(part: Part, cut: WideConfiguration, fused: bool = False) -> Recipe:
    (recipe,) = wide.recipes(((part, cut),), FUSED if fused else {})
    return recipe


def spills_nothing(recipe: Recipe) -> None:
    made = recipe.compile("sm_90")
    used = made.report[recipe.name]
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
    assert "serialized" not in made.log


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "what", "stride", "fused"),
    [
        (48, "input_gradient", 2, False),
        (88, "input_gradient", 2, False),
        (104, "input_gradient", 2, False),
        (64, "forward", 1, False),
        (80, "forward", 1, False),
        (56, "forward", 1, True),
        (64, "forward", 1, True),
        (112, "forward", 1, True),
        (24, "forward", 1, True),
    ],
)
def test_nothing_is_spilled_where_registers_are_scarcest(width: int, what: Walked, stride: int, fused: bool) -> None:
    """Of all cuts worth trying, that which leaves the fewest registers beyond what it is estimated to want."""
    part = ways(layer(width, n=128, stride=(stride, stride)), what)[0][0]

    cuts = wide_candidates.configurations(part.sweep, gpu(), fused)
    scarcest = max(cuts, key=lambda cut: wanted(WideCut(part.sweep, cut, fused)))
    spills_nothing(of_sweep(part, scarcest, fused))


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "extent", "stride", "what", "cut"),
    [
        (128, 28, 1, "forward", (1, 1, 1, 3, 6, 4, 2, 1)),
        (128, 28, 1, "input_gradient", (1, 1, 1, 3, 24, 1, 2, 1)),
        (128, 28, 2, "input_gradient", (1, 3, 1, 2, 4, 4, 3, 1)),
        (96, 14, 2, "input_gradient", (1, 2, 1, 1, 8, 1, 3, 1)),
    ],
)
def test_rows_that_lanes_store_are_not_held_of_filters_of_one_row(
    width: int, extent: int, stride: int, what: Walked, cut: tuple[int, ...]
) -> None:
    """They spilled 16 to 56 bytes when they were held."""
    problem = layer(width, h=extent, w=extent, r=1, s=1, padding=(0,) * 4, stride=(stride, stride))
    part, chosen = ways(problem, what)[0][0], WideConfiguration(*cut)
    assert not WideCut(part.sweep, chosen).deferred
    spills_nothing(of_sweep(part, chosen))


@pytest.mark.long
@pytest.mark.parametrize(("width", "fused"), [(24, False), (24, True), (40, False), (40, True), (64, False)])
def test_images_side_by_side_spill_nothing(width: int, fused: bool) -> None:
    """Of cuts that leave in boxes, or by lanes where there is none: that which leaves the fewest registers."""
    part = ways(layer(width, n=128), "forward")[0][0]
    cuts = [WideCut(part.sweep, cut, fused) for cut in wide_candidates.configurations(part.sweep, gpu(), fused)]
    packed = [cut for cut in cuts if cut.packed]
    assert packed
    scarcest = max([cut for cut in packed if cut.boxed] or packed, key=wanted).configuration
    spills_nothing(of_sweep(part, scarcest, fused))


@pytest.mark.long
@pytest.mark.parametrize("width", [24, 48, 112])
def test_what_is_gathered_spills_nothing(width: int) -> None:
    problem = layer(width, n=128, h=28, w=28)
    cuts = [cut for cut in wide_gradient_candidates.configurations(problem, gpu()) if cut.gathered]
    assert cuts
    scarcest = max(cuts, key=lambda cut: wanted(WideGradientCut(problem, cut)))
    spills_nothing(wide.gradient_recipes(problem, scarcest, partial=False)[0])


@pytest.mark.parametrize(("width", "extent"), [(24, 28), (24, 112), (32, 28), (56, 28)])
def test_products_of_warps_without_an_octet_begin_at_once(width: int, extent: int) -> None:
    """Of what is gathered, and of a tile that is not full: a load under a branch had made several parts of them."""
    problem = layer(width, n=64, h=extent, w=extent)
    first = wide_gradient_candidates.configurations(problem, gpu())[0]
    cut = WideGradientCut(problem, first)
    assert first.gathered or problem.s * cut.read % 8 in range(1, 7)
    assert "injected" not in wide.gradient_recipes(problem, first, partial=False)[0].compile("sm_90").log


def wanted(cut: Warpgroups) -> float:
    """The share of the registers of a thread that it is estimated to want."""
    return cut.registers / (cut.taken_registers if cut.trades else register_limit(cut.threads, cut.blocks))


@pytest.mark.long
@pytest.mark.parametrize("width", [24, 72, 120])
def test_clusters_spill_nothing_and_run_at_once(width: int) -> None:
    """Of cuts of few pixels, whose splits are clusters: that which leaves the fewest registers."""
    problem = layer(width, n=128, h=7, w=7)
    cuts = [cut for cut in wide_gradient_candidates.configurations(problem, gpu()) if cut.clustered]
    blocks = [(WideGradientCut(problem, cut).channel_blocks, cut) for cut in cuts]
    assert cuts
    assert all(count <= cut.blocks * gpu().clusters_of(cut.splits) for count, cut in blocks)
    scarcest = max(cuts, key=lambda cut: wanted(WideGradientCut(problem, cut)))
    spills_nothing(wide.gradient_recipes(problem, scarcest, partial=False)[0])


@given(
    st.integers(1, 9), st.integers(1, 4), st.sampled_from((1, 2)), st.sampled_from((1, 2)), st.integers(-2, 4),
    st.integers(1, 12),
)  # fmt: skip
def test_columns_come_by_parities(met: int, taps: int, stride: int, dilation: int, before: int, width: int) -> None:
    """What a position meets under a tap lies at `tap_place` of wide_rows.cu, a neighbour of what the next one meets;
    columns that no image has lie outside the box's tensor."""
    row = wide_rows.Walked(met, 1, 6, taps, stride, dilation)
    views: list[View] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_rows, "walked_map", lambda view, box, octets: views.append(view) or b"")
        _, begins = row.maps(View.dense(0, (1, 1, width, 8), "f16"), before)
    assert len(views) == row.parities <= 2
    for position, tap in product(range(met), range(taps)):
        offset = tap * dilation
        parity, place = (offset % stride if row.parities > 1 else 0), position + offset // stride
        assert place < row.columns
        column, view = position * stride + offset - before, views[parity]
        inside = 0 <= place - begins[parity] < view.shape[2]
        assert inside == (0 <= column < width)
        if inside:
            assert view.pointer + 2 * view.strides[2] * (place - begins[parity]) == 2 * 8 * column
