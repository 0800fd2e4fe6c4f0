"""Division by a multiplication and a shift is floor division, for every divisor and dividend there can be."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry.kernels.convolution.divisor import BYTES, divisor, packed

from .. import host_compiler

host_compiler.compiler()
SOURCE = """
#include <tapestry/divisor.cuh>
extern "C" void divide(const tapestry::Divisor* by, int dividend, int* out) {
  out[0] = by->quotient(dividend);
  out[1] = by->remainder(dividend, out[0]);
}
static_assert(sizeof(tapestry::Divisor) == 12);
"""
most = 2**31 - 1


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return host_compiler.library(SOURCE, "-std=c++17", "-O1")


@given(by=st.integers(1, most), dividend=st.integers(0, most))
@example(1, most)
@example(most, most)
@example(2**30 + 1, most)
@example(3, most - 1)
def test_floor_division(library: Any, by: int, dividend: int) -> None:
    given_bytes = packed(by)
    assert len(given_bytes) == BYTES
    out = (ctypes.c_int * 2)()
    library.divide(given_bytes, ctypes.c_int(dividend), out)
    assert tuple(out) == divmod(dividend, by)


@given(by=st.integers(1, 2**20), times=st.integers(0, 2**11), off=st.integers(-1, 1))
def test_around_multiples(library: Any, by: int, times: int, off: int) -> None:
    dividend = min(most, max(0, by * times + off))
    out = (ctypes.c_int * 2)()
    library.divide(packed(by), ctypes.c_int(dividend), out)
    assert tuple(out) == divmod(dividend, by)


@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_what_divides_nothing_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="a divisor is an integer from 1 to"):
        divisor(value)
