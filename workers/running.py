"""The one entry to running a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..errors import UsageError
from ..planner.format import Document, Resolved
from .devices import DEFAULT
from .engines.engine import PATIENCE_S, Engine, Settings
from .result import RunResult


def run(
    document: Document | Resolved,
    inputs: Mapping[str, Any],
    *,
    engine: Literal["local", "torchrun"] | str = "local",
    device: str = DEFAULT,
    order: int | None = None,
    poison: bool = False,
    patience_s: float = PATIENCE_S,
) -> RunResult:
    """Run a plan on whole arrays of inputs, params and states by name.

    engine "local" runs all ranks in this process (``order``: a seed for an adversarial order instead of the fixed
    one); "torchrun" starts one process a rank on this machine, or, where RANK and WORLD_SIZE are set, joins the
    torchrun that set them: all its processes make this call, and rank 0 gets the outputs. ``device`` is a name of
    `device_names`, or "module:Class" of a `Device` of one's own. ``poison`` fills buffers with NaN or garbage first.
    Both engines give the same bits. ``patience_s``: a process of which nothing is heard for so many seconds has failed.

    Raises UsageError (unknown engine or device, inputs that do not fit), TaskError and PeerFailed (a task failed),
    Deadlock.
    """
    if not patience_s > 0:
        raise UsageError("a run has to have some patience", sides={"patience_s": patience_s})
    return _engine(engine).run(document, inputs, Settings(device, order, poison, patience_s))


def _engine(name: str) -> Engine:
    if name == "local":
        from .engines.local import LocalEngine

        return LocalEngine()
    if name == "torchrun":
        from .engines.torchrun import TorchrunEngine

        return TorchrunEngine()
    raise UsageError(f"unknown engine {name!r}", sides={"known": "local, torchrun"})
