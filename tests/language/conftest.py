"""Arrays and comparisons that the numerics tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry.dtypes import DTYPES, name_of, numpy_dtype

UNIT = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
Draw = Callable[..., np.ndarray]
Check = Callable[..., None]


@pytest.fixture
def array() -> Draw:
    """array(3, 4, dtype="bf16", seed=1): normal floats, integers from -9 (or 0) to 9, even odds."""

    def make(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng([seed, *shape])
        kind = DTYPES[dtype].kind
        if kind == "bool":
            return rng.random(shape) < 0.5
        if kind == "int":
            return rng.integers(0 if dtype.startswith("u") else -9, 10, shape).astype(numpy_dtype(dtype))
        return rng.normal(size=shape).astype(numpy_dtype(dtype))

    return make


@pytest.fixture
def same() -> Check:
    """same(got, want, dtype, roundings, inner): the dtype is exact, integers are equal, floats differ by few roundings.

    ``inner`` functions are rounded to f32 on the way, each by 2**-24 of the largest value.

    float64 is compared with oracles that round on the way as well, so there the order of sums counts.
    """

    def check(got: np.ndarray, want: Any, dtype: str, roundings: float = 1, inner: int = 0) -> None:
        want = np.asarray(want)
        assert (name_of(got.dtype), got.shape) == (dtype, want.shape)
        if DTYPES[dtype].kind != "float":
            np.testing.assert_array_equal(got, want)
            return
        scale = max(1.0, float(np.abs(want, where=np.isfinite(want), out=np.zeros(want.shape)).max(initial=0)))
        unit = UNIT[dtype] * roundings if dtype != "f64" else 1e-13
        least = {"f64": scale * unit, "f16": 2.0**-25}.get(dtype, 1e-7 * scale * unit)
        least += inner * 2.0**-24 * scale
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1.01 * unit, atol=least)

    return check
