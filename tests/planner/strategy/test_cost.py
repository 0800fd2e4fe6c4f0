"""What a fold costs follows from how its monoid combines records, and a plan's checker charges the same."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.dtypes import numpy_dtype
from tapestry.expr import MONOIDS
from tapestry.planner import load_machine, plan
from tapestry.planner.strategy.cost import flops_per_point
from tapestry.planner.strategy.work import Works
from tapestry.program import Pin
from tapestry.space import Box, parse_region
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


def test_attention_of_early_and_late_rows_is_priced_as_the_calls_that_it_takes() -> None:
    """A library has a box at a time. Early rows see few keys, late ones many, which together look like rows that see
    as many as there are on average; and pieces by heads are small calls, not a quarter of the large one.
    """
    program = program_of(
        lambda q, k, v: tp.attention(q, k, v, causal=True),
        **{name: np.ones((8192, heads, 128), numpy_dtype("bf16")) for name, heads in (("q", 32), ("k", 8), ("v", 8))},
    )
    op, works = program.operations[0], Works(load_machine("h200x2"), 2)
    both, rest = "0:2048|6144:8192", "0:8192,0:130"
    whole, early, late, piece = (
        works.of(op, program, parse_region(f"{rows},{heads},{rest}"), partial=False)
        for rows, heads in ((both, "0:32"), ("0:2048", "0:32"), ("6144:8192", "0:32"), (both, "0:8"))
    )
    start_s = works.machines[0].device.start_s(1)
    assert whole.seconds >= early.seconds + late.seconds - start_s - 1e-12
    assert whole.points == early.points + late.points
    assert 4 * piece.seconds > 1.1 * whole.seconds
    assert piece.measured
