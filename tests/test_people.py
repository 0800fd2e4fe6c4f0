"""Steps that people wrote by hand and measured: what is predicted of them, with the kernels that they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .files import benchmarks

WITHIN = 0.05  # of what was measured


@pytest.fixture(scope="module")
def people() -> Iterator[Any]:
    with benchmarks("people") as modules:
        yield modules["people"]


@pytest.mark.parametrize("number", [1, 3, 5], ids=["two GPUs", "eight GPUs", "context parallel"])
def test_a_step_is_predicted_as_it_was_measured(people: Any, number: int) -> None:
    """The others are in the table of the benchmark, which plans them likewise."""
    step = people.STEPS[number]
    assert people.Asked.of(step).run_ms() == pytest.approx(step.measured_ms, rel=WITHIN)


def test_what_every_rank_makes_is_counted_once(people: Any) -> None:
    """Of context parallelism all keys are copied for every head by each rank: measured once, and as long predicted."""
    step = people.STEPS[5]
    asked = people.Asked.of(step)
    made = asked.on(people.as_torch(asked.on(asked.machine), step))
    took = {e.name: e.end_s - e.start_s for e in made.simulate().events if e.rank == 0 and e.lane == "compute"}
    known = people.TORCH[step.rival, step.gpus, step.tokens]
    for name in ("each_k", "ordered", "attention.state", "activated"):
        assert took[f"layers.3.{name}"] == pytest.approx(known[name] * 1e-6 + made.machine.device.start_s(2))
