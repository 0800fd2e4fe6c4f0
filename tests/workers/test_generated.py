"""Generated programs under random partitions, executed as planned, against the reference."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.testing import assert_close, inputs_for, partitions, programs

from .unchecked import run_unchecked

pytestmark = pytest.mark.long

# `make fuzz` asks for more. Eight tests of distinct draws, so that they can run side by side.
EXAMPLES = int(os.environ.get("TAPESTRY_FUZZ", 0)) or 1000
CHUNKS = 8
MACHINE = load_machine("h200x8")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fuzz_planned_executions(chunk: int) -> None:
    """Integers exactly, floats as close as roundings leave them; counted bytes are the plan's; any order gives the same
    bits.
    """

    @settings(max_examples=EXAMPLES // CHUNKS, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        program = data.draw(programs())
        ranks = data.draw(st.integers(1, 5))
        shards = data.draw(partitions(program, ranks))
        inputs = data.draw(inputs_for(program))
        document = plan_partitions(program, MACHINE, shards).document
        plan = Resolved(document, program)
        first = run_unchecked(plan, inputs, poison=True)
        assert_close(program, inputs, first.outputs, evaluate(program, inputs))
        assert first.bytes_moved == document.traffic.bytes_total
        if chunk % 4 == 0:
            other = run_unchecked(plan, inputs, order=data.draw(st.integers(0, 1 << 20)), poison=True)
            for name, value in first.outputs.items():
                assert other.outputs[name].tobytes() == value.tobytes()

    (execute if "TAPESTRY_FUZZ" in os.environ else seed(chunk)(execute))()
