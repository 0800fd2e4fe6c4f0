"""The probe on this computer: engines and devices of the workers run the plans."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError
from ...space import Box, Region
from ..interface import Plan, run_plans
from ..machine import DeviceModel, KernelWorkspace, Machine, Tier
from ..measured import Step
from .measure import Host, Runs, Say, Ways, probed, with_program

if TYPE_CHECKING:
    from ...program import Program

# The tier of a computer's own memory, and bytes that are copied to and from it.
HOST, COPIED = "host", 1 << 28


def probe_machine(
    *,
    name: str = "probed",
    device: str = "numpy",
    engine: str = "torchrun",
    ranks: int | None = None,
    quick: bool = False,
    devices: DeviceModel | None = None,
    say: Say = lambda _: None,
) -> Machine:
    """Measure this computer as a machine of so many ranks (by default one a core, or one a GPU), run by an engine.

    engine: "torchrun", a process a rank, or "local", where all ranks take turns in this process. devices: what its
    devices are known to be; transfers alone are measured then. UsageError for a device that is not here, and for one
    rank whose device is known.
    """
    host = host_of(name, device, engine, ranks)
    if devices is not None and host.ranks == 1:
        raise UsageError("of one rank nothing is left to measure: its device is known, and it has no links")
    return probed(host, ways_on(engine, device), quick=quick, device=devices, say=say)


def measured_program(
    machine: Machine, program: Program, *, device: str = "numpy", engine: str = "torchrun", quick: bool = False,
    ranks: int | None = None, rewrite: bool = False, say: Say = lambda _: None,
) -> tuple[Machine, Plan]:  # fmt: skip
    """A machine with what the operations of a program take on this computer, and a plan that was measured on it:
    see `measure.with_program`."""
    from ...workers.devices import device_class

    alone = device_class(device).graphs
    runs = _alone_on(device, joins=True) if alone else runs_on(engine, device)
    return with_program(
        machine, program, runs, turns=engine == "local" and not alone, quick=quick,
        ranks=ranks, rewrite=rewrite, alone=alone, say=say,
    )  # fmt: skip


def ways_on(engine: str, device: str) -> Ways:
    """By an engine; tasks of a device that replays graphs one by one."""
    from ...workers.devices import device_class

    runs = runs_on(engine, device)
    if not device_class(device).graphs:
        return Ways(runs, runs, runs)
    return Ways(_alone_on(device, joins=False), _alone_on(device, joins=True), runs)


def _alone_on(device: str, *, joins: bool) -> Runs:
    """All ranks in this process, their tasks measured by themselves; ``joins``: those that the device does together are
    one, whose time is the last one's."""

    def runs(jobs: Sequence[tuple[Plan, Mapping[str, np.ndarray]]], repeat: int) -> Sequence[Sequence[Step]]:  # noqa: ARG001
        return [result.steps[-1:] for result in run_plans(jobs, engine="local", device=device, alone=True, joins=joins)]

    return runs


def runs_on(engine: str, device: str) -> Runs:
    """Plans run by an engine on a device, as the probe wants them run."""

    def runs(jobs: Sequence[tuple[Plan, Mapping[str, np.ndarray]]], repeat: int) -> Sequence[Sequence[Step]]:
        return [result.steps for result in run_plans(jobs, engine=engine, device=device, repeat=repeat)]

    return runs


def host_of(name: str, device: str, engine: str, ranks: int | None) -> Host:
    """What is known of this computer without measuring it."""
    from ...workers.devices import device_class

    found = device_class(device)
    if not found.present():
        raise UsageError(f"there is no {device} device on this computer", hint="--device numpy is always there")
    count = ranks or found.hardware(1).count
    hardware, turns = found.hardware(count), engine == "local"
    how = "taking turns in one process" if turns else "a process each"
    return Host(
        name,
        f"{count} ranks of {hardware.name}, {how}; probed on {date.today().isoformat()}",
        hardware.name,
        count,
        found.computes_in,
        hardware.memory_bytes // (count if hardware.shared or turns else 1),
        shutil.disk_usage("/").total,
        turns,
        hardware.overlap and not turns,
        "in-process" if turns else "loopback" if found.backend == "gloo" else found.backend,
        found.graphs,
        () if found.computes_in == HOST else (host_tier(device),),
        tuple(KernelWorkspace(kernel, *wanted) for kernel, wanted in found.workspaces.items()),
    )


def host_tier(device: str) -> Tier:
    """The page-locked memory of this computer, as one device reads and writes it, alone."""
    from ...workers.devices import open_device
    from ...workers.engines.alone import seconds_of

    grid = Box.of_shape((COPIED,)).grid()
    opened = open_device(device)
    try:
        near, far = (
            opened.view(opened.allocate(tier, COPIED), 0, grid, np.dtype(np.uint8))
            for tier in (opened.computes_in, HOST)
        )
        copies = [opened.copy(*ends, Region.of(grid)) for ends in ((far, near), (near, far))]
        with opened.running():
            read, write = (COPIED / seconds_of(opened, copy) / 1e9 for copy in copies)
    finally:
        opened.close()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Tier(HOST, memory, read, write, shared_per_host=True)
