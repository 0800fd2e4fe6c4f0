"""Small kernels that have nothing to do with one another are one launch."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.inputs import random_inputs
from tapestry.kernels.runtime.compiler import compile_source
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.cupy import at_once
from tapestry.workers.cupy.device import CupyDevice

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine
from .test_chained import whole


@tp.program
def siblings(x: f32[Tensor, "n=70 d=33"], y: f32[Tensor, "n=9"], z: bf16[Tensor, "h=3 e=64"]) -> tuple[Tensor, ...]:
    """Maps of different sizes and dtypes, and a fold by threads that each have a point."""
    return tp.exp(x) + 1.0, tp.sqrt(tp.abs(y)), tp.cos(z), tp.max(y, "n")


@tp.program
def steps(
    a: f32[Tensor, "n=70 d=33"], da: f32[Tensor, "n=70 d=33"], b: f32[Tensor, "n=9"], db: f32[Tensor, "n=9"]
) -> tuple[Tensor, ...]:
    """Two moments of two weights each, and what is made of them."""
    means = [0.9 * x + 0.1 * dx for x, dx in ((a, da), (b, db))]
    squares = [0.99 * x + 0.01 * dx * dx for x, dx in ((a, da), (b, db))]
    return (*means, *squares, *(m / (tp.sqrt(tp.abs(s)) + 1.0) for m, s in zip(means, squares, strict=True)))


@tp.program
def groups(x: f32[Tensor, "n=256 d=40"]) -> tuple[Tensor, ...]:
    """Folds by threads that meet."""
    return tp.sum(x, "n"), tp.logsumexp(x, "n")


def resolved(program: Program) -> Resolved:
    return Resolved(plan_partitions(program, load_machine("h200x8"), whole(program)).document, program)


@needs_compiler
@pytest.mark.parametrize(
    ("bind", "launches"), [(siblings, 1), (steps, 6), (groups, 1)], ids=["siblings", "steps", "groups"]
)
def test_one_launch_gives_what_all_would(machine: HostMachine, bind: object, launches: int) -> None:
    program = bind.bind()  # type: ignore[attr-defined]
    inputs = random_inputs(program)
    found = run_unchecked(resolved(program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels.count("beside") >= 1
    assert len(machine.kernels) == launches


def test_large_kernels_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    program = siblings.bind()
    assert "beside" in str(kernels_of(program))
    monkeypatch.setattr(at_once, "MOST_THREADS", 100)
    assert "beside" not in str(kernels_of(program))


def kernels_of(program: Program) -> dict[str, tuple[str, ...]]:
    from tapestry.workers.naming import kernels_of_plan

    return kernels_of_plan(resolved(program), "cupy")


@pytest.mark.parametrize("program", [siblings, steps, groups])
def test_no_register_is_spilled(program: object, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    launch = CupyDevice._launch

    def noted(self: CupyDevice, kernel: at_once.Written) -> object:
        made.append(kernel.unit)
        return launch(self, kernel)

    monkeypatch.setattr(CupyDevice, "_launch", noted)
    kernels_of(program.bind())  # type: ignore[attr-defined]
    beside = [unit for unit in made if unit.entry.startswith("beside")]
    assert beside
    for unit in beside:
        options = ("--fmad=false",) if unit.exact else ()
        assert compile_source(unit.source, name=unit.entry, arch="sm_90", options=options).spill_stores == 0
    assert np.sum([unit.blocks for unit in beside]) <= sum(unit.blocks for unit in made)
