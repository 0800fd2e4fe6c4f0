"""Which threads of a generated kernel are neighbours, and how many see to one point."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32
from tapestry.dtypes import numpy_dtype
from tapestry.program import Program
from tapestry.space import Box
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.evaluating import jobs_of
from tapestry.workers.cupy.jobs import Job
from tapestry.workers.cupy.threads import seeing
from tapestry.workers.cupy.writing import written
from tapestry.workers.device import Evaluation, Stored
from tapestry.workers.faults import Place

H, S, E = 8, 4096, 64


@tp.program
def weighted(p: f32[Tensor, "h=8 s=4096"], v: f32[Tensor, "s=4096 h=8 e=64"]) -> Tensor:
    return tp.einsum("hs,she->he", p, v)


@tp.program
def totals(x: f32[Tensor, "t=64 d=4096"]) -> Tensor:
    return tp.max(x, "d")


@tp.program
def collected(x: f32[Tensor, "t=512 d=96"], at: int32[Tensor, "t=512"]) -> Tensor:
    return tp.segment_sum(x, at, 1000)


def job_of(program: Program) -> Job:
    """The last kernel of a program's only operation, whole."""
    [op] = program.operations
    stored = {}
    for k, tensor in enumerate(program.tensors):
        array = DeviceArray(Memory(1 << (32 + k), 1 << 30, None), 0, tensor.shape, np.dtype(numpy_dtype(tensor.dtype)))
        stored[tensor.name] = Stored(array, Box.of_shape(tensor.shape).grid())
    reads = {name: stored[name] for name in op.operands}
    points = Box.of_shape([dim.extent for dim in op.dims]).region()
    return jobs_of(Evaluation(program, op, points, reads, stored[op.output], "", Place(0, 0, op.name, op.output)))[-1]


def test_neighbours_have_their_own_points_where_those_lie_together() -> None:
    unit = written(job_of(weighted.bind())).unit
    assert (unit.threads, unit.blocks) == (1024, H * E // 32)
    assert "threadIdx.x % 32u;" in unit.source
    assert "lane = threadIdx.x / 32u" in unit.source


def test_neighbours_share_a_fold_whose_points_lie_together() -> None:
    unit = written(job_of(totals.bind())).unit
    assert (unit.threads, unit.blocks) == (256, 64)
    assert "lane = threadIdx.x % 256u" in unit.source


def test_many_threads_see_to_places_that_the_data_say() -> None:
    job = job_of(collected.bind())
    unit = written(job).unit
    assert job.placed == ("d0",)
    assert seeing(job) == 64
    assert unit.blocks * unit.threads == 96 * 64
    assert "% 64u == lane" in unit.source


@pytest.mark.parametrize("program", [weighted, totals, collected])
def test_no_register_is_spilled(program: object) -> None:
    from tapestry.kernels.runtime.compiler import compile_source

    unit = written(job_of(program.bind())).unit  # type: ignore[attr-defined]
    assert compile_source(unit.source, name=unit.entry, arch="sm_90").spill_stores == 0
