"""What a fold costs follows from how its monoid combines records, and a plan's checker charges the same."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.expr import MONOIDS
from tapestry.planner import load_machine, plan
from tapestry.planner.strategy.cost import flops_per_point
from tapestry.testing import program_of


def fold(monoid: str, x: Tensor) -> Tensor:
    folded: Tensor = getattr(tp, monoid)(x, axis=1)
    return folded


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min"])
def test_a_fold_of_values_is_one_function_a_point(monoid: str) -> None:
    (op,) = program_of(lambda x: fold(monoid, x), x=np.ones((4, 8), np.float32)).operations
    assert flops_per_point(op) == MONOIDS[monoid].flops == 1


@pytest.mark.parametrize("monoid", ["argmax", "logsumexp", "variance"])
def test_a_fold_of_records_costs_what_combines_them(monoid: str) -> None:
    program = program_of(lambda x: fold(monoid, x), x=np.ones((64, 4096), np.float32))
    (op,) = program.operations
    assert flops_per_point(op) > 5
    assert plan(program, load_machine("cpu-4"), mesh=(2,), time_limit=5).check().ok
