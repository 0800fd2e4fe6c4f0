"""The engine of several processes: in the torchrun that this process was started by, or in one of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from ...errors import UsageError
from ...planner.format import Document, Resolved
from ..devices import device_place
from ..result import RunResult
from ..stores.arrays import Array
from .engine import Engine, Job, Settings, resolved


class TorchrunEngine(Engine):
    """Where RANK and WORLD_SIZE are set, all processes of that torchrun make this call, and rank 0 gets the outputs."""

    def run(self, document: Document | Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
        return self.run_each([(resolved(document), inputs)], settings)[0]

    def run_each(self, jobs: Sequence[Job], settings: Settings) -> list[RunResult]:
        """In one torchrun."""
        if settings.order is not None:
            sides = {"engine": "torchrun", "order": settings.order}
            raise UsageError("an order can be chosen for the local engine only", sides=sides)
        device_place(settings.device)  # a name that is not known is refused before anything starts
        demand_torch("torchrun")
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            from .group import group
            from .process import run_rank

            return [run_rank(plan, inputs, group(), settings) for plan, inputs in jobs]
        from .launch import launch

        return launch([(plan.document, inputs) for plan, inputs in jobs], settings)


def demand_torch(engine: str) -> None:
    """UsageError where torch, which joins processes, is not installed."""
    if find_spec("torch") is None:
        hint = "pip install 'tapestry-planner[torch]', or engine local, which needs none"
        raise UsageError("torch is not installed", sides={"engine": engine}, hint=hint)
