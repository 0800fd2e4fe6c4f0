"""What computed each task stands in the events of a run, in its trace and beside what was predicted."""

from __future__ import annotations

from typing import Any

from tapestry.inputs import random_inputs
from tapestry.planner.format import Resolved
from tapestry.planner.format.events import chrome_trace
from tapestry.planner.measured import beside
from tapestry.planner.search.explicit import plan_partitions

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine
from .test_chained import MACHINE, added, whole


@needs_compiler
def test_tasks_name_their_kernels(machine: HostMachine) -> None:
    program = added.bind()
    resolved = Resolved(plan_partitions(program, MACHINE, whole(program)).document, program)
    result = run_unchecked(resolved, random_inputs(program, 5), device="on_host")
    assert [(event.name, event.kernel) for event in result.events] == [
        ("matmul", "within add"),
        ("add", "product, added"),
    ]
    traced: list[Any] = [one for one in chrome_trace({"": result.events})["traceEvents"] if one["ph"] == "X"]
    assert [one["args"] for one in traced] == [
        {"task": 0, "kernel": "within add"},
        {"task": 1, "kernel": "product, added"},
    ]
    assert [one.kernel for one in beside([], result.steps)] == ["within add", "product, added"]
