"""The one entry to running a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import UsageError
from ..planner.format.checked import Checked
from .devices import AUTO, chosen_device, warn_of_other_hardware
from .engines.engine import PATIENCE_S, Engine, Settings
from .result import RunResult


def run(
    plan: Checked,
    inputs: Mapping[str, Any],
    *,
    engine: Literal["local", "torchrun", "ray"] | str = "local",
    device: str = AUTO,
    order: int | None = None,
    poison: bool = False,
    patience_s: float = PATIENCE_S,
    repeat: int = 1,
) -> RunResult:
    """Run a plan that was checked (`planner.check.checked`) on whole arrays of inputs, params and states by name.

    engine "local" runs all ranks in this process (``order``: a seed for an adversarial order instead of the fixed
    one); "torchrun" starts one process a rank on this machine, or, where RANK and WORLD_SIZE are set, joins the
    torchrun that set them: all its processes make this call, and rank 0 gets the outputs; "ray" starts one actor a
    rank on the machines of a Ray cluster (the one this process is connected to, or RAY_ADDRESS names, else one of its
    own). All engines give the same bits. ``device`` is a name of `device_names`, "module:Class" of a `Device` of one's
    own, or "auto": see `tapestry.workers.devices`. ``poison`` fills buffers with NaN or garbage first. ``patience_s``:
    seconds without a sign of a process, or with all of them waiting, that end a run. ``repeat``: so many steps,
    one after another, with the same inputs: params are loaded once, states go on from step to step.

    Raises UsageError (a plan that was not checked, unknown engine or device, inputs that do not fit), TaskError and
    PeerFailed (a task failed, a rank fell silent), BytesDiffer (more or less was moved than is planned), Deadlock.
    """
    return run_each(
        [(plan, inputs)], engine=engine, device=device, order=order, poison=poison, patience_s=patience_s, repeat=repeat
    )[0]


def run_each(
    jobs: Sequence[tuple[Checked, Mapping[str, Any]]],
    *,
    engine: str = "local",
    device: str = AUTO,
    order: int | None = None,
    poison: bool = False,
    patience_s: float = PATIENCE_S,
    repeat: int = 1,
    alone: bool = False,
    joins: bool = True,
) -> list[RunResult]:
    """Run several plans, each on its own inputs, one after another; an engine that starts processes starts them once.

    What is said of `run` holds for each of them. The device is chosen by the machine of the first. ``alone``: after the
    steps every task is measured by itself, again and again, which makes the last step of the result; ``joins`` off: a
    device that would do tasks together does each by itself. Both are the local engine's.
    """
    for plan, _ in jobs:
        given: object = plan
        if not isinstance(given, Checked):
            hint = "tapestry.planner.check.checked(document) gives what may be run, as Plan.run does"
            raise UsageError("the plan was not checked", sides={"given": type(given).__name__}, hint=hint)
    if not patience_s > 0:
        raise UsageError("a run has to have some patience", sides={"patience_s": patience_s})
    if repeat < 1:
        raise UsageError("a run has one step or more", sides={"repeat": repeat})
    if not jobs:
        return []
    if (alone or not joins) and engine != "local":
        raise UsageError("tasks are measured alone by the local engine only", sides={"engine": engine})
    machine = jobs[0][0].resolved.document.machine
    chosen = chosen_device(device, machine)
    warn_of_other_hardware(chosen, machine)
    resolved = [(plan.resolved, inputs) for plan, inputs in jobs]
    return _engine(engine).run_each(resolved, Settings(chosen, order, poison, patience_s, repeat, alone, joins))


def _engine(name: str) -> Engine:
    if name == "local":
        from .engines.local import LocalEngine

        return LocalEngine()
    if name == "torchrun":
        from .engines.torchrun import TorchrunEngine

        return TorchrunEngine()
    if name == "ray":
        from .engines.ray import RayEngine

        return RayEngine()
    raise UsageError(f"unknown engine {name!r}", sides={"known": "local, torchrun, ray"})
