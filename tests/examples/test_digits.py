"""Training over workers is training: the losses of four are those of one, and the digits are learned."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapestry.planner import plan

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "digits.py"))


def test_four_workers_learn_as_one_does(digits: dict[str, Any]) -> None:
    learn, test = digits["data"]()
    one, four = (
        digits["trained"](plan(digits["train_step"].bind(), "cpu-4", mesh=(ranks,)), learn, 64, 3) for ranks in (1, 4)
    )
    np.testing.assert_allclose(four[0], one[0], rtol=1e-5)
    assert four[0][-1] < 0.2 * four[0][0]
    assert digits["accuracy"](four[1], test) > 0.8  # after 66 of the steps that the example takes
