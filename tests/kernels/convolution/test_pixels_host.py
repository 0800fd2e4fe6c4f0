"""Blocks of pixels and filters over them: the kernels' very text, run on the host, beside the convolution itself.

Numbers are small integers, so that all of it is exact.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapestry.kernels.convolution import pixels
from tapestry.kernels.convolution.pixels import Blocks, PixelKind, blocks_of
from tapestry.kernels.normalization.stretches import Launch

from .. import host_compiler
from ..normalization.launches import DTYPES, Array, run

pytestmark = pytest.mark.long

host_compiler.compiler()
TYPES = [("f32", "bf16", "f32"), ("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("f32", "f16", "f16")]
FORMS = [(3, 2), (1, 2), (3, 4), (4, 2), (3, 1), (6, 1), (3, 3)]  # channels, step: a library for each


def convolved(x: Array, w: Array, stride: tuple[int, int], padding: tuple[int, ...]) -> Array:
    """x [n, h, w, c] with w [k, r, s, c], by the definition; padding that is negative cuts off."""
    extents = x.shape[1:3]
    lines = [np.arange(-padding[2 * i], extents[i] + padding[2 * i + 1]) for i in range(2)]
    inside = [np.flatnonzero((line >= 0) & (line < extent)) for line, extent in zip(lines, extents, strict=True)]
    whole = np.zeros((x.shape[0], len(lines[0]), len(lines[1]), x.shape[3]))
    met = [line[there] for line, there in zip(lines, inside, strict=True)]
    whole[:, inside[0][:, None], inside[1]] = x[:, met[0][:, None], met[1]]
    _, r, s, _ = w.shape
    p, q = ((extent - taps) // step + 1 for extent, taps, step in zip(whole.shape[1:3], (r, s), stride, strict=True))
    made = np.zeros((x.shape[0], p, q, w.shape[0]))
    for down, across in itertools.product(range(r), range(s)):
        under = whole[:, down : down + stride[0] * p : stride[0], across : across + stride[1] * q : stride[1]]
        made += under[:, :p, :q] @ w[:, down, across].T
    return made


@functools.cache
def library(kind: PixelKind) -> Any:
    return host_compiler.emulated(kind.source(), *pixels.KERNELS)


def laid_out(values: Array, order: tuple[int, ...]) -> Array:
    """The same values, the dimensions in memory in another order."""
    back = np.argsort(order)
    return np.ascontiguousarray(values.transpose(order)).transpose(back)


def strides(values: Array) -> tuple[int, ...]:
    return tuple(step // values.itemsize for step in values.strides)


def launched(kind: PixelKind, launch: Launch, seed: int) -> None:
    run(library(kind), launch, seed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_a_convolution_is_one_over_blocks(data: st.DataObject) -> None:
    channels, step = data.draw(st.sampled_from(FORMS))
    types = data.draw(st.sampled_from(TYPES))
    stride = step * data.draw(st.integers(1, 2))
    taps = data.draw(st.tuples(*[st.integers(1, 7)] * 2))
    sides = data.draw(st.tuples(*[st.integers(0, 4)] * 4))
    extents = data.draw(st.tuples(*[st.integers(1, 14)] * 2))
    n, k, seed = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9)), data.draw(st.integers(0, 99))
    fits = all(extent + sum(sides[2 * i : 2 * i + 2]) >= taps[i] for i, extent in enumerate(extents))
    blocks = blocks_of(channels, taps, (stride, stride), sides)
    assume(fits and blocks is not None and blocks.step == step)
    assert blocks is not None
    kind, random = PixelKind.of(blocks, *types), np.random.default_rng(seed)
    image, computed, tap = (DTYPES[dtype] for dtype in types)
    order = data.draw(st.permutations(range(4)))
    x = laid_out(random.integers(-3, 4, (n, channels, *extents)).astype(image), tuple(order))
    w = laid_out(random.integers(-3, 4, (k, channels, *taps)).astype(tap), tuple(data.draw(st.permutations(range(4)))))
    rows, columns = blocks.rows.blocks(extents[0]), blocks.columns.blocks(extents[1])
    over = np.full((n, rows, columns, blocks.width), np.nan, computed)
    filters = np.full((k, *blocks.places, blocks.width), np.nan, computed)
    launched(kind, pixels.gathered(blocks, x.shape, strides(x), x.ctypes.data, over.ctypes.data), seed)
    launched(kind, pixels.taps(blocks, w.shape, strides(w), w.ctypes.data, filters.ctypes.data), seed)
    padding = (*blocks.rows.padding(extents[0]), *blocks.columns.padding(extents[1]))
    found = convolved(over.astype(np.float64), filters.astype(np.float64), blocks.move, padding)
    plain = [values.astype(np.float64).transpose(0, 2, 3, 1) for values in (x, w)]
    np.testing.assert_array_equal(found, convolved(*plain, (stride, stride), sides))
    # What is linear in a filter, turned round: <taps(w), g> = <w, gradient(g)> for every w, and so for each tap alone.
    gradient = random.integers(-3, 4, filters.shape).astype(tap)
    back = np.full((k, *taps, channels), np.nan, tap)
    launched(kind, pixels.taps_gradient(blocks, w.shape, gradient.ctypes.data, back.ctypes.data), seed)
    assert np.isfinite(back.astype(np.float64)).all()
    both = [
        (a.astype(np.float64) * b.astype(np.float64)).sum((1, 2, 3))
        for a, b in ((filters, gradient), (w.transpose(0, 2, 3, 1), back))
    ]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("types", TYPES[:2], ids=str)
def test_no_register_is_spilled(form: tuple[int, int], types: tuple[str, str, str]) -> None:
    channels, step = form
    blocks = blocks_of(channels, (3, 3), (step, step), (1, 1, 1, 1))
    assert blocks is not None
    report = PixelKind.of(blocks, *types).recipe("pixel_blocks").compile().report
    assert set(report) == set(pixels.KERNELS)
    assert all((used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0) for used in report.values())
    assert all(used.registers <= 128 for used in report.values())


def test_blocks_over_which_the_fewest_products_are_made() -> None:
    def form(*given: Any) -> Any:
        blocks: Blocks | None = blocks_of(*given)
        return blocks and (blocks.step, blocks.width, blocks.places, blocks.move)

    assert form(3, (3, 3), (2, 2), (1,) * 4) == (2, 16, (2, 2), (1, 1))
    assert form(3, (7, 7), (2, 2), (3,) * 4) == (2, 16, (4, 4), (1, 1))
    assert form(3, (4, 4), (4, 4), (0,) * 4) == (4, 48, (1, 1), (1, 1))
    assert form(3, (7, 7), (4, 4), (2,) * 4) == (2, 16, (4, 4), (2, 2))
    assert form(3, (3, 3), (1, 1), (1,) * 4) == (1, 8, (3, 3), (1, 1))
    assert form(3, (16, 16), (16, 16), (0,) * 4) is None
    assert form(3, (3, 3), (2, 1), (1,) * 4) is None
