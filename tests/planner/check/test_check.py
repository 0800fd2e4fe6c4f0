"""The checker accepts hand-written plans, and each verdict is provoked by one alteration that deserves it."""

from __future__ import annotations

import pytest

from tapestry.planner.check import check

from . import plans


@pytest.mark.parametrize("name", plans.ALL)
def test_hand_written_plans_pass(name: str) -> None:
    report = check(plans.ALL[name]())
    assert report.ok, str(report)
