"""Reductions against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.testing import outputs_of

AXES: list[Any] = [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_float_reductions(name: str, axis: Any, dtype: str, array, same) -> None:
    x = array(4, 5, 6, dtype=dtype)
    (got,) = outputs_of(lambda x: getattr(tp, name)(x, axis), x=x)
    want = getattr(np, name)(x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(
        got.astype(np.float64), want, rtol={"f64": 1e-12, "f32": 1e-6, "f16": 2e-3, "bf16": 1e-2}[dtype], atol=1e-6
    )
    assert (got.dtype, got.shape) == (numpy_dtype(dtype), want.shape)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
def test_integer_reductions(name: str, axis: Any, dtype: str, array, same) -> None:
    x = array(4, 5, 6, dtype=dtype)
    (got,) = outputs_of(lambda x: getattr(tp, name)(x, axis), x=x)
    stored = "int32" if dtype == "int8" and name in ("sum", "prod") else dtype
    want = getattr(np, name)(x.astype(np.int64), axis=axis)
    same(got, np.asarray(want).astype(numpy_dtype(stored)), stored)


@pytest.mark.parametrize("axis", AXES)
def test_truth_reductions(axis: Any, array, same) -> None:
    x = array(4, 5, 6, dtype="bool")
    got = outputs_of(lambda x: (tp.any(x, axis), tp.all(x, axis), tp.sum(x, axis), tp.max(x, axis)), x=x)
    wants = (x.any(axis), x.all(axis), x.sum(axis), x.max(axis))
    for value, want, dtype in zip(got, wants, ("bool", "bool", "int32", "bool"), strict=True):
        same(value, want, dtype)


def test_kept_dimensions_and_names(array, same) -> None:
    x = array(3, 4, dtype="int32")
    got = outputs_of(lambda x: (tp.sum(x, 1, keepdims=True), tp.max(x, "d0"), x - tp.min(x, -1, keepdims=True)), x=x)
    for value, want in zip(got, (x.sum(1, keepdims=True), x.max(0), x - x.min(-1, keepdims=True)), strict=True):
        same(value, want, "int32")


def test_mean_of_integers_is_f32(array, same) -> None:
    x = array(7, 3, dtype="int8")
    (got,) = outputs_of(lambda x: tp.mean(x, 0), x=x)
    same(got, x.astype(np.float64).mean(0), "f32", 2)


def test_a_wider_accumulator_may_be_asked_for(array, same) -> None:
    x = array(100, dtype="bf16")
    (got,) = outputs_of(lambda x: tp.sum(x, dtype="f32"), x=x)
    same(got, x.astype(np.float64).sum(), "f32", 2)


def test_no_axis_is_no_reduction(array, same) -> None:
    x = array(3, 4)
    (got,) = outputs_of(lambda x: tp.sum(x, ()), x=x)
    same(got, x, "f32")


def test_index_notation_with_a_condition(array, same) -> None:
    """A causal sum: the running total along an axis."""

    @tp.op
    def running(x: tp.num[tp.Tensor, "n t"]) -> tp.num[tp.Tensor, "n q"]:
        n, q, t = tp.indices("n q t")
        return tp.sum[t](x[n, t], where=t <= q)

    # The range of q is that of t only if the signature says so.
    @tp.op
    def cumulative(x: tp.num[tp.Tensor, "n t"]) -> tp.num[tp.Tensor, "n q=t"]:
        n, q, t = tp.indices("n q t")
        return tp.sum[t](x[n, t], where=t <= q)

    x = array(3, 6, dtype="int64")
    (got,) = outputs_of(cumulative, x=x)
    same(got, x.cumsum(1), "int64")
    with pytest.raises(tp.UsageError, match="nothing bounds the index q"):
        outputs_of(running, x=x)


@pytest.mark.parametrize(
    "wrong", [lambda x: tp.sum(x, 5), lambda x: tp.sum(x, (0, 0)), lambda x: tp.any(x), lambda x: tp.max(x, "nope")]
)
def test_wrong_reductions_are_refused(wrong: Any, array) -> None:
    with pytest.raises(tp.UsageError):
        outputs_of(wrong, x=array(2, 3))


def test_every_dtype_reduces() -> None:
    for dtype in DTYPES:
        x = np.ones((2, 3), numpy_dtype(dtype))
        (got,) = outputs_of(lambda x: tp.max(x, 0), x=x)
        assert got.dtype == numpy_dtype(dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_mean_of_more_elements_than_16_bits_count(dtype: str, array, same) -> None:
    x = array(2, 70_000, dtype=dtype)
    (got,) = outputs_of(lambda x: tp.mean(x, 1), x=x)
    same(got, x.astype(np.float64).mean(1), dtype, 1.01, inner=70_000 // 2**10)


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "int32", "int8"])
def test_positions_are_those_of_numpy(dtype: str, axis: Any, array) -> None:
    x = array(4, 5, 6, dtype=dtype)
    found = outputs_of(lambda x: (tp.argmax(x, axis), tp.argmin(x, axis)), x=x)
    wide = x.astype(np.float64)
    for got, want in zip(found, (wide.argmax(axis), wide.argmin(axis)), strict=True):
        assert got.dtype == np.int64
        assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "int32"])
def test_folds_of_several_components_are_those_of_numpy(dtype: str, array) -> None:
    x = array(4, 50, dtype=dtype)
    spread, total = outputs_of(lambda x: (tp.variance(x, 1), tp.logsumexp(x, 1)), x=x)
    wide = x.astype(np.float64)
    rtol = 2e-3 if dtype == "f16" else 1e-5
    np.testing.assert_allclose(spread.astype(np.float64), wide.var(1), rtol=rtol)
    np.testing.assert_allclose(total.astype(np.float64), np.log(np.exp(wide).sum(1)), rtol=rtol)


def test_a_position_is_not_declared_as_less_than_an_integer() -> None:
    with pytest.raises(tp.UsageError, match="does not fit the declared dtype"):
        outputs_of(lambda x: tp.argmax(x, dtype="bool"), x=np.ones(3, np.float32))
