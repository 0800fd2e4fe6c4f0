"""Plans that no check was asked about, given to an engine as they are: what happens with plans that lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapestry.planner.format import Document, Resolved
from tapestry.workers.engines.engine import Engine, Settings
from tapestry.workers.engines.local import LocalEngine
from tapestry.workers.engines.ray import RayEngine
from tapestry.workers.engines.torchrun import TorchrunEngine
from tapestry.workers.result import RunResult


def run_unchecked(
    plan: Document | Resolved,
    inputs: Mapping[str, Any],
    *,
    engine: str = "local",
    device: str = "numpy",
    **settings: Any,
) -> RunResult:
    """Both engines, as `tapestry.workers.run` would call them."""
    chosen: Engine = {"local": LocalEngine, "torchrun": TorchrunEngine, "ray": RayEngine}[engine]()
    return chosen.run(plan, inputs, Settings(device, **settings))
