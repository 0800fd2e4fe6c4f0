"""Functions compiled once for the types of their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry.planner.solvers.compiled import compiled, compiled_uncounted

Ints = np.ndarray[Any, np.dtype[np.int64]]


@pytest.mark.parametrize("decorator", [compiled, compiled_uncounted])
def test_numbers_that_calls_write_out_are_compiled_once(decorator: Any) -> None:
    @decorator
    def raised(values: Ints, by: int, times: int = 1) -> int:
        return int(values[0] + by * times)

    @decorator
    def all_ways(values: Ints, by: int) -> int:
        return int(raised(values, 1) + raised(values, 2, 3) + raised(values, by, times=4) + raised(values, by, by))

    values = np.array([100])
    assert all_ways(values, 5) == 101 + 106 + 120 + 125
    assert raised(values, 7) == 107
    assert len(raised.signatures) == 2  # with its default, and without
    assert len(all_ways.signatures) == 1
