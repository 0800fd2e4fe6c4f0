"""Generated programs under random partitions on the CuPy device, its kernels run on the host, against the reference."""

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

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked

pytestmark = needs_compiler
EXAMPLES = int(os.environ.get("TAPESTRY_CUPY", 0)) or 4
MACHINE = load_machine("h200x8")


@pytest.mark.parametrize("chunk", range(2))
def test_planned_executions(on_host: str, chunk: int) -> None:
    """Integers exactly, floats within the stated tolerance; counted bytes are the plan's; any order runs."""

    @settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        program = data.draw(programs())
        ranks = data.draw(st.integers(1, 4))
        shards = data.draw(partitions(program, ranks))
        inputs = data.draw(inputs_for(program))
        document = plan_partitions(program, MACHINE, shards).document
        plan = Resolved(document, program)
        order = data.draw(st.none() | st.integers(0, 1 << 20))
        found = run_unchecked(plan, inputs, device=on_host, poison=True, order=order)
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
        assert found.bytes_moved == document.traffic.bytes_total

    (execute if "TAPESTRY_FUZZ" in os.environ else seed(chunk)(execute))()
