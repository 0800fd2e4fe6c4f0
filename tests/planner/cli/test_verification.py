"""What a run says of its values beside the reference's."""

from __future__ import annotations

import pytest

from tapestry.closeness import Difference
from tapestry.errors import CheckFailed
from tapestry.planner.cli.verification import demand_equal, summary

NEAR, FAR = Difference("near", 1e-7, 2e-7, 0.12), Difference("far", 0.5, 0.25, 40.0)


def test_the_worst_of_all_tensors() -> None:
    expected = {"max_abs_error": 0.5, "max_rel_error": 0.25, "limit_used": 40.0, "verified": False}
    assert summary([NEAR, FAR]) == expected
    assert summary([NEAR])["verified"] is True


def test_the_farthest_tensor_is_named() -> None:
    demand_equal([NEAR])
    with pytest.raises(CheckFailed, match=r"values: far: error 0\.5, relative 0\.25, 40 times the limit"):
        demand_equal([NEAR, FAR, Difference("less far", 0.1, 0.1, 2.0)])
