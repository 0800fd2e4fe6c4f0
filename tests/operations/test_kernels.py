"""The CuPy device's kernels of every operation, compiled for the host in one library, against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Box
from tapestry.testing import assert_close, program_of
from tapestry.workers import register_device
from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.machine import Unit as Kernel
from tapestry.workers.device import Runner

from ..kernels.elementwise.host import Unit, needs_compiler
from ..workers.cupy.host_machine import HostMachine
from ..workers.unchecked import run_unchecked
from .cases import FIRST

pytestmark = needs_compiler
MACHINE = load_machine("h200x8")
SEEN: dict[str, Unit] = {}


class Listing(HostMachine):
    """Writes down the kernels that are asked for, and runs none."""

    def launch(self, unit: Kernel, arrays: Sequence[DeviceArray]) -> Runner:
        super().launch(unit, arrays)
        SEEN.update(self.units)
        return lambda: None


class Running(HostMachine):
    """Compiles all kernels that were written down at once."""

    libraries_of_all: ClassVar[dict[str, Any]] = {}

    def _build(self) -> None:
        if not self.libraries_of_all:
            self.units = {**SEEN, **self.units}
            super()._build()
            self.libraries_of_all.update(self.built)
        self.built = {**self.libraries_of_all, **self.built}
        super()._build()


class ListingDevice(CupyDevice):
    """What the first pass opens."""

    def __init__(self) -> None:
        super().__init__(Listing())


class RunningDevice(CupyDevice):
    """What the second pass opens."""

    def __init__(self) -> None:
        super().__init__(Running())


def planned(program: Program) -> Resolved:
    whole = {op.name: [Box.of_shape([dim.extent for dim in op.dims]).region()] for op in program.operations}
    return Resolved(plan_partitions(program, MACHINE, whole).document, program)


def test_generated_kernels_compute_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation of the table, in f32: its kernels, and no others, make its result."""
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("listing", f"{__name__}:ListingDevice")
    register_device("running", f"{__name__}:RunningDevice")
    jobs = []
    for case in FIRST.values():
        inputs = dict(case.in_dtype("f32"))
        program = program_of(case.call, **inputs)
        jobs.append((program, inputs, planned(program)))
        run_unchecked(jobs[-1][2], inputs, device="listing")
    for program, inputs, plan in jobs:
        found = run_unchecked(plan, inputs, device="running", poison=True)
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
