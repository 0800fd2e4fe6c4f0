"""Reads and writes at places that the data say, by kernels of the CuPy device that run on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, int32, num
from tapestry.dtypes import numpy_dtype
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Pin
from tapestry.reference import evaluate
from tapestry.space import Box
from tapestry.testing import assert_close
from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.evaluating import jobs_of
from tapestry.workers.cupy.machine import Unit as Kernel
from tapestry.workers.device import Evaluation, Runner, Stored
from tapestry.workers.faults import Place

from ...kernels.elementwise.host import needs_compiler
from .host_machine import HostMachine

pytestmark = needs_compiler


@tp.op
def two_axes(x: int32[Tensor, "t v d"], i: int32[Tensor, "t"]) -> int32[Tensor, "d t"]:
    t, d = tp.indices("t d")
    return x.clamped[t, i[t], d] - x.get(i[t] - 2, i[t], d, fill=5)


@tp.op
def spread(x: f32[Tensor, "t d"], w: f32[Tensor, "t k"], at: int32[Tensor, "t k"], *, v: int) -> f32[Tensor, "v d"]:
    t, k, d, v = tp.indices("t k d v")
    return tp.sum[t, k](tp.where(at[t, k] == v, x[t, d] * w[t, k], 0.0))


@tp.op
def highest(x: f32[Tensor, "t"], at: int32[Tensor, "t"], *, v: int) -> f32[Tensor, "v"]:
    t, v = tp.indices("t v")
    return tp.max[t](tp.where(at[t] == v, x[t], float("-inf")))


@tp.program
def everything(
    table: f32[Tensor, "v d"],
    half: bf16[Tensor, "v d"],
    cube: int32[Tensor, "t v d"],
    weights: f32[Tensor, "t k"],
    at: int32[Tensor, "t k"],
) -> dict[str, Tensor]:
    t, v = at.shape[0], table.shape[0]
    ids = at[:, 0]
    rows = tp.embedding(ids, table, outside="clamp")
    return {
        "strict": tp.embedding(tp.abs(ids) % v, table),
        "rows": rows,
        "half_rows": tp.embedding(ids, half, outside=0.5),
        "axes": two_axes(cube, ids),
        "spread": spread(rows, weights, at, v=v),
        "halves": tp.segment_sum(tp.embedding(ids, half, outside="clamp"), ids, v),
        "highest": highest(weights[:, 1], ids, v=v),
        "counts": tp.segment_sum(tp.broadcast_to(tp.constant([1]), (t,)), ids, v),
    }


PROGRAM = everything.bind(v=6, d=3, t=9, k=2)
INPUTS = random_inputs(PROGRAM, seed=0) | {"at": np.random.default_rng(0).integers(-2, 8, (9, 2)).astype(np.int32)}


def test_kernels_are_the_reference(on_host: str) -> None:
    pins = [Pin("op", "embedding", (("mesh0", "at_v"),)), Pin("op", "spread", (("mesh0", "t"),))]
    planned = plan(PROGRAM, "cpu-4", mesh=(2,), pins=pins)
    found = planned.run(INPUTS, device=on_host, poison=True)
    assert_close(PROGRAM, INPUTS, found.outputs, evaluate(PROGRAM, INPUTS))


@pytest.mark.parametrize("name", [op.name for op in PROGRAM.operations if op.selections])
def test_no_kernel_goes_through_what_cannot_count(name: str) -> None:
    """Of the dimensions that are selected from none is looped over, nor given a thread for each of its values."""
    op = PROGRAM.op_by_name[name]
    stored = {
        tensor.name: Stored(np.zeros(tensor.shape, numpy_dtype(tensor.dtype)), Box.of_shape(tensor.shape).grid())
        for tensor in PROGRAM.tensors
    }
    points = Box.of_shape([dim.extent for dim in op.dims]).region()
    reads = {operand: stored[operand] for operand in op.operands}
    jobs = jobs_of(Evaluation(PROGRAM, op, points, reads, stored[op.output], "", Place(0, 0, op.name, op.output)))
    # A record that is wider than an element has no place in the target: each place folds all points itself.
    wide = PROGRAM.tensor(op.output).dtype == "bf16" and bool(set(op.parallel_dims) & {c.dim for c in op.selections})
    worked = sum(job.points * max(fold.points for fold in job.folds) for job in jobs if job.folds)
    assert worked == points.size // (1 if wide else op.idle)


@tp.op
def gathered(x: num[Tensor, "t d"], at: int32[Tensor, "t"], *, v: int) -> num[Tensor, "v d"]:
    t, d, v = tp.indices("t d v")
    return tp.sum[t](tp.where(at[t] == v, x[t, d], 0))


@tp.program
def whole_numbers(x: int32[Tensor, "t d"], y: tp.int64[Tensor, "t d"], at: int32[Tensor, "t"]) -> tuple[Tensor, ...]:
    return gathered(x, at, v=5), gathered(y, at, v=5), tp.bincount(at, 5)


def test_integers_go_to_their_places_by_a_thread_each(on_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wrap to the same bits in whatever order: no thread waits for another."""
    sources: list[str] = []
    launch = HostMachine.launch

    def listing(machine: HostMachine, unit: Kernel, arrays: Sequence[DeviceArray]) -> Runner:
        sources.append(unit.source)
        return launch(machine, unit, arrays)

    monkeypatch.setattr(HostMachine, "launch", listing)
    program = whole_numbers.bind(t=40, d=3)
    inputs = random_inputs(program, seed=1) | {"at": np.random.default_rng(1).integers(-1, 6, 40).astype(np.int32)}
    inputs["x"] = np.random.default_rng(2).integers(-(2**31), 2**31, (40, 3)).astype(np.int32)
    found = plan(program, "cpu-4", mesh=(1,)).run(inputs, device=on_host, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    threads = [re.findall(r"if \(k < (\d+)u\) \{", source) for source in sources if "_into(&" in source]
    assert threads == [["120"], ["120"], ["40"]]


@tp.op
def into_places(x: f32[Tensor, "t k d"], at: int32[Tensor, "t k"], *, v: int) -> f32[Tensor, "v d"]:
    t, k, d, v = tp.indices("t k d v")
    return tp.sum[t, k](tp.where(at[t, k] == v, x[t, k, d], 0.0), where=t + k < 150)


@tp.program
def dispatched(x: f32[Tensor, "t k d"], at: int32[Tensor, "t k"]) -> dict[str, Tensor]:
    return {"out": into_places(x, at, v=70)}


@pytest.mark.parametrize("d", [5, 140])
def test_points_of_many_places_are_folded_in_their_order(on_host: str, d: int) -> None:
    """Sums of floats are those of the points one after another, bit for bit, however many ask for a place."""
    program = dispatched.bind(t=160, k=2, d=d)
    inputs = random_inputs(program, seed=1)
    inputs["at"] = np.random.default_rng(1).integers(-3, 80, (160, 2)).astype(np.int32)
    inputs["at"][:9] = 11
    made = plan(program, "cpu-4", mesh=(1,))
    wanted = np.zeros((70, d), np.float32)
    for t in range(160):
        for k in range(2):
            if t + k < 150 and 0 <= inputs["at"][t, k] < 70:
                wanted[inputs["at"][t, k]] += inputs["x"][t, k]
    assert np.array_equal(made.run(inputs, device=on_host, poison=True).outputs["out"], wanted)
