"""Ranks that are held for many steps: what goes wrong while a device makes its graph of a step is raised at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tapestry.planner.format import Compute
from tapestry.workers.device import Bound, Replay
from tapestry.workers.engines.held import OneOfMany
from tapestry.workers.engines.trial import Trial
from tapestry.workers.faults import Place, TaskError


class Captured(Replay):
    """Tasks that are run while they are kept, as those of a graph are asked for."""

    def __init__(self, tasks: list[Bound]) -> None:
        self.tasks = tasks

    def __call__(self, began: float) -> list[Any]:
        del began
        return []

    def keep(self, *, timed: bool) -> bool:
        del timed
        for task in self.tasks:
            task.run()
        return True


def refused() -> None:
    raise RuntimeError("not in a graph")


def test_what_fails_while_a_graph_is_made_is_raised_before_any_step_of_it() -> None:
    ran: list[str] = []
    held = object.__new__(OneOfMany)
    held.trial = Trial(SimpleNamespace())  # type: ignore[arg-type]  # asked for nothing here
    runs = {"first": lambda: ran.append("first"), "second": refused, "third": lambda: ran.append("third")}
    tasks = [
        held.trial.bound(Bound(Compute(k, "compute", name, "S0", (), "b"), Place(1, k, name, "t"), run))
        for k, (name, run) in enumerate(runs.items())
    ]
    held.replay = Captured(tasks)
    with pytest.raises(TaskError, match="not in a graph") as caught:
        held.keep()
    assert (caught.value.rank, caught.value.name) == (1, "second")
    assert ran == ["first"]
    assert held.trial.error is None
