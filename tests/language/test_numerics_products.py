"""matmul and einsum against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry.testing import outputs_of

FLOATS = ["f64", "f32", "f16", "bf16"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 4)), ((7,), (7, 4)), ((5, 7), (7,)), ((7,), (7,)), ((3, 5, 7), (3, 7, 4)), ((3, 5, 7), (7, 4)),
        ((5, 7), (3, 7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((1, 1), (1, 1)), ((3, 1, 5, 7), (1, 4, 7, 2)),
    ],
)  # fmt: skip
def test_matmul_takes_numpys_shapes(a: tuple[int, ...], b: tuple[int, ...], array, same) -> None:
    x, y = array(*a), array(*b, seed=1)
    (got,) = outputs_of(lambda x, y: x @ y, x=x, y=y)
    same(got, x.astype(np.float64) @ y.astype(np.float64), "f32", 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_matmul_rounds_once(dtype: str, array, same) -> None:
    x, y = array(6, 33, dtype=dtype), array(33, 5, dtype=dtype, seed=1)
    (got,) = outputs_of(tp.matmul, a=x, b=y)
    same(got, x.astype(np.float64) @ y.astype(np.float64), dtype, 1.2)


def test_products_of_int8_are_stored_in_int32(array, same) -> None:
    x, y = array(4, 300, dtype="int8") * np.int8(13), array(300, 3, dtype="int8", seed=1) * np.int8(14)
    (got,) = outputs_of(tp.matmul, a=x, b=y)
    same(got, x.astype(np.int64) @ y.astype(np.int64), "int32")


def test_int32_products_wrap_as_integers_do(array, same) -> None:
    x = np.array([[2**20, 2**21]], np.int32)
    (got,) = outputs_of(lambda x: x @ x.T, x=x)
    same(got, [[(2**40 + 2**42 + 2**31) % 2**32 - 2**31]], "int32")


def test_mixed_dtypes_promote(array, same) -> None:
    x, y = array(4, 6, dtype="bf16"), array(6, 3, dtype="f16")
    (got,) = outputs_of(tp.matmul, a=x, b=y)
    same(got, x.astype(np.float64) @ y.astype(np.float64), "f32", 2)


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]), ("ij,jk->ki", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("td,dhe->the", [(6, 4), (4, 2, 3)]), ("i,j->ij", [(3,), (4,)]), ("i,i->", [(5,), (5,)]), ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]), ("ii->i", [(4, 4)]), ("ii->", [(4, 4)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]), ("iji,j->i", [(3, 4, 3), (4,)]), ("ij,jk", [(3, 4), (4, 5)]), ("ba", [(2, 3)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]), ("i->", [(1,)]), ("ab,cd->", [(2, 3), (4, 2)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "int64"])
def test_einsum_is_numpys(spec: str, shapes: list[tuple[int, ...]], dtype: str, array, same) -> None:
    operands = {f"x{k}": array(*shape, dtype=dtype, seed=k) for k, shape in enumerate(shapes)}
    (got,) = outputs_of(lambda *xs: tp.einsum(spec, *xs), **operands)
    wide = [x.astype(np.float64 if dtype == "f32" else np.int64) for x in operands.values()]
    want = np.einsum(spec, *wide)
    np.testing.assert_allclose(got, want, rtol=2e-7, atol=1e-6 if dtype == "f32" else 0)
    assert got.dtype == (np.float32 if dtype == "f32" else np.int64)
