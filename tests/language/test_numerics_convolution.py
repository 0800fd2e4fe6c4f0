"""Convolutions against torch, over strides, dilations, groups, uneven paddings and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.dtypes import numpy_dtype
from tapestry.testing import outputs_of

CONVOLUTIONS = {1: tp.conv1d, 2: tp.conv2d, 3: tp.conv3d}
ORACLES = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def oracle(
    x: np.ndarray, w: np.ndarray, stride: Any, pads: list[tuple[int, int]], dilation: Any, groups: int
) -> np.ndarray:
    """torch in float64; it pads evenly, so the padding is done before."""
    wide = torch.from_numpy(x.astype(np.float64))
    flat = [side for pair in reversed(pads) for side in pair]
    conv = ORACLES[len(pads)]
    padded = torch.nn.functional.pad(wide, flat)
    return conv(padded, torch.from_numpy(w.astype(np.float64)), stride=stride, dilation=dilation, groups=groups).numpy()


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A valid convolution of one to three spatial axes."""
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    window, stride, dilation = (tuple(draw(small) for _ in range(rank)) for _ in range(3))
    pads = [(draw(st.integers(0, 2)), draw(st.integers(0, 3))) for _ in range(rank)]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)]
    image = [max(1, span - sum(pad)) + draw(st.integers(0, 4)) for span, pad in zip(spans, pads, strict=True)]
    groups, inner, outer = draw(small), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    return {
        "x": (draw(st.integers(1, 2)), groups * inner, *image),
        "w": (groups * outer, inner, *window),
        "pads": pads,
        "stride": stride,
        "dilation": dilation,
        "groups": groups,
        "dtype": draw(st.sampled_from(["f32", "f64", "bf16", "f16", "int8", "int32"])),
        "seed": draw(st.integers(0, 99)),
    }


@settings(max_examples=150)
@given(cases())
def test_convolution_is_torchs(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    x, w = (rng.integers(-9, 10, case[name]).astype(numpy_dtype(case["dtype"])) for name in ("x", "w"))
    geometry = {name: case[name] for name in ("stride", "dilation", "groups")}
    conv = CONVOLUTIONS[len(case["pads"])]
    (got,) = outputs_of(lambda x, w: conv(x, w, padding=case["pads"], **geometry), x=x, w=w)
    want = oracle(x, w, geometry["stride"], case["pads"], geometry["dilation"], geometry["groups"])
    stored = "int32" if case["dtype"] == "int8" else case["dtype"]
    np.testing.assert_array_equal(got, want.astype(numpy_dtype(stored)))
    assert got.dtype == numpy_dtype(stored)


def test_scalars_and_words_for_geometry(array, same) -> None:
    x, w = array(2, 3, 9, 8), array(4, 3, 3, 2, seed=1)
    forms = [
        (tp.conv2d, {"padding": "same"}, 1, [(1, 1), (0, 1)]),
        (tp.conv2d, {"padding": "valid", "stride": 2}, 2, [(0, 0), (0, 0)]),
        (tp.conv2d, {"padding": 1, "stride": (2, 1)}, (2, 1), [(1, 1), (1, 1)]),
        (tp.conv2d, {"padding": (1, 2)}, 1, [(1, 1), (2, 2)]),
    ]
    for conv, arguments, stride, pads in forms:
        (got,) = outputs_of(lambda x, w, c=conv, a=arguments: c(x, w, **a), x=x, w=w)
        same(got, oracle(x, w, stride, pads, 1, 1), "f32", 40)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
def test_float_convolution_rounds_once(dtype: str, array, same) -> None:
    x, w = array(1, 8, 11, 7, dtype=dtype), array(6, 4, 3, 3, dtype=dtype, seed=1)
    (got,) = outputs_of(lambda x, w: tp.conv2d(x, w, padding=1, groups=2), x=x, w=w)
    same(got, oracle(x, w, 1, [(1, 1), (1, 1)], 1, 2), dtype, 1.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": 2}, "channels and groups contradict"),
        ({"stride": 0}, "stride=0"),
        ({"dilation": (1, 2, 3)}, "dilation"),
        ({"padding": -1}, "padding=-1"),
        ({"dilation": 9}, r"outside its shape"),
    ],
)
def test_impossible_geometry_is_refused(arguments: dict[str, Any], message: str, array) -> None:
    with pytest.raises(tp.TapestryError, match=message):
        outputs_of(lambda x, w: tp.conv2d(x, w, **arguments), x=array(2, 3, 9, 8), w=array(4, 3, 3, 2))
