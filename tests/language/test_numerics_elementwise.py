"""Elementwise functions against NumPy, scipy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

import tapestry as tp
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.testing import outputs_of

FLOATS = ["f64", "f32", "f16", "bf16"]
Oracle = Callable[..., Any]


def torch_function(function: Callable[..., torch.Tensor]) -> Oracle:
    return lambda x: function(torch.from_numpy(np.asarray(x))).numpy()


UNARY: dict[str, tuple[Callable[..., Any], Oracle]] = {
    "negative": (lambda x: -x, np.negative),
    "abs": (tp.abs, np.abs),
    "sign": (tp.sign, np.sign),
    "floor": (tp.floor, np.floor),
    "ceil": (tp.ceil, np.ceil),
    "exp": (tp.exp, np.exp),
    "log": (lambda x: tp.log(abs(x)), lambda x: np.log(np.abs(x))),
    "sqrt": (lambda x: tp.sqrt(abs(x)), lambda x: np.sqrt(np.abs(x))),
    "rsqrt": (lambda x: tp.rsqrt(abs(x)), lambda x: np.abs(x) ** -0.5),
    "sin": (tp.sin, np.sin),
    "cos": (tp.cos, np.cos),
    "tanh": (tp.tanh, np.tanh),
    "erf": (tp.erf, scipy.special.erf),
    "sigmoid": (tp.sigmoid, scipy.special.expit),
    "relu": (tp.relu, lambda x: np.maximum(x, 0)),
    "silu": (tp.silu, torch_function(torch.nn.functional.silu)),
    "gelu": (tp.gelu, torch_function(torch.nn.functional.gelu)),
    "gelu tanh": (
        lambda x: tp.gelu(x, approximate="tanh"),
        torch_function(lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ),
}


# Functions of f32 on the way to the result.
INNER = {"silu": 1, "gelu": 5, "gelu tanh": 9}


def exact_composition(name: str) -> float:
    """Roundings that a function may take: the operations of its expression that are stored on the way."""
    return 3 if name in ("log", "sqrt", "rsqrt") else 1.2


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str, dtype: str, array, same) -> None:
    mine, oracle = UNARY[name]
    x = array(7, 9, dtype=dtype) * numpy_dtype(dtype).type(2)
    (got,) = outputs_of(mine, x=x)
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.float64))
    slack = 8 if dtype == "f64" else exact_composition(name)
    same(got, want, dtype, slack, INNER.get(name, 0))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_elements_are_those_of_tensors(name: str, array) -> None:
    """In index notation a function builds the expression that it computes of a whole tensor."""
    function, _ = UNARY[name]

    @tp.op
    def mine(x: tp.num[tp.Tensor, "i j"]) -> tp.num[tp.Tensor, "i j"]:
        i, j = tp.indices("i j")
        return function(x[i, j])

    x = array(7, 9)
    np.testing.assert_array_equal(*outputs_of(lambda x: (mine(x), function(x)), x=x))


@pytest.mark.parametrize("name", ["relu", "exp", "gelu"])
def test_functions_of_indices(name: str) -> None:
    function, oracle = UNARY[name]

    @tp.op
    def mine(x: tp.num[tp.Tensor, "i"]) -> tp.f32[tp.Tensor, "i"]:
        i = tp.indices("i")
        return function(i - 3) + x[i] * 0

    (got,) = outputs_of(mine, x=np.zeros(8, np.float32))
    np.testing.assert_allclose(got, oracle(np.arange(-3.0, 5.0)), rtol=1e-6, atol=1e-6)


def test_gelu_refuses_what_is_neither_tensor_nor_element() -> None:
    with pytest.raises(tp.UsageError, match="x is 'a', not a tensor or an element of index notation"):
        outputs_of(lambda x: tp.gelu("a") + x, x=np.zeros(8, np.float32))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_functions_of_integers(dtype: str, array, same) -> None:
    x = array(40, dtype=dtype)
    wide = x.astype(np.int64)
    for mine, want, stored in [
        (lambda x: -x, -wide, dtype), (lambda x: abs(x), np.abs(wide), dtype), (tp.sign, np.sign(wide), dtype),
        (tp.relu, np.maximum(wide, 0), dtype), (tp.exp, np.exp(wide.astype(np.float64)), "f32"),
        (lambda x: x / 4, wide / 4, "f32"), (lambda x: x // 4, wide // 4, dtype), (lambda x: x % -3, wide % -3, dtype),
        (lambda x: x**2, wide**2, dtype), (lambda x: x + 1.5, wide + 1.5, "f32"), (lambda x: x * x, wide * wide, dtype),
    ]:  # fmt: skip
        (got,) = outputs_of(mine, x=x)
        same(got, want.astype(numpy_dtype(stored)) if DTYPES[stored].kind == "int" else want, stored, 1.2)


BINARY: dict[str, tuple[Callable[..., Any], Oracle]] = {
    "add": (lambda x, y: x + y, np.add),
    "subtract": (lambda x, y: x - y, np.subtract),
    "multiply": (lambda x, y: x * y, np.multiply),
    "minimum": (tp.minimum, np.minimum),
    "maximum": (tp.maximum, np.maximum),
    "less": (lambda x, y: x < y, np.less),
    "less_equal": (lambda x, y: x <= y, np.less_equal),
    "greater": (lambda x, y: x > y, np.greater),
    "greater_equal": (lambda x, y: x >= y, np.greater_equal),
    "equal": (lambda x, y: x == y, np.equal),
    "not_equal": (lambda x, y: x != y, np.not_equal),
}


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int32", "int64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str, dtype: str, array, same) -> None:
    mine, oracle = BINARY[name]
    x, y = array(6, 5, dtype=dtype), array(6, 5, dtype=dtype, seed=1)
    (got,) = outputs_of(mine, x=x, y=y)
    wide = np.float64 if DTYPES[dtype].kind == "float" else np.int64
    want = oracle(x.astype(wide), y.astype(wide))
    same(got, want, "bool" if want.dtype == np.bool_ else dtype, 1.01)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_divisions(dtype: str, array, same) -> None:
    x, y = array(50, dtype=dtype), array(50, dtype=dtype, seed=1)
    a, b = x.astype(np.float64), y.astype(np.float64)
    got = outputs_of(lambda x, y: (x / y, x // y, x % y, abs(x) ** y), x=x, y=y)
    for value, want in zip(got, (a / b, a // b, a % b, np.abs(a) ** b), strict=True):
        same(value, want, dtype, 8 if dtype == "f64" else 2.5)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int8", "int32", "int32"), ("int64", "f16", "f16"), ("bf16", "f16", "f32"), ("bf16", "f32", "f32"),
        ("f32", "f64", "f64"), ("int64", "bf16", "bf16"), ("bool", "int8", "int8"), ("bool", "f32", "f32"),
    ],
)  # fmt: skip
def test_dtypes_promote(a: str, b: str, result: str, array, same) -> None:
    x, y = array(20, dtype=a), array(20, dtype=b, seed=1)
    wide = np.float64 if DTYPES[result].kind == "float" else np.int64
    for left, right in ((x, y), (y, x)):
        (got,) = outputs_of(lambda x, y: x + y, x=left, y=right)
        same(got, left.astype(wide) + right.astype(wide), result, 1.01)


def test_logic_and_choice(array, same) -> None:
    p, q = array(30, dtype="bool"), array(30, dtype="bool", seed=1)
    x, y = array(30), array(30, seed=1)
    got = outputs_of(lambda p, q, x, y: (p & q, p | q, ~p, tp.where(p, x, y), tp.where(q, x, 0.0)), p=p, q=q, x=x, y=y)
    for value, want in zip(got[:3], (p & q, p | q, ~p), strict=True):
        same(value, want, "bool")
    same(got[3], np.where(p, x, y), "f32")
    same(got[4], np.where(q, x, 0), "f32")


@pytest.mark.parametrize("target", list(DTYPES))
@pytest.mark.parametrize("source", list(DTYPES))
def test_casts_are_numpys(source: str, target: str, array) -> None:
    x = array(60, dtype=source)
    (got,) = outputs_of(lambda x: x.astype(target), x=x)
    np.testing.assert_array_equal(got, x.astype(numpy_dtype(target)))
    assert got.dtype == numpy_dtype(target)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 1, 4), (3, 1)), ((1,), (5, 1, 2))]
)
def test_broadcasting_is_numpys(shapes: tuple[tuple[int, ...], tuple[int, ...]], array, same) -> None:
    x, y = array(*shapes[0]), array(*shapes[1], seed=1)
    (got,) = outputs_of(lambda x, y: x * y, x=x, y=y)
    same(got, x.astype(np.float64) * y, "f32", 1.01)


def test_numbers_are_weak(array, same) -> None:
    for dtype in FLOATS:
        x = array(9, dtype=dtype)
        (got,) = outputs_of(lambda x: 2 * x + 0.5, x=x)
        assert got.dtype == numpy_dtype(dtype)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, b: x & x, lambda x, b: b + b, lambda x, b: tp.where(x, x, x), lambda x, b: -b, lambda x, b: x + x[:3],
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(wrong: Callable[..., Any], array) -> None:
    with pytest.raises(tp.UsageError):
        outputs_of(wrong, x=array(5), b=array(5, dtype="bool"))
