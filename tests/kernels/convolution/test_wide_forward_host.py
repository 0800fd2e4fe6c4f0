"""The kernel of wide groups, its very text run on the host against NumPy: forward passes and input gradients."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.kernels.convolution import wide, wide_forward, wide_forward_configuration, wide_rows
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.wide_forward_configuration import BATCH, SMALL_BATCH, WideCut, images_met
from tapestry.kernels.convolution.wide_forward_configuration import WideConfiguration as Cut
from tapestry.kernels.convolution.wide_launch import WideLaunch
from tapestry.kernels.convolution.wide_rows import octets_apart, swizzled
from tapestry.kernels.convolution.wide_sweep import Part, ways

from .. import host_compiler
from . import emulated
from .test_direct import DTYPES, activated, input_gradient
from .test_direct import forward as expected
from .test_direct import view as dense_view
from .test_forward_host import small, stored, strided_view

pytestmark = pytest.mark.long

Array = NDArray[Any]

host_compiler.compiler()


@dataclass(frozen=True)
class Kind(emulated.Kind[Cut]):
    """What a source depends on."""

    fused: bool = False
    added: bool = True  # a residual, where fused
    what: Literal["forward", "input_gradient"] = "forward"
    way: int = 0  # of those that a strided input gradient has: cells, or a sweep for every parity
    others: tuple[Cut, ...] = ()  # cuts of the sweeps after the first one, where they are not alike
    tight: bool = False  # no room for the filter beside the rest
    columns: int = 0  # outputs of a row, where images lie side by side
    whole: bool = False  # rows are copied whole, of as many groups as a block has


def cut(groups: int = 1, parts: int = 1, shares: int = 1, tiles: int = 1, images: int = 1, stages: int = 2) -> Cut:
    return Cut(groups, parts, shares, tiles, images, 8 * tiles // images, stages, 1)


def packed(columns: int, groups: int = 1, parts: int = 1, tiles: int = 1, stages: int = 2) -> Cut:
    """Images side by side, of rows of so many outputs."""
    return Cut(groups, parts, 1, tiles, images_met(columns, 64 * tiles), 0, stages, 1)


# Widths of odd and even octets and of none, parts and shares that do not divide, several groups, images and tiles.
KINDS = [
    Kind(cut(images=4), 3, 3, width=24),
    Kind(cut(2, images=2), 3, 2, width=24, stride=(2, 2), dtype="bf16", fused=True),
    Kind(cut(parts=2, images=8), 3, 3, width=40, stride=(2, 1), dilation=(1, 2)),
    Kind(cut(shares=2, images=4), 2, 3, width=16, dilation=(2, 1), fused=True),
    Kind(cut(images=8, tiles=2), 1, 1, width=12, stride=(2, 2)),
    Kind(cut(images=4), 3, 3, width=3),
    Kind(cut(images=4), 3, 3, width=24, what="input_gradient"),
    Kind(cut(parts=2, images=4), 3, 3, width=24, stride=(2, 2), what="input_gradient", dtype="bf16", way=1),
    Kind(cut(images=8), 1, 2, width=16, stride=(2, 1), dilation=(2, 2), what="input_gradient", way=1),
    Kind(cut(images=8), 3, 2, width=5, stride=(1, 2), what="input_gradient"),
    Kind(cut(2, images=4), 3, 3, width=24, stride=(2, 2), what="input_gradient"),
    Kind(cut(parts=2, shares=2, images=8), 4, 3, width=40, stride=(2, 2), what="input_gradient", dtype="bf16"),
    Kind(cut(parts=2, images=4), 3, 3, width=24, stride=(2, 2), what="input_gradient"),  # a row of a cell each
    Kind(cut(2, parts=2, images=4), 3, 3, width=24, stride=(2, 2), what="input_gradient"),  # and of two groups
    Kind(cut(3, parts=2, images=4), 3, 2, width=8, stride=(2, 1), what="input_gradient", dtype="bf16", fused=True),
    Kind(cut(shares=2, images=8), 4, 3, width=24, stride=(2, 2), what="input_gradient", dtype="bf16"),
    Kind(cut(images=8), 1, 2, width=16, width_out=24, stride=(2, 1), dilation=(2, 2), what="input_gradient"),
    Kind(cut(images=4), 3, 2, width=1, width_out=3, fused=True),
    Kind(cut(2, images=4), 2, 3, width=24, width_out=8, dtype="bf16"),
    Kind(cut(2, images=4), 3, 3, width=32, dtype="bf16", fused=True),
    Kind(packed(7, groups=2), 3, 3, width=32, columns=7, what="input_gradient"),
    Kind(cut(images=8), 3, 3, width=2, width_out=4, stride=(2, 1), what="input_gradient"),
    Kind(cut(parts=2, images=8), 1, 2, width=8, width_out=40, what="input_gradient"),
    Kind(cut(tiles=2), 2, 2, width=16, width_out=32, dtype="bf16", fused=True),  # blocks of pixels, and a 1 x 1 product
    Kind(cut(tiles=2), 1, 1, width=16, width_out=96, fused=True),
    Kind(cut(tiles=2, images=16), 3, 1, width=8, width_out=80),  # registers are traded
    Kind(cut(tiles=2, images=16), 3, 1, width=8, width_out=64, fused=True),  # and with something done to the sums
    Kind(cut(5, images=8), 3, 3, width=24),  # registers are too scarce to load three pairs of octets at once
    # Products of single outputs of cells: of four, of a row of two, across places of the window, and along columns.
    Kind(cut(images=8), 3, 3, width=32, stride=(2, 2), what="input_gradient"),
    Kind(cut(parts=2, images=8), 3, 3, width=48, stride=(2, 2), what="input_gradient", dtype="bf16"),
    Kind(cut(parts=2, images=8), 3, 3, width=56, stride=(2, 2), what="input_gradient"),
    Kind(cut(images=8), 4, 5, width=32, stride=(2, 2), what="input_gradient", dtype="bf16"),
    Kind(cut(images=8), 2, 3, width=64, stride=(1, 2), what="input_gradient"),
    # Sweeps side by side: of other cuts, with and without a warp that stores, and one behind the other where they
    # differ in threads; without taps.
    Kind(
        cut(parts=2, images=8),
        3,
        3,
        width=24,
        stride=(2, 2),
        what="input_gradient",
        way=1,
        others=(cut(images=4), packed(5, stages=3), cut(images=2, stages=3)),
        columns=9,
    ),
    Kind(
        cut(3, images=8),
        3,
        3,
        width=8,
        stride=(2, 2),
        what="input_gradient",
        way=1,
        dtype="bf16",
        fused=True,
        others=(cut(tiles=3, images=12), cut(3, images=8), cut(shares=1, tiles=3, images=12)),
    ),
    Kind(cut(images=8), 2, 3, width=40, stride=(2, 2), what="input_gradient", way=1, others=(cut(tiles=2, images=16),)),
    Kind(cut(images=8), 1, 1, width=16, stride=(2, 2), what="input_gradient", way=1),
    # Rows that are held, and leave while the next one is multiplied, by boxes and by lanes; whole turns of banks.
    Kind(cut(images=4), 3, 3, width=40),
    Kind(cut(images=4), 3, 3, width=40, dtype="bf16", fused=True, added=False),
    Kind(cut(images=8), 3, 2, width=56, what="input_gradient"),
    Kind(cut(images=8), 2, 3, width=64, fused=True, added=False),
    Kind(cut(images=8), 2, 3, width=64, what="input_gradient", dtype="bf16"),
    # Images side by side: sixteen positions of two images and of four, boxes of one number of columns and of many,
    # rows that are held, strides, and what lanes store.
    Kind(packed(14), 3, 3, width=24, columns=14),
    Kind(packed(7, groups=2, tiles=2), 3, 3, width=24, columns=7, dtype="bf16"),
    Kind(packed(12, tiles=2), 3, 2, width=40, columns=12),
    Kind(packed(5), 2, 3, width=40, columns=5, what="input_gradient", fused=True, added=False),
    Kind(packed(9, groups=3), 3, 3, width=24, columns=9, what="input_gradient", dtype="bf16"),
    Kind(packed(28), 3, 3, width=16, width_out=8, columns=28, fused=True),
    Kind(packed(10, groups=2), 3, 3, width=24, columns=10, stride=(2, 2), fused=True),
    Kind(packed(6, parts=2), 1, 3, width=16, columns=6, dilation=(1, 2), fused=True),
    Kind(packed(16, tiles=1), 2, 2, width=24, columns=16, stride=(1, 2)),
    # Two rows of two groups that leave together; more octets of a position than a swizzle has, of which four positions
    # load the other one: of one group and of two, across taps and alone at the end.
    Kind(cut(2, images=4), 3, 3, width=24, fused=True),
    Kind(cut(2), 3, 1, width=16, what="input_gradient", dtype="bf16"),
    Kind(cut(2, images=4), 3, 3, width=40),
    Kind(cut(images=8), 2, 2, width=80, stride=(1, 2), dtype="bf16"),
    Kind(cut(3, images=8), 2, 3, width=48, width_out=8, dilation=(1, 2), fused=True),
    Kind(packed(7, groups=2), 3, 3, width=40, columns=7, what="input_gradient"),
    # A small part of cells, whose filter is turned square by square; channels that are no whole octets, of which two
    # shares write some, and as many numbers at a time as lie side by side.
    Kind(cut(parts=6, images=8), 3, 3, width=48, stride=(2, 2), what="input_gradient"),
    Kind(cut(shares=2, images=8), 3, 2, width=3, stride=(2, 1), what="input_gradient"),
    Kind(cut(2, images=4), 3, 3, width=12, what="input_gradient", dtype="bf16"),
    Kind(cut(parts=2, images=4), 3, 3, width=20, width_out=6, fused=True),
    # The filter in slabs, though its channels are few: of all taps and of a row of them, more than there are slots, of
    # groups side by side, of channels that two shares write, of cells and a part of those, of the taps of each parity.
    Kind(cut(2, images=8, stages=3), 3, 3, width=24, tight=True),
    Kind(cut(tiles=2, images=16, stages=4), 3, 3, width=40, dtype="bf16", fused=True, tight=True),
    Kind(cut(parts=2, images=8), 3, 2, width=48, stride=(2, 1), tight=True),
    Kind(cut(images=4), 7, 3, width=48, tight=True),
    Kind(cut(shares=2, images=4), 3, 3, width=24, what="input_gradient", tight=True),
    Kind(cut(parts=2, shares=2, images=8), 2, 3, width=56, what="input_gradient", dtype="bf16", tight=True),
    Kind(cut(2, images=4), 3, 2, width=24, width_out=16, what="input_gradient", tight=True),
    Kind(cut(shares=3, images=8), 3, 3, width=40, stride=(2, 2), what="input_gradient", tight=True),
    Kind(cut(2, parts=2, images=8), 5, 3, width=24, stride=(2, 2), what="input_gradient", dtype="bf16", tight=True),
    Kind(cut(parts=4, images=8), 3, 3, width=64, stride=(2, 2), what="input_gradient", tight=True),
    Kind(cut(images=8), 3, 3, width=40, stride=(2, 2), what="input_gradient", way=1, tight=True),
    # Rows that are copied whole: stored by a warp of its own and by those that have them, one or two at a time, of two
    # images and of one, of cells and a row of them; or by lanes.
    Kind(cut(3, images=4), 3, 3, width=24, whole=True),
    Kind(cut(images=4), 3, 3, width=40, dtype="bf16", fused=True, whole=True),
    Kind(cut(images=8, tiles=2), 3, 2, width=24, what="input_gradient", whole=True),
    Kind(cut(3, images=8), 3, 2, width=24, dilation=(2, 1), fused=True, added=False, whole=True),
    Kind(cut(3, images=4), 3, 3, width=3, whole=True),
    Kind(cut(shares=2, images=4), 2, 2, width=40, dtype="bf16", whole=True),
    Kind(cut(images=2, tiles=2), 3, 3, width=24, width_out=40, whole=True),
    Kind(cut(images=4), 3, 3, width=24, stride=(2, 2), what="input_gradient", dtype="bf16", whole=True),
    Kind(cut(3, images=8), 3, 2, width=8, stride=(2, 1), what="input_gradient", fused=True, whole=True),
    Kind(cut(shares=2, images=8), 4, 3, width=24, stride=(2, 2), what="input_gradient", whole=True),
    Kind(cut(images=4), 3, 3, width=24, stride=(2, 1), fused=True, whole=True),
    Kind(cut(3, images=4), 3, 3, width=24, stride=(2, 2), whole=True),
    Kind(cut(images=8, tiles=2), 2, 4, width=40, stride=(1, 2), dtype="bf16", whole=True),
]


def test_rows_leave_in_both_ways_and_registers_are_traded() -> None:
    sweeps = [(ways(kind.problem(1, 20, 8, kind.octets(), (1, 1, 1, 1)), kind.what), kind) for kind in KINDS]
    found = [WideCut(part.sweep, kind.cut, kind.fused) for way, kind in sweeps for part in way[kind.way]]
    assert {cut.boxed for cut in found} == {False, True}
    assert {(cut.trades, cut.fused) for cut in found} == {(False, False), (False, True), (True, False), (True, True)}
    assert {cut.batch for cut in found} == {BATCH, SMALL_BATCH}
    assert {cut.leaving for cut in found} == {1, 2}
    assert {cut.written // cut.product_octets for cut in found} == {1, 2, 4}
    assert {cut.apart for cut in found if cut.sweep.octets[0] % 2} == {False, True}
    apart = {(octets_apart(cut.octets_met), swizzled(cut.octets_met)) for cut in found}
    assert {2, 4, 8} <= {octets for octets, beside in apart if beside}
    assert {10, 18} <= {octets for octets, beside in apart if not beside}
    held = {(cut.boxed, cut.fused) for cut in found if cut.deferred}
    assert held == {(False, False), (False, True), (True, False), (True, True)}
    assert {cut.lies for cut in found if not cut.sweep.transposed} == {"beside", "in slabs"}
    assert {cut.lies for cut in found if cut.sweep.transposed} == {None, "beside", "in slabs"}


def sweeps(kind: Kind) -> list[tuple[Part, Cut]]:
    """Of a small problem, each with its cut."""
    parts = ways(kind.problem(1, 20, 8, kind.octets(), (1, 1, 1, 1)), kind.what)[kind.way]
    return list(zip_longest(parts, (kind.cut, *kind.others), fillvalue=kind.cut))


def test_sweeps_are_launched_at_once_and_one_by_one() -> None:
    found = [wide.launches(tuple(sweeps(kind)), kind.fused) for kind in KINDS if kind.way]
    assert {len(launches) for launches in found} == {1, 4}
    together = [launch for launches in found for _, launch in launches if len(launch.cuts) > 1]
    assert {len({cut.handed for cut in launch.cuts}) for launch in together} == {1, 2}
    assert all(launch.threads == max(launch.threads, *(cut.threads for cut in launch.cuts)) for launch in together)


def test_a_filter_comes_in_slabs_where_its_lines_have_no_room() -> None:
    """And those that are run are of every sort."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_forward_configuration, "fits", lambda *_: False)
        found = [
            (WideCut(part.sweep, cut, kind.fused), kind) for kind in KINDS if kind.tight for part, cut in sweeps(kind)
        ]
        assert {cut.lies for cut, _ in found} == {"in slabs"}
        slabs = [(cut.slabs, cut) for cut, _ in found if cut.slabs]
        for transposed in (False, True):
            mine = [(slab, cut) for slab, cut in slabs if cut.sweep.transposed == transposed]
            assert {slab.number > cut.configuration.stages for slab, cut in mine} == {False, True}
            assert {swizzled(slab.inner) for slab, _ in mine} == {False, True}
            assert {slab.units > 1 for slab, _ in mine} == {False, True}
        assert {slab.rows == slab.taps[0] for slab, _ in slabs} == {False, True}
        assert {slab.outer % slab.octets > 0 for slab, _ in slabs} == {False, True}
        assert {slab.alone for slab, _ in slabs} == {False, True}


