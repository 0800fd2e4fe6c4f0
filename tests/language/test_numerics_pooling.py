"""Pooling against torch, and stencils in index notation against scipy.ndimage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.dtypes import numpy_dtype
from tapestry.testing import outputs_of

MAX = {1: tp.max_pool1d, 2: tp.max_pool2d, 3: tp.max_pool3d}
AVERAGE = {1: tp.avg_pool1d, 2: tp.avg_pool2d, 3: tp.avg_pool3d}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    window, stride, dilation = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(3))
    padding = tuple(draw(st.integers(0, k // 2)) for k in window)
    image = [
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 4))
        for d, k, p in zip(dilation, window, padding, strict=True)
    ]
    return {
        "shape": (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *image),
        "window": window,
        "stride": draw(st.sampled_from([None, stride])),
        "dilation": dilation,
        "padding": padding,
        "dtype": draw(st.sampled_from(["f32", "f64", "bf16", "f16"])),
    }


def values(case: dict[str, Any]) -> tuple[np.ndarray, torch.Tensor, int]:
    x = np.random.default_rng(0).normal(size=case["shape"]).astype(numpy_dtype(case["dtype"]))
    return x, torch.from_numpy(x.astype(np.float64)), len(case["window"])


@settings(max_examples=120)
@given(cases())
def test_max_pooling_is_torchs(case: dict[str, Any]) -> None:
    x, wide, rank = values(case)
    geometry = {name: case[name] for name in ("stride", "padding", "dilation")}
    (got,) = outputs_of(lambda x: MAX[rank](x, case["window"], **geometry), x=x)
    oracle = getattr(torch.nn.functional, f"max_pool{rank}d")
    np.testing.assert_array_equal(got, oracle(wide, case["window"], **geometry).numpy().astype(x.dtype))


@settings(max_examples=120)
@given(cases(), st.booleans())
def test_average_pooling_is_torchs(case: dict[str, Any], include: bool) -> None:
    case = {**case, "shape": tuple(n + 2 for n in case["shape"])}
    x, wide, rank = values(case)
    geometry = {"stride": case["stride"], "padding": case["padding"], "count_include_pad": include}
    (got,) = outputs_of(lambda x: AVERAGE[rank](x, case["window"], **geometry), x=x)
    oracle = getattr(torch.nn.functional, f"avg_pool{rank}d")
    want = oracle(wide, case["window"], **geometry).numpy()
    unit = {"f64": 1e-12, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[case["dtype"]]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1.01 * unit, atol=1e-7)
    assert got.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_integer_max_pooling_pads_with_the_least(dtype: str, array, same) -> None:
    x = array(1, 2, 7, 6, dtype=dtype)
    (got,) = outputs_of(lambda x: tp.max_pool2d(x, 3, stride=2, padding=[(1, 0), (2, 1)]), x=x)
    least = np.iinfo(x.dtype).min
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (2, 1)], constant_values=least)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    same(got, windows.max((-1, -2)), dtype)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "int32"])
def test_sobel_and_smoothing_are_ndimages(dtype: str, array, same) -> None:
    """Stencils written in index notation with guarded reads, zero outside."""

    @tp.op
    def sobel(x: tp.num[tp.Tensor, "y x"]) -> tp.num[tp.Tensor, "y x"]:
        y, z = tp.indices("y x")
        return sum(w * (x.get[y + dy, z + 1] - x.get[y + dy, z - 1]) for dy, w in ((-1, 1), (0, 2), (1, 1)))

    x = array(13, 11, dtype=dtype)
    wide = x.astype(np.float64)
    (got,) = outputs_of(sobel, x=x)
    want = scipy.ndimage.correlate(wide, np.outer([1, 2, 1], [-1, 0, 1]), mode="constant")
    same(got, want.astype(numpy_dtype(dtype)) if dtype == "int32" else want, dtype, 1.01, inner=11)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_filters_by_windows_are_ndimages(size: int, array, same) -> None:
    """Uniform, maximum and Gaussian filters as pooling and convolution of one image."""
    x, half = array(1, 1, 12, 9), size // 2
    got = outputs_of(
        lambda x: (
            tp.avg_pool2d(x, size, stride=1, padding=half),
            tp.max_pool2d(x, size, stride=1, padding=half),
        ),
        x=x,
    )
    image = x[0, 0].astype(np.float64)
    same(got[0][0, 0], scipy.ndimage.uniform_filter(image, size, mode="constant"), "f32", 1.5, inner=size)
    same(got[1][0, 0], scipy.ndimage.maximum_filter(image, size, mode="constant", cval=-np.inf), "f32")


def test_gaussian_by_two_convolutions_is_ndimages(array, same) -> None:
    x = array(1, 1, 17, 14, dtype="f64")
    taps = np.exp(-0.5 * (np.arange(-4, 5) / 1.0) ** 2)
    w = (taps / taps.sum()).reshape(1, 1, 9, 1)
    (got,) = outputs_of(
        lambda x, w: tp.conv2d(tp.conv2d(x, w, padding="same"), w.reshape(1, 1, 1, 9), padding="same"), x=x, w=w
    )
    want = scipy.ndimage.gaussian_filter(x[0, 0], 1.0, mode="constant", truncate=4.0)
    same(got[0, 0], want, "f64")
