"""The table of monoids: every law that an entry claims holds on generated values, and folds are what they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.dtypes import numpy_dtype
from tapestry.expr import MONOIDS, Monoid, add_monoid
from tapestry.reference.expressions import Value
from tapestry.reference.monoids import Fold, State

Array = NDArray[Any]
SCALAR = [name for name, monoid in MONOIDS.items() if not monoid.packed]
NUMBERS = st.one_of(
    st.integers(-20, 20).map(float),
    st.floats(-30, 30, width=16),
    st.sampled_from([float("-inf"), 0.0, -0.0, 1.0]),
)
DTYPES_OF = {"any": ("bool",), "all": ("bool",), "logsumexp": ("f32", "f64"), "average": ("f32", "f64")}
DTYPES_OF["variance"] = DTYPES_OF["average"]


def fold_of(name: str, dtype: str) -> Fold:
    return Fold(name, dtype, "int64" if MONOIDS[name].result == "position" else dtype)


def lifted(fold: Fold, dtype: str, values: list[float], start: int) -> State:
    finite = [
        x if np.isfinite(x) or fold.name in ("max", "min", "argmax", "argmin", "logsumexp") else 2.0 for x in values
    ]
    finite = [x if np.isfinite(x) or dtype.startswith("f") else -7.0 for x in finite]
    array = np.asarray(finite).astype(numpy_dtype(dtype))
    return fold.lift(Value(array, dtype), np.arange(start, start + len(values)))


def same(fold: Fold, a: State, b: State) -> bool:
    kind = "bool" if fold.dtypes[0] == "bool" else "float" if fold.dtypes[0].startswith("f") else "int"
    if kind in fold.monoid.exact:
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    return all(np.allclose(x, y, rtol=1e-9, atol=1e-9) for x, y in zip(a, b, strict=True))


@st.composite
def three_states(draw: st.DrawFn, name: str) -> tuple[Fold, State, State, State]:
    dtype = draw(st.sampled_from(DTYPES_OF.get(name, ("int8", "int32", "f16", "bf16", "f32", "f64"))))
    fold = fold_of(name, dtype)
    count = draw(st.integers(1, 4))
    parts = [draw(st.lists(NUMBERS, min_size=count, max_size=count)) for _ in range(3)]
    states = [lifted(fold, dtype, part, k * count) for k, part in enumerate(parts)]
    if draw(st.booleans()):  # states of more than one point, too
        more = [fold.lift(Value(small(dtype, part), dtype), np.arange(100, 100 + count)) for part in parts]
        states = [fold.combine(state, other) for state, other in zip(states, more, strict=True)]
    return fold, states[0], states[1], states[2]


def small(dtype: str, part: list[float]) -> Array:
    return np.asarray([abs(x) % 5 if np.isfinite(x) else 3.0 for x in part]).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("name", SCALAR)
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_laws_that_an_entry_claims(name: str, data: st.DataObject) -> None:
    fold, a, b, c = data.draw(three_states(name))
    with np.errstate(all="ignore"):
        assert same(fold, fold.combine(fold.combine(a, b), c), fold.combine(a, fold.combine(b, c)))
        if "commutative" in fold.monoid.laws:
            assert same(fold, fold.combine(a, b), fold.combine(b, a))
        if fold.monoid.idempotent:
            assert same(fold, fold.combine(a, a), a)
        nothing = fold.identity(a[0].shape)
        assert same(fold, fold.combine(a, nothing), a)
        assert same(fold, fold.combine(nothing, a), a)


@given(st.integers(0, 1 << 30))
@settings(max_examples=20, deadline=None)
def test_the_laws_of_softmax_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fold = Fold("online_softmax", "f64", "f64")
    states = [
        (np.concatenate([rng.normal(size=(2, 3)), rng.random((2, 1)) + 1, rng.normal(size=(2, 1))], -1),) for _ in "abc"
    ]
    a, b, c = states
    assert same(fold, fold.combine(fold.combine(a, b), c), fold.combine(a, fold.combine(b, c)))
    assert same(fold, fold.combine(a, b), fold.combine(b, a))
    assert same(fold, fold.combine(a, fold.identity((2, 5))), a)


def reference_logsumexp(x: Array) -> float:
    return float(np.log(np.exp(x.astype(np.float64)).sum()))


def points(fold: Fold, values: Array) -> State:
    lifted = fold.lift(Value(values, "f64"), np.arange(len(values)))
    return tuple(np.broadcast_to(array, values.shape) for array in lifted)


EXPECTED: dict[str, Callable[[Array], float]] = {
    "sum": lambda x: float(x.sum()),
    "prod": lambda x: float(x.prod()),
    "max": lambda x: float(x.max()),
    "min": lambda x: float(x.min()),
    "argmax": lambda x: float(np.argmax(x)),
    "argmin": lambda x: float(np.argmin(x)),
    "logsumexp": reference_logsumexp,
    "average": lambda x: float(x.mean()),
    "variance": lambda x: float(x.var()),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fold_is_what_its_name_says(name: str) -> None:
    values = np.asarray([3.0, -1.0, 7.5, 7.5, -4.0, 2.0, 0.5])
    fold = fold_of(name, "f64")
    found = fold.finish(fold.reduce(points(fold, values), (0,)))
    assert float(found) == pytest.approx(EXPECTED[name](values), rel=1e-12)


def test_partial_sums_have_the_exponents_of_their_accumulator() -> None:
    assert MONOIDS["sum"].dtypes_for("f16", "f16") == ("f32",)
    assert MONOIDS["sum"].dtypes_for("f32", "f16") == ("f32",)
    assert MONOIDS["sum"].dtypes_for("bf16", "bf16") == ("bf16",)
    assert MONOIDS["prod"].dtypes_for("f32", "bf16") == ("bf16",)
    assert MONOIDS["sum"].dtypes_for("f64", "bf16") == ("f64",)
    assert MONOIDS["variance"].dtypes_for("bf16", "bf16") == ("f32", "f32", "f32")
    assert MONOIDS["sum"].dtypes_for("f64", "f32") == ("f64",)
    assert MONOIDS["sum"].dtypes_for("int8", "int32") == ("int32",)
    assert MONOIDS["max"].dtypes_for("f16", "f16") == ("f16",)
    assert MONOIDS["argmax"].dtypes_for("f16", "int64") == ("f16", "int64")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="the monoid sum is there already"):
        add_monoid(Monoid("sum", MONOIDS["sum"].components, MONOIDS["sum"].finish))


WITH_ROWS = [*(name for name, monoid in MONOIDS.items() if monoid.rows), "top1", "top4", "top12"]


@pytest.mark.parametrize("name", WITH_ROWS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_numpys_fold_of_rows_is_what_combining_them_comes_to(name: str, dtype: str) -> None:
    """Of points all of which count, and where some, or all, are the identity; positions among NaN and equals too."""
    rng = np.random.default_rng(len(name))
    values = rng.integers(-3, 4, (9, 5)).astype(numpy_dtype(dtype)) / 4
    values[4, 1] = values[7, 1] = np.nan if name.startswith("arg") else 5
    fold = fold_of(name, dtype)
    position = np.broadcast_to(np.arange(9)[:, None], values.shape)
    lifted = tuple(np.broadcast_to(part, values.shape) for part in fold.lift(Value(values, dtype), position))
    nothing = fold.identity(values.shape)
    for counts in (np.ones(values.shape, bool), rng.random(values.shape) < 0.5, np.arange(5) * np.ones((9, 1)) > 2):
        state = tuple(np.where(counts, part, none) for part, none in zip(lifted, nothing, strict=True))
        assert fold.monoid.fold_rows is not None
        found, wanted = fold.monoid.fold_rows(state), fold.reduce(state, (0,))
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-7)
    every = tuple(np.broadcast_to(part, values.shape) for part in fold.lift(Value(values, dtype), position))
    for mine, other in zip(fold.monoid.fold_rows(every), fold.reduce(lifted, (0,)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-7)
