"""Softmax, norms, rotary embedding and attention against torch and against their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.dtypes import numpy_dtype
from tapestry.testing import outputs_of

FLOATS = ["f64", "f32", "f16", "bf16"]
UNIT = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 1e-14}


def close(got: np.ndarray, want: torch.Tensor | np.ndarray, dtype: str, roundings: float = 2) -> None:
    """Relative to the largest value: results of sums, which cancel."""
    wide = np.asarray(want, dtype=np.float64)
    assert (got.dtype, got.shape) == (numpy_dtype(dtype), wide.shape)
    scale = np.abs(wide).max()
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=roundings * UNIT[dtype] * scale)


def wide(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.astype(np.float64))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_is_torchs(axis: int, dtype: str, array) -> None:
    x = array(4, 5, 6, dtype=dtype) * numpy_dtype(dtype).type(8)
    (got,) = outputs_of(lambda x: tp.softmax(x, axis), x=x)
    close(got, torch.softmax(wide(x), axis), dtype, 2)


def test_softmax_over_several_axes_and_of_large_values(array) -> None:
    x = array(3, 4, 5) * np.float32(1000)
    (got,) = outputs_of(lambda x: tp.softmax(x, (1, 2)), x=x)
    want = torch.softmax(wide(x).reshape(3, 20), -1).reshape(3, 4, 5)
    close(got, want, "f32", 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("axis", [-1, (1, 2)])
def test_layer_norm_is_torchs(axis: Any, affine: bool, dtype: str, array) -> None:
    x = array(3, 4, 6, dtype=dtype)
    shape = (6,) if axis == -1 else (4, 6)
    w, b = array(*shape, dtype=dtype, seed=1), array(*shape, dtype=dtype, seed=2)
    if affine:
        (got,) = outputs_of(lambda x, w, b: tp.layer_norm(x, w, b, axis=axis, eps=1e-3), x=x, w=w, b=b)
        want = torch.nn.functional.layer_norm(wide(x), shape, wide(w), wide(b), eps=1e-3)
    else:
        (got,) = outputs_of(lambda x: tp.layer_norm(x, axis=axis, eps=1e-3), x=x)
        want = torch.nn.functional.layer_norm(wide(x), shape, eps=1e-3)
    close(got, want, dtype, 4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_is_torchs(dtype: str, array) -> None:
    x, w = array(5, 8, dtype=dtype), array(8, dtype=dtype, seed=1)
    (got,) = outputs_of(lambda x, w: tp.rms_norm(x, w, eps=1e-2), x=x, w=w)
    close(got, torch.nn.functional.rms_norm(wide(x), (8,), wide(w), eps=1e-2), dtype, 4)


LONG: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "softmax": (tp.softmax, lambda x: torch.softmax(x, -1)),
    "layer_norm": (tp.layer_norm, lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])),
    "rms_norm": (tp.rms_norm, lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)),
    "mean": (lambda x: tp.mean(x, -1), lambda x: x.mean(-1)),
    "average": (lambda x: tp.avg_pool1d(x[None], x.shape[-1])[0, :, 0], lambda x: x.mean(-1)),
}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", LONG)
def test_rows_longer_than_16_bits_count(name: str, dtype: str, array) -> None:
    """The largest f16 is 65504: the length of a row is no number of its dtype."""
    mine, oracle = LONG[name]
    x = array(1, 131072, dtype=dtype) + numpy_dtype(dtype).type(1)
    (got,) = outputs_of(mine, x=x)
    assert got.dtype == x.dtype
    close(got, oracle(wide(x)), dtype, 4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("base", "offset"), [(10000.0, 0), (500000.0, 3)])
def test_rotary_is_a_complex_rotation(base: float, offset: int, dtype: str, array) -> None:
    x = array(7, 3, 8, dtype=dtype)
    (got,) = outputs_of(lambda x: tp.rotary(x, base=base, offset=offset), x=x)
    pairs = x[..., :4].astype(np.float64) + 1j * x[..., 4:].astype(np.float64)
    angles = (np.arange(7)[:, None, None] + offset) * base ** (-np.arange(4) / 4)
    turned = pairs * np.exp(1j * angles)
    close(got, np.concatenate([turned.real, turned.imag], -1), dtype, 2)


def test_rotary_along_another_axis(array) -> None:
    x = array(2, 5, 3, 4)
    got = outputs_of(lambda x: (tp.rotary(x), tp.rotary(x.transpose(0, 2, 1, 3), axis=-2).transpose(0, 2, 1, 3)), x=x)
    np.testing.assert_array_equal(*got)


@st.composite
def attentions(draw: st.DrawFn) -> dict[str, Any]:
    groups = draw(st.integers(1, 3))
    tokens, keys = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    return {
        "batch": draw(st.sampled_from([(), (1,), (2,)])),
        "tokens": tokens,
        "keys": keys,
        "groups": groups,
        "heads": groups * draw(st.integers(1, 3)),
        "width": draw(st.integers(1, 5)),
        "causal": draw(st.booleans()),
        "offset": draw(st.integers(0, 4)),
        "scale": draw(st.sampled_from([None, 0.3])),
        "dtype": draw(st.sampled_from(FLOATS)),
    }


@settings(max_examples=150)
@given(attentions())
def test_attention_is_torchs(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    shapes = {
        "q": (case["tokens"], case["heads"]),
        "k": (case["keys"], case["groups"]),
        "v": (case["keys"], case["groups"]),
    }
    q, k, v = (
        rng.normal(size=(*case["batch"], *shape, case["width"])).astype(numpy_dtype(case["dtype"]))
        for shape in shapes.values()
    )
    arguments = {name: case[name] for name in ("causal", "offset", "scale")}
    (got,) = outputs_of(lambda q, k, v: tp.attention(q, k, v, **arguments), q=q, k=k, v=v)
    share = case["heads"] // case["groups"]
    heads = [wide(q), *(wide(x).repeat_interleave(share, -2) for x in (k, v))]
    mask = torch.ones(case["tokens"], case["keys"], dtype=torch.bool)
    if case["causal"]:
        mask = mask.tril(case["offset"])
    want = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(-2, -3) for x in heads), attn_mask=mask, scale=case["scale"]
    )
    close(
        got,
        want.transpose(-2, -3),
        case["dtype"] if case["dtype"] != "f64" else "f64",
        20 if case["dtype"] == "f64" else 6,
    )


def test_attention_reads_views(array) -> None:
    """Keys before values in one packed tensor, queries transposed."""
    q, kv = array(2, 5, 4), array(7, 2, 2, 4, seed=1)
    got = outputs_of(
        lambda q, kv: (
            tp.attention(q.transpose(1, 0, 2), kv[:, 0], kv[:, 1], causal=True, offset=2),
            tp.attention(q.transpose(1, 0, 2), kv[:, 0] * 1.0, kv[:, 1] * 1.0, causal=True, offset=2),
        ),
        q=q,
        kv=kv,
    )
    np.testing.assert_array_equal(*got)


@pytest.mark.parametrize(
    ("q", "k"),
    [((5, 4, 3), (5, 3, 3)), ((5, 4, 3), (5, 4, 2)), ((2, 5, 4, 3), (5, 4, 3)), ((2, 5, 4, 3), (1, 5, 4, 3))],
)
def test_attention_refuses_shapes_that_contradict(q: tuple[int, ...], k: tuple[int, ...], array) -> None:
    with pytest.raises(tp.UsageError):
        outputs_of(lambda q, k: tp.attention(q, k, k), q=array(*q), k=array(*k))
