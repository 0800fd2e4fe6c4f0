"""On a GPU: a step of training compiled once and replayed as one graph, against the reference step by step."""

from __future__ import annotations

import numpy as np

from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.format.checked import Checked
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.workers import Compiled

from ....files import example
from .executed import cut, needs_gpu

pytestmark = needs_gpu


def halves(op: Operation) -> list[Region]:
    """What has the batch is cut along it; the rest is done twice."""
    if any(dim.name == "n" and dim.extent > 1 for dim in op.dims if dim.name not in op.reduce_dims):
        return cut(op, "n", 2)
    return [Box.of_shape(tuple(dim.extent for dim in op.dims)).region()] * 2


def test_steps_of_training() -> None:
    digits = example("digits")
    program = digits.train_step.bind(n=32)
    shards = {op.name: halves(op) for op in program.operations}
    document = plan_partitions(program, load_machine("h200x8"), shards).document
    rng = np.random.default_rng(0)
    states = digits.first_weights(program)
    with Compiled(Checked(Resolved(document, program)), states, device="cupy", poison=True) as step:
        for _ in range(5):
            batch = {
                "images": rng.random((32, 1, 8, 8)).astype(np.float32),
                "labels": rng.integers(0, 10, 32).astype(np.int32),
            }
            wanted = evaluate(program, batch | states)
            states = {name: wanted[name] for name, _ in program.states}
            found = step(batch) | step.states
            np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-4)
