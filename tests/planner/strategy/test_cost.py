"""What a fold costs follows from how its monoid combines records, and a plan's checker charges the same."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.expr import MONOIDS
from tapestry.planner import load_machine, plan
from tapestry.planner.strategy.cost import flops_per_point
from tapestry.planner.strategy.work import Works
from tapestry.program import Pin
from tapestry.space import Box
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


def test_a_partial_result_is_written_as_its_record() -> None:
    """A sum of f16 goes on in f32: what two ranks contribute to it is twice as wide as the sum."""
    program = program_of(lambda x: tp.sum(x, axis=0), x=np.ones((2, 4096), np.float16))
    (op,), machine = program.operations, load_machine("cpu-4")
    region = Box.of_shape(tuple(op.extents.values())).region()
    whole, partial = (Works(machine, 2).of(op, program, region, partial=partial) for partial in (False, True))
    device = machine.device
    assert partial.seconds == pytest.approx(device.copying(2).seconds((2 * 2 + 4) * 4096) + device.start_s(2))
    assert whole.seconds < partial.seconds
    cut = Pin("op", "*", (("mesh0", op.reduce_dims[0]),))
    made = plan(program.with_pins(cut), machine, mesh=(2,), time_limit=600)
    assert any(buffer.record == ("f32",) for buffer in made.document.buffers)
    assert made.check().ok, made.check()
