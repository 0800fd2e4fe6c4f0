"""Training over workers is training: the losses of four are those of one, and the digits are learned."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapestry.planner import plan

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "digits.py"))


def test_four_workers_learn_as_one_does(digits: dict[str, Any]) -> None:
    learn, test = digits["data"]()
    one, four = (
        digits["trained"](plan(digits["train_step"].bind(n=96), "cpu-4", mesh=(ranks,)), learn, 96, 2)
        for ranks in (1, 4)
    )
    np.testing.assert_allclose(four[0], one[0], rtol=1e-5)
    # After 28 of the 264 steps that the example takes; guessing is right one time in ten.
    assert four[0][-1] < 0.6 * four[0][0]
    assert digits["accuracy"](four[1], test) > 0.5
