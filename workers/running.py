"""The one entry to running a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import UsageError
from ..planner.format import Document, Resolved
from .numpy.folding import Array
from .result import RunResult


def run(
    document: Document | Resolved,
    inputs: Mapping[str, Any],
    *,
    engine: Literal["local", "torchrun"] | str = "local",
    device: Literal["numpy", "cupy"] | str = "numpy",
    order: int | None = None,
    poison: bool = False,
) -> RunResult:
    """Run a plan on whole arrays of inputs, params and states by name.

    engine "local" runs all ranks in this process (``order``: a seed for an adversarial order instead of the fixed
    one); "torchrun" starts one process a rank on this machine, or, where RANK and WORLD_SIZE are set, joins the
    torchrun that set them: all its processes make this call, and rank 0 gets the outputs. ``poison`` fills buffers
    with NaN or garbage first. Both engines give the same bits.

    Raises UsageError (unknown engine or device, inputs that do not fit), TaskError and PeerFailed (a task failed),
    Deadlock.
    """
    if engine not in ("local", "torchrun"):
        raise UsageError(f"unknown engine {engine!r}", sides={"known": "local, torchrun"})
    if device != "numpy":
        _refuse_device(device)
    if engine == "local":
        from .engines.local import run_local

        return run_local(document, inputs, order=order, poison=poison)
    if order is not None:
        raise UsageError("an order can be chosen for the local engine only", sides={"engine": engine, "order": order})
    return _run_torchrun(document, inputs, poison)


def _run_torchrun(document: Document | Resolved, inputs: Mapping[str, Array], poison: bool) -> RunResult:
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from .engines.group import group
        from .engines.torchrun import run_distributed

        return run_distributed(document, inputs, group(), poison=poison)
    from .engines.launch import launch

    plain = document.document if isinstance(document, Resolved) else document
    return launch([(plain, inputs)], poison=poison)[0]


def _refuse_device(device: str) -> None:
    if device != "cupy":
        raise UsageError(f"unknown device {device!r}", sides={"known": "numpy, cupy"})
    raise UsageError(
        "the workers have no CuPy device yet",
        sides={"asked": "cupy", "there is": "numpy"},
        hint="run with device numpy; GPU machines can be planned for, simulated and drawn",
    )
