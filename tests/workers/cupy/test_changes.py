"""Maps that change few elements of what they are written over go to these alone, by kernels that run on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, int32
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine
from tapestry.planner.format import Compute, Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Region, parse_region
from tapestry.testing import assert_close
from tapestry.workers.cupy.changes import changes_of
from tapestry.workers.cupy.jobs import Field
from tapestry.workers.rank import nothing_of

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine
from .test_threads import job_of

MACHINE = load_machine("h200x8")


@tp.op
def _kept(new: f32[Tensor, "i j"], old: f32[Tensor, "i j"], at: int32[Tensor, ""]) -> f32[Tensor, "i j"]:
    """The places of one diagonal that lie behind ``at``, the others as they were."""
    i, j = tp.indices("i j")
    return tp.where(tp.logical_and(j - i - at == 1, new[i, j] > 0.0), new[i, j], old[i, j])


@tp.program
def diagonal(x: tp.state[f32[Tensor, "i j"]], y: f32[Tensor, "i j"], at: int32[Tensor, ""]) -> Tensor:
    tp.update(x, _kept(y, x, at))
    return y + 1.0


@tp.program
def row(x: tp.state[bf16[Tensor, "s g"]], y: bf16[Tensor, "t g"], at: int32[Tensor, ""]) -> Tensor:
    tp.update(x, tp.dynamic_update_slice(x, y, [at, 0]))
    return y + 1.0


@tp.program
def window(
    x: tp.state[f32[Tensor, "s g"]], y: f32[Tensor, "t e"], at: int32[Tensor, ""], to: int32[Tensor, ""]
) -> Tensor:
    tp.update(x, tp.dynamic_update_slice(x, y, [at, to]))
    return y + 1.0


@tp.program
def masked(x: tp.state[f32[Tensor, "i j"]], y: f32[Tensor, "i j"], at: int32[Tensor, ""]) -> Tensor:
    tp.update(x, tp.where(y > at.astype("f32"), y, x))
    return y + 1.0


def whole(program: Program) -> dict[str, list[Region]]:
    return {op.name: [box([dim.extent for dim in op.dims])] for op in program.operations}


def halves(program: Program) -> dict[str, list[Region]]:
    """Two ranks, each with half of the first dimension: one of them may have nothing to change."""
    found = {}
    for op in program.operations:
        extents = [dim.extent for dim in op.dims]
        half = extents[0] // 2 if extents else 0
        found[op.name] = [box(extents, (0, half)), box(extents, (half, extents[0]))] if half else [box(extents)] * 2
    return found


def box(extents: list[int], first: tuple[int, int] | None = None) -> Region:
    runs = [(0, n) for n in extents]
    runs[:1] = [first] if first else runs[:1]
    return parse_region(",".join(f"{lo}:{hi}" for lo, hi in runs) or "()")


CASES: dict[str, tuple[Callable[[], Program], bool]] = {
    "a row": (lambda: row.bind(s=24, t=1, g=8), True),
    "some rows": (lambda: row.bind(s=24, t=5, g=8), True),
    "a window of both axes": (lambda: window.bind(s=12, g=10, t=3, e=4), True),
    "a diagonal, where something else holds too": (lambda: diagonal.bind(i=12, j=16), True),
    "what the data say of every element": (lambda: masked.bind(i=8, j=16), False),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("cut", [whole, halves])
@pytest.mark.parametrize("name", CASES)
def test_the_others_stay_as_they_are(
    machine: HostMachine, name: str, cut: Callable[[Program], dict[str, list[Region]]]
) -> None:
    bound, few = CASES[name]
    program = bound()
    shards = cut(program)
    changing = next(op.name for op in program.operations if op.output == dict(program.states)["x"])
    document = plan_partitions(program, MACHINE, shards, homes={"x": shards[changing]}).document
    assert any(task.op == changing and task.over for task in document.tasks if isinstance(task, Compute))
    for at in (-2, 0, 7, 11, 40):
        inputs = random_inputs(program, 5) | {"at": np.int32(at)}
        found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert few == any("in_d" in unit.source for unit in machine.units.values())


@tp.op
def _beyond(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    """What lies a hundred elements further on: nothing."""
    n = tp.indices("n")
    return x.get[n + 100] * 0.5 + 1.0


@tp.program
def beyond(x: f32[Tensor, "n=4"]) -> Tensor:
    return _beyond(x)


def test_an_operand_of_which_nothing_is_stored_lies_nowhere() -> None:
    job = job_of(beyond.bind())
    nothing = Field(nothing_of((4,), np.dtype(np.float32)), "f32")
    assert changes_of(replace(job, fields={**job.fields, "x": nothing})) is None
