"""Several GPUs, a process each: generated plans and the examples against the reference, late tasks, missing waits, and
a thousand steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tapestry.expr import FUNCTIONS, Call, walk
from tapestry.inputs import random_inputs
from tapestry.planner.check import Code, check
from tapestry.planner.format import Document, Resolved, Transfer
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Block, Program
from tapestry.testing import inputs_for, partitions, programs
from tapestry.workers.cupy.exchange import SMALL as SMALL_MESSAGES
from tapestry.workers.cupy.lanes import issued
from tapestry.workers.device import Bound, nothing
from tapestry.workers.rank import place_of

from ....files import example
from ....planner.check.mutations import waits_removed
from ...unchecked import run_unchecked
from ..test_outside import check_what_is_said
from .executed import EXAMPLES, MACHINE, SEVERAL, Job, cut_along, launched, needs_two, wrong
from .test_on_gpu import SMALL, example_program

pytestmark = [*needs_two, pytest.mark.long]
ENGINES = Path(__file__).parents[2] / "engines"
PLANS = max(20, EXAMPLES // 5)
SAMPLE = max(10, EXAMPLES // 20)
PARTS = 4  # side by side


def generated(count: int, number: int, ranks: int) -> list[Job]:
    """Plans of generated programs under random partitions over so many ranks."""
    jobs: list[Job] = []

    @seed(number)
    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        program = data.draw(programs())
        shards = data.draw(partitions(program, ranks))
        jobs.append((program, plan_partitions(program, MACHINE, shards).document, data.draw(inputs_for(program))))

    draw()
    return jobs


@pytest.fixture
def delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is said how late tasks are; ranks find the devices of `delayed`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ENGINES), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("DELAYS", str(tmp_path / "delays.json"))
    return tmp_path / "delays.json"


@pytest.mark.parametrize("ranks", SEVERAL)
@pytest.mark.parametrize("part", range(PARTS))
def test_generated_plans_and_the_examples(part: int, ranks: int) -> None:
    """Two steps each, the second as a device repeats it."""
    jobs = generated(PLANS // PARTS, 10 + part, ranks)
    for name in sorted(SMALL)[part::PARTS]:
        program = example_program(name)
        for last in (False, True):
            document = plan_partitions(program, MACHINE, cut_along(program, ranks, last=last)).document
            jobs.append((program, document, random_inputs(program, 0)))
    if not part:  # what copy engines bring
        program = example("mlp").forward.bind(n=1024, d=24, hidden=2048, k=8)
        document = plan_partitions(program, MACHINE, cut_along(program, ranks, last=True)).document
        assert document.traffic.bytes_total > SMALL_MESSAGES
        jobs.append((program, document, random_inputs(program, 0)))
    faults = [wrong(*pair, steps=2) for pair in zip(jobs, launched(jobs, "cupy", repeat=2), strict=True)]
    assert not any(faults), next(filter(None, faults))


@pytest.mark.parametrize("ranks", SEVERAL)
def test_an_index_outside_of_its_axis_ends_all_processes(ranks: int) -> None:
    check_what_is_said("cupy", ranks, "torchrun")


@pytest.mark.parametrize("ranks", SEVERAL)
@pytest.mark.parametrize("part", range(2))
def test_late_tasks_change_nothing(delays: Path, part: int, ranks: int) -> None:
    """Pauses at random ahead of tasks, and poison where they are about to write."""
    jobs = generated(SAMPLE // 2, 20 + part, ranks)
    delays.write_text(json.dumps([{"seed": k} for k in range(len(jobs))]))
    faults = [wrong(*pair) for pair in zip(jobs, launched(jobs, "delayed:Late"), strict=True)]
    assert not any(faults), next(filter(None, faults))


# -- many steps ------------------------------------------------------------------------------------------------------


STEPS = 1_000


@pytest.mark.parametrize("ranks", SEVERAL)
def test_a_thousand_steps_of_training_are_those_of_one_process(ranks: int) -> None:
    """States go on from step to step on all GPUs at once, and end with the bits that one process leaves in turn."""
    digits = example("digits")
    program = digits.train_step.bind(n=64)
    document = plan_partitions(program, MACHINE, cut_along(program, ranks, last=False)).document
    rng = np.random.default_rng(0)
    batch = {
        "images": rng.random((64, 1, 8, 8)).astype(np.float32),
        "labels": rng.integers(0, 10, 64).astype(np.int32),
    }
    given = {**batch, **digits.first_weights(program)}
    (found,) = launched([(program, document, given)], "cupy", repeat=STEPS)
    wanted = run_unchecked(Resolved(document, program), given, device="cupy", repeat=STEPS)
    assert np.isfinite(found.outputs["loss"])
    assert {name: value.tobytes() for name, value in found.outputs.items()} == {
        name: value.tobytes() for name, value in wanted.outputs.items()
    }


# -- waits that are missing --------------------------------------------------------------------------------------------


def hasty(count: int, number: int, ranks: int) -> Iterator[tuple[Job, int]]:
    """Plans that lack one wait, are rejected for a race, and give other values in some order; with the task that is not
    waited for any more. (The value that comes too late may be one that nobody looks at.)
    """
    random = Random(number)
    for program, document, inputs in generated(6 * count, number, ranks):
        made = [altered for _, altered in waits_removed(document)]
        if not made or any(strict(op.body) for op in program.operations):
            continue
        altered = random.choice(made)
        if met_alike(altered, program) and Code.RACE in check(altered).codes and harmed(program, altered, inputs):
            pairs = zip(document.tasks, altered.tasks, strict=True)
            [late] = [wait for before, after in pairs for wait in {*before.waits} - {*after.waits}]
            yield (program, altered, inputs), late


def harmed(program: Program, document: Document, inputs: Mapping[str, Any]) -> bool:
    plan = Resolved(document, program)
    with np.errstate(all="ignore"):
        runs = (run_unchecked(plan, inputs, poison=True, order=order) for order in range(8))
        return any(wrong((program, document, inputs), found) for found in runs)


def strict(body: Any) -> bool:
    """Whether some values of what is read are an error."""
    found = () if isinstance(body, Block) else walk(body)
    return any(isinstance(node, Call) and FUNCTIONS[node.function].strict for node in found)


def met_alike(document: Document, program: Program) -> bool:
    """Whether all ranks come to their transfers in one order: otherwise they wait for one another."""
    plan = Resolved(document, program)
    orders = []
    for rank in range(plan.size):
        tasks = issued([Bound(task, place_of(plan, task, rank), nothing) for task in plan.tasks_of(rank)])
        orders.append([bound.task.id for bound in tasks if isinstance(bound.task, Transfer)])
    return all(order == orders[0] for order in orders)


@pytest.mark.parametrize("part", range(2))
def test_a_plan_that_lacks_a_wait_goes_wrong(delays: Path, part: int) -> None:
    """As the check of plans says: where what is not waited for is late, values are others."""
    count = SAMPLE // 2
    found = [pair for pair, _ in zip(hasty(count, 30 + part, 2), range(count), strict=False)]
    jobs = [generated(1, 4, 2)[0], *(job for job, _ in found)]  # connections are made in the first
    delays.write_text(json.dumps([{"aimed": -1}, *({"aimed": late} for _, late in found)]))
    faults = [wrong(*pair) for pair in zip(jobs, launched(jobs, "delayed:Late"), strict=True)]
    assert not faults[0]
    right = [job[0] for job, fault in zip(jobs[1:], faults[1:], strict=True) if not fault]
    assert len(found) >= count // 2
    # What is poisoned may be the right value: a truth, the end of a range.
    assert len(right) <= len(found) // 5, f"{len(right)} of {len(found)} gave the right values, as {right[0]}"
