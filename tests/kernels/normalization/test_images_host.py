"""Sums over pixels and maps of images: the kernels' very text, run on the host against the definition in f64."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.kernels.normalization import images
from tapestry.kernels.normalization.images import ImageKind
from tapestry.kernels.normalization.stretches import DEEP, Launch, by_image

from .. import host_compiler
from . import launches
from .launches import DTYPES

pytestmark = pytest.mark.long

host_compiler.compiler()
UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20}
KINDS = [
    ImageKind("bf16", 8, "bf16"), ImageKind("f16", 2, "f16"), ImageKind("f32", 4, "f32"), ImageKind("bf16", 8, "f32"),
    ImageKind("f16", 1, "f32"),
]  # fmt: skip


@functools.cache
def library(kind: ImageKind) -> Any:
    return host_compiler.emulated(kind.source(), *images.KERNELS)


def run(kind: ImageKind, launch: Launch, seed: int) -> None:
    launches.run(library(kind), launch, seed)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 150) | st.sampled_from([256, 384, 500, 625]),
    st.integers(1, 70), st.sampled_from([1, 5, 40]), st.booleans(), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_the_kernels_compute_the_definition(
    kind: ImageKind, count: int, pixels: int, vectors: int, sms: int, added: bool, spread: bool, seed: int
) -> None:
    channels, dtype, unit = vectors * kind.vector, DTYPES[kind.dtype], UNITS[kind.dtype]
    number, fine = DTYPES[kind.numbers], UNITS[kind.numbers]
    random, cut = np.random.default_rng(seed), by_image(count, pixels, channels, kind.vector, sms)
    x, dy = (random.standard_normal((count, pixels, channels)).astype(dtype) for _ in range(2))
    gate, shift = (random.standard_normal((count, channels)).astype(number) for _ in range(2))
    mean, product, both, total = (np.full_like(gate, np.nan) for _ in range(4))
    y, blend = np.full_like(x, np.nan), np.full_like(x, np.nan)
    px, pdy, pg, ps, pm, pp, py = (array.ctypes.data for array in (x, dy, gate, shift, mean, product, y))
    room = np.full(max(1, images.room_of(cut, 2)), np.nan, "f")

    def launch(*found: Launch) -> None:
        room.fill(np.nan)
        for number, one in enumerate(found):
            run(kind, one, seed + number)

    launch(*images.means(cut, px, pm, room.ctypes.data))
    launch(*images.products(cut, px, pdy, pp, room.ctypes.data))
    launch(*images.both_sums(cut, px, pdy, both.ctypes.data, total.ctypes.data, room.ctypes.data))
    launch(*images.mapped(cut, px, pg, ps if added else 0, py, spread))
    launch(*images.blended(cut, pdy, pg, px, ps, blend.ctypes.data))
    wide = [array.astype(np.float64) for array in (x, dy, gate, shift)]
    np.testing.assert_allclose(mean.astype(np.float64), wide[0].mean(1), rtol=fine, atol=fine)
    for found in (product, both):
        np.testing.assert_allclose(found.astype(np.float64), (wide[0] * wide[1]).sum(1), rtol=fine, atol=fine * pixels)
    np.testing.assert_allclose(total.astype(np.float64), wide[1].sum(1), rtol=fine, atol=fine * pixels)
    expected = wide[0] * wide[2][:, None] + (wide[3][:, None] / (pixels if spread else 1) if added else 0)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=unit, atol=4 * unit)
    expected = wide[1] * wide[2][:, None] + wide[0] * wide[3][:, None]
    np.testing.assert_allclose(blend.astype(np.float64), expected, rtol=unit, atol=4 * unit)


@given(st.integers(1, 300) | st.integers(1, 65535), st.integers(1, 40_000), st.integers(1, 200), st.integers(1, 150))
def test_an_image_is_cut_into_equal_parts(count: int, pixels: int, octets: int, sms: int) -> None:
    cut = by_image(count, pixels, 8 * octets, 8, sms)
    assert cut.stretch * cut.splits == pixels
    assert cut.blocks == count * cut.splits
    assert cut.splits == 1 or cut.stretch >= cut.slots  # a pixel a thread
    assert cut.blocks <= 65535  # of a grid


@pytest.mark.parametrize(("count", "extent", "octets", "splits"), [(32, 190, 18, 4), (64, 112, 4, 2), (128, 56, 18, 1)])
def test_few_images_are_cut_so_that_all_multiprocessors_work(count: int, extent: int, octets: int, splits: int) -> None:
    assert by_image(count, extent * extent, 8 * octets, 8, 132).splits == splits


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([kind for kind in KINDS if kind.numbers == "f32"]), st.integers(1, 900), st.integers(1, 70),
    st.integers(1, 6), st.integers(0, 99),
)  # fmt: skip
def test_sums_over_all_rows(kind: ImageKind, rows: int, vectors: int, sms: int, seed: int) -> None:
    channels = vectors * kind.vector
    cut = images.over_all(rows, kind, channels, sms)
    x = np.random.default_rng(seed).standard_normal((rows, channels)).astype(DTYPES[kind.dtype])
    room, found = np.full(max(1, images.room_of_totals(cut)), np.nan, "f"), np.full(channels, np.nan, "f")
    for number, launch in enumerate(images.totals(cut, x.ctypes.data, room.ctypes.data, found.ctypes.data)):
        run(kind, launch, seed + number)
    unit = UNITS["f32"]
    np.testing.assert_allclose(found, x.astype(np.float64).sum(0), rtol=unit, atol=unit * rows)


@given(st.integers(1, 96), st.integers(1, 300_000), st.integers(1, 150))
def test_every_row_is_summed_once_by_threads_that_have_enough(octets: int, rows: int, sms: int) -> None:
    cut = images.over_all(rows, ImageKind.of(8 * octets, "bf16", "f32"), 8 * octets, sms)
    assert (cut.blocks - 1) * cut.stretch < rows <= cut.blocks * cut.stretch
    assert cut.blocks == 1 or cut.blocks * cut.parts <= sms
    assert cut.blocks == 1 or 2 * cut.stretch > cut.slots * DEEP  # half of what a thread has under way at least


@pytest.mark.parametrize("kind", [*KINDS, ImageKind("f32", 1, "f32")], ids=str)
def test_no_register_is_spilled(kind: ImageKind) -> None:
    report = kind.recipe("image_map").compile().report
    assert set(report) == set(images.KERNELS)
    assert all((used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0) for used in report.values())
    assert all(used.registers <= 128 for used in report.values())