@functools.cache
def library(launch: WideLaunch, tight: bool, flags: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    return host_compiler.emulated(wide_forward.source(launch, dict(flags)), "wide_forward")


def of_no_extents(cut: WideCut) -> WideCut:
    """A cut whose source is the same."""
    sweep, units = cut.sweep, cut.configuration.units
    rows = replace(sweep.rows, inputs=1, outputs=1, before=0)
    columns = replace(sweep.columns, inputs=1, outputs=1 if units else sweep.columns.outputs, before=0)
    return replace(cut, sweep=replace(sweep, n=1, groups=1, rows=rows, columns=columns), whole=cut.flat)


def run(
    launch: WideLaunch, tight: bool, x: View, outputs: list[View], added: list[View], pointers: tuple[int, int, int],
    sms: int, seed: int, **flags: Any,
) -> None:  # fmt: skip
    """One launch. Sources depend on no extents, so that few are compiled."""
    alike = WideLaunch(tuple(map(of_no_extents, launch.cuts)))
    with pytest.MonkeyPatch.context() as patch:
        if tight:
            patch.setattr(wide_forward_configuration, "fits", lambda *_: False)
        loaded = library(alike, tight, tuple(sorted(flags.items())))
        emulated.use_maps(patch, wide_forward, wide_rows)
        blocks, given = wide_forward.arguments(launch, sms, x, outputs, added, pointers)
    emulated.start(loaded.run_wide_forward, (blocks,), (launch.threads,), given, seed)


@st.composite
def side_by_side(draw: st.DrawFn, kind: Kind) -> ConvolutionProblem:
    """Problems whose output has rows of as many columns as a cut is for, and of enough images for a few blocks."""
    h, *sides = (draw(st.integers(*bounds)) for bounds in ((5, 8), (0, 1), (0, 1), (0, 2), (0, 2)))
    span = (kind.s - 1) * kind.dilation[1] + 1
    w = (kind.columns - 1) * kind.stride[1] + span - sides[2] - sides[3]
    if kind.what == "input_gradient":
        w = kind.columns
    most = 2 * 64 * kind.cut.tiles // kind.columns + 2
    channels = kind.octets() * draw(st.integers(1, 3))
    return kind.problem(draw(st.integers(1, most)), h, w, channels, tuple(sides))


def of_one_block(kind: Kind, problem: ConvolutionProblem) -> ConvolutionProblem:
    """The same with as many channels as a block has."""
    sides, channels = problem.padding, kind.octets() * kind.cut.groups
    return kind.problem(problem.n, problem.h, problem.w, channels, sides)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.what} {kind.r}x{kind.s} width {kind.width}")
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), sms=st.integers(1, 3), seed=st.integers(0, 999), shift=st.sampled_from((0, 0, 2)))
def test_the_kernel_convolves(kind: Kind, data: st.DataObject, sms: int, seed: int, shift: int) -> None:
    """All of the output, which is full of NaN before, and nothing beside it."""
    problem = data.draw(emulated.wide_problems(kind, 8 * kind.cut.units if kind.cut.images > 1 else 0))
    if kind.columns:
        problem = data.draw(side_by_side(kind))
    if kind.whole:
        problem = of_one_block(kind, problem)
    random = np.random.default_rng(seed)
    back = kind.what == "input_gradient"
    given_shape, shape = problem.input_shape, problem.output_shape
    if back:
        given_shape, shape = shape, given_shape
    x, w = small(random, given_shape, kind.dtype), stored(small(random, problem.weight_shape, kind.dtype), shift)
    scale, bias = (random.integers(-2, 3, problem.k).astype(np.float32) for _ in range(2))
    added = small(random, shape, kind.dtype)
    wanted = input_gradient(problem, x, w) if back else expected(problem, x, w)
    flags: dict[str, Any] = dict.fromkeys(("scale", "bias"), kind.fused) | {"residual": kind.fused and kind.added}
    if kind.fused:
        wanted = activated(wanted * scale + bias + kind.added * added.astype(np.float64), "relu")
        flags["activation"] = "relu"
    beside = 0 if kind.whole else 1
    room = np.full((shape[0], shape[1] + 2, shape[2] + 2 * beside, shape[3]), np.nan, DTYPES[kind.dtype])
    out = room[:, 1:-1, beside : beside + shape[2]]
    pointers = (w.ctypes.data, scale.ctypes.data if kind.fused else 0, bias.ctypes.data if kind.fused else 0)
    found = tuple(zip_longest(ways(problem, kind.what)[kind.way], (kind.cut, *kind.others), fillvalue=kind.cut))
    if any(cut.images > 1 and WideCut(part.sweep, cut).column_tiles > 1 for part, cut in found):
        return
    for parts, launch in wide.launches(found, kind.fused, kind.whole):
        # Not where columns are left out, which an input gradient has of padding that is as long as the filter.
        assert launch.cuts[0].flat == (kind.whole and launch.cuts[0].sweep.columns.before >= 0)
        residuals = [part.of(dense_view(added, kind.dtype)) for part in parts] if flags["residual"] else []
        targets = [part.of(strided_view(out, kind.dtype)) for part in parts]
        run(launch, kind.tight, dense_view(x, kind.dtype), targets, residuals, pointers, sms, seed, **flags)
    assert np.isnan(room.astype("f4")).sum() == room.size - out.size
    unit = 2.0**-9 if kind.dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(out.astype("f8"), wanted, rtol=unit, atol=unit)
