"""How far a run is from the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry.errors import CheckFailed
from tapestry.planner.cli.verification import demand_equal, differences, summary
from tapestry.program import Program, Tensor

INF, NAN = float("inf"), float("nan")


def program(dtype: str) -> Program:
    return Program("p", (Tensor("y", dtype, (3,), "input"),), (), ("y",))


@pytest.mark.parametrize(
    ("found", "expected", "absolute", "relative"),
    [
        ([1, 2, 3], [1, 2, 3], 0.0, 0.0),
        ([1, 2, 4], [1, 2, 8], 4.0, 0.5),
        ([0, 0, 2.5], [0, 0, 0], 2.5, 2.5),
        ([INF, NAN, 1], [INF, NAN, 1], 0.0, 0.0),
        ([INF, 0, 0], [-INF, 0, 0], INF, INF),
        ([NAN, 0, 0], [1, 0, 0], INF, INF),
        ([1, 0, 0], [INF, 0, 0], INF, INF),
    ],
)
def test_errors(found: list[float], expected: list[float], absolute: float, relative: float) -> None:
    (difference,) = differences(program("f32"), {"y": np.float32(found)}, {"y": np.float32(expected)})
    assert (difference.max_abs_error, difference.max_rel_error) == (absolute, relative)


def test_integers_must_be_equal() -> None:
    wrong = differences(program("int32"), {"y": np.int32([1, 2, 3])}, {"y": np.int32([1, 2, 4])})
    assert summary(wrong) == {"max_abs_error": 1.0, "max_rel_error": 0.25, "verified": False}
    with pytest.raises(CheckFailed, match="y: the run does not give"):
        demand_equal(wrong)


def test_large_integers_are_compared_as_integers() -> None:
    wrong = differences(program("int64"), {"y": np.int64([2**60, 0, 0])}, {"y": np.int64([2**60 + 1, 0, 0])})
    assert wrong[0].max_abs_error == 1.0
    assert not wrong[0].ok


def test_equal_values_pass() -> None:
    equal = differences(program("bool"), {"y": np.array([True, False, True])}, {"y": np.array([True, False, True])})
    assert summary(equal)["verified"] is True
    demand_equal(equal)


def test_empty_arrays_agree() -> None:
    empty = Program("p", (Tensor("y", "f32", (0,), "input"),), (), ("y",))
    (difference,) = differences(empty, {"y": np.zeros(0, np.float32)}, {"y": np.zeros(0, np.float32)})
    assert (difference.max_abs_error, difference.max_rel_error) == (0.0, 0.0)
