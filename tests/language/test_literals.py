"""Numbers in programs are exact, rounded once, or refused: against NumPy and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, int32
from tapestry.literals import python_number, stored
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import program_of

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def neighbours(value: float, kind: Any) -> list[float]:
    """A number of a format, and those beside it; infinities stand at the first power of two beyond the range."""
    around = [np.nextafter(kind(value), kind(side)) for side in (-np.inf, np.inf)]
    return [float(kind(value)), *map(float, around)]


def distance(a: float, b: Any, top: int) -> Fraction:
    return abs((Fraction(2) ** top * (1 if a > 0 else -1) if math.isinf(a) else Fraction(a)) - Fraction(b))


@given(st.sampled_from(["f16", "bf16", "f32"]), st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_floats_are_rounded_once_to_the_nearest(dtype: str, value: float) -> None:
    top = {"f16": 16, "bf16": 128, "f32": 128}[dtype]
    try:
        found = stored(value, dtype)
    except tp.UsageError:
        found = math.inf if value > 0 else -math.inf
    with np.errstate(all="ignore"):
        assert found == float(FLOATS[dtype](found))  # it is one of the format's numbers
        others = neighbours(found, FLOATS[dtype])
    assert distance(found, value, top) == min(distance(other, value, top) for other in others)


@given(st.floats(width=64))
def test_f64_and_f32_agree_with_numpy(value: float) -> None:
    assert repr(stored(value, "f64")) == repr(value)
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if math.isfinite(single) or not math.isfinite(value):
        assert repr(stored(value, "f32")) == repr(single)


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (2**40, "int32", "1099511627776 is no int32: it holds -2147483648 to 2147483647"),
        (300, "int8", "300 is no int8: it holds -128 to 127"),
        (0.5, "int32", "0.5 is no int32: it is not a whole number"),
        (-math.inf, "int32", "-inf is no int32: int32 has no infinity"),
        (math.nan, "int64", "nan is no int64: int64 has no NaN"),
        (2, "bool", "2 is no bool: truths are True and False"),
        (0.5, "bool", "0.5 is no bool"),
        (70000.0, "f16", "70000.0 is no f16: the largest is 65504"),
        (10**400, "f64", "is no f64"),
        (2**63, "int64", "is no int64"),
    ],
)
def test_what_a_dtype_lacks_is_refused(value: float, dtype: str, said: str) -> None:
    with pytest.raises(tp.UsageError) as caught:
        stored(value, dtype)
    assert said in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    assert [python_number(v) for v in (np.int8(3), np.float32(0.5), np.bool_(True), np.array(2))] == [3, 0.5, True, 2]
    assert type(python_number(ml_dtypes.bfloat16(0.5))) is float
    assert [python_number(v) for v in ("3", 1j, np.complex64(1), np.ones(1), None, [1])] == [None] * 6


def built(function: Any, dtype: Any = np.int32) -> Program:
    return program_of(function, x=np.zeros(3, dtype))


@pytest.mark.parametrize(
    ("values", "dtype", "data"),
    [
        ([2**40], "int64", (2**40,)),
        ([2**63 - 1, -(2**63)], "int64", (2**63 - 1, -(2**63))),
        ([1, 2.5], None, (1.0, 2.5)),
        ([2.0, 3], "int8", (2, 3)),
        ([True, 0], "bool", (True, False)),
        ([0.1], "f32", (float(np.float32(0.1)),)),
        ([2**60 + 2**36 + 1], "f32", (float(2**60 + 2**37),)),
        (np.array([200], np.uint8), "int32", (200,)),
        (np.array([0.5, -2], ml_dtypes.bfloat16), None, (0.5, -2.0)),
        ([np.int64(7), [8][0]], None, (7, 8)),
        ([math.inf, -math.inf], "f16", (math.inf, -math.inf)),
    ],
)
def test_constants_hold_what_was_written(values: Any, dtype: str | None, data: tuple[Any, ...]) -> None:
    (const,) = built(lambda x: [tp.constant(values, dtype), x][1]).of_role("const")
    assert const.data == data
    assert [type(v) for v in const.data or ()] == [type(v) for v in data]


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([2**40], None, ["1099511627776 is no int32", 'dtype="int64"']),
        ([300], "int8", ["300 is no int8"]),
        ([1 + 2j], None, ["complex"]),
        (np.array([1j]), None, ["complex"]),
        (np.array([1], np.uint64), None, ["uint64", 'dtype="int32"']),
        ([[1, 2], [3]], None, ["rows of different lengths", "[2]", "[1]"]),
        ([[1, 2], 3], None, ["rows of different lengths"]),
        (["a"], None, ["'a' is not a number"]),
        (None, None, ["None is not a number"]),
        ({"a": 1}, None, ["is not a number"]),
        ([math.nan], "int32", ["nan is no int32"]),
        ([1e300], None, ["1e+300 is no f32"]),
        ([0.5], "bool", ["0.5 is no bool"]),
        (np.array(["a"]), None, ["is not a number"]),
    ],
)
def test_constants_that_cannot_be_held_are_refused(values: Any, dtype: str | None, said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        built(lambda x: [tp.constant(values, dtype), x][1])
    for words in [*said, "test_literals.py:"]:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: tp.pad(x, 1, value=0.5), "0.5 is no int32"),
        (lambda x: tp.pad(x, 1, value=-math.inf), "-inf is no int32"),
        (lambda x: tp.pad(x, 1, value=2**40), "1099511627776 is no int32"),
        (lambda x: tp.pad(x, 1, value=1j), "is not a number"),
        (lambda x: tp.pad(x > 0, 1, value=0.5), "0.5 is no bool"),
        (lambda x: tp.pad(x.astype("f16"), 1, value=1e6), "1000000.0 is no f16"),
        (lambda x: tp.full((2,), 0.5, "int32"), "0.5 is no int32"),
        (lambda x: tp.full((2,), "a", "int32"), "'a' is not a number"),
        (lambda x: x + 2**40, "1099511627776 is no int32"),
        (lambda x: x.astype("int8") + 300, "300 is no int8"),
        (lambda x: tp.where(x > 0, 2**40, x), "1099511627776 is no int32"),
        (lambda x: x < 2**40, "1099511627776 is no int32"),
        (lambda x: tp.where(x > 0, 2**40, 0), "1099511627776 is no int32"),
        (lambda x: x.astype("f16") * 1e6, "1000000.0 is no f16"),
        (lambda x: x**-1, "an integer to the power -1"),
        (lambda x: tp.power(2, x.astype("int64")) ** -2, "an integer to the power -2"),
    ],
)
def test_numbers_that_a_type_lacks_are_refused_where_they_are_written(function: Any, said: str) -> None:
    with pytest.raises(tp.UsageError) as caught:
        built(function)
    assert said in str(caught.value)
    assert "test_literals.py:" in str(caught.value)


def test_numbers_that_fit_are_what_was_written() -> None:
    x = np.array([1, 2, 3], np.int32)
    wide = built(lambda x: 2**40 + x.astype("int64"))
    np.testing.assert_array_equal(evaluate(wide, {"x": x})["out"], 2**40 + x.astype(np.int64))
    padded = built(lambda x: tp.pad(x, 1, value=np.int64(7)))
    assert evaluate(padded, {"x": x})["out"].tolist() == [7, 1, 2, 3, 7]
    assert evaluate(built(lambda x: tp.pad(x > 1, 1, value=True)), {"x": x})["out"].tolist() == [
        True, False, True, True, True,
    ]  # fmt: skip
    assert evaluate(built(lambda x: tp.pad(x > 1, 1)), {"x": x})["out"].tolist() == [False, False, True, True, False]


def test_a_fill_of_index_notation_fits_too() -> None:
    @tp.op
    def before(x: int32[Tensor, "n"], *, fill: float = 0) -> int32[Tensor, "n"]:
        n = tp.indices("n")
        return x.get(n - 1, fill=fill)  # type: ignore[no-any-return]

    assert evaluate(built(lambda x: before(x, fill=-3)), {"x": np.ones(3, np.int32)})["out"].tolist() == [-3, 1, 1]
    for fill in (0.5, math.inf, math.nan, 2**31):
        with pytest.raises(tp.UsageError, match=r"is no int32"):
            built(lambda x, f=fill: before(x, fill=f))
