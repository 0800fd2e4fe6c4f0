"""Block kernels that are declared in one place, by a function of torch's tensors (`tapestry.block`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from ...blocks import BLOCKS
from ...dtypes import name_of, numpy_dtype
from ...errors import UsageError
from ...expr import MONOIDS, Affine, depends_on
from ...program import Block
from ...space import Grid, IntSet, Region
from ..device import DType, Evaluation, Packed, Runner, Stored, in_order
from ..lifting import dtypes_of
from .arrays import DeviceArray
from .cells import Runs, cells_of
from .evaluating import folding_jobs
from .jobs import Field, Job, Renaming, Store
from .machine import Machine
from .moving import bind_copy

Launch = Callable[[Job], Runner]
Take = Callable[[int, DType], DeviceArray]


def bind_declared(machine: Machine, take: Take, launch: Launch, task: Evaluation) -> Runner:
    """Operands copied to dense arrays that ``take`` gives, the kernel's function, its result copied or folded into the
    output.

    UsageError where the kernel has no function for GPUs.
    """
    assert isinstance(task.op.body, Block)
    entry = BLOCKS[task.op.body.kernel]
    assert entry.bodies is not None
    if entry.bodies.torch is None:
        hint = "declare it with tp.block(..., torch=a function of torch's tensors), or run the plan on NumPy"
        raise UsageError(f"the block kernel {entry.name} has no function for GPUs", where=task.op.source, hint=hint)
    function = partial(entry.bodies.torch, **task.op.body.attrs)
    found: list[Runner] = []
    for cell in cells_of(task.op, task.points):
        calls = [_Call.of(machine, take, task, {**cell.kept, **runs}) for runs in cell.folds]
        for call in calls:
            found += [*map(launch, call.packing), machine.torch(call.run(function))]
        region = Region((calls[0].result.grid,))
        if len(calls) == 1:
            found.append(bind_copy(machine, calls[0].result, task.write, region))
        else:
            assert entry.monoid is not None
            parts: Sequence[tuple[Region, Stored | Packed]] = [(region, call.result) for call in calls]
            found += map(launch, folding_jobs(parts, task.write, MONOIDS[entry.monoid]))
    return in_order(found)


@dataclass(frozen=True)
class _Call:
    """Where a call's operands and its result lie, dense, and the jobs that bring the operands there."""

    machine: Machine
    packing: tuple[Job, ...]
    operands: tuple[DeviceArray, ...]
    result: Stored

    @staticmethod
    def of(machine: Machine, take: Take, task: Evaluation, runs: Runs) -> _Call:
        packing, operands = packed(take, task, runs)
        result = dense(take, [runs[name] for name in task.op.parallel_dims], name_of(task.write.array.dtype))
        return _Call(machine, packing, operands, result)

    def run(self, function: Callable[..., Any]) -> Runner:
        """The function on tensors over these arrays."""
        *operands, result = (self.machine.tensor(array) for array in (*self.operands, self.result.array))

        def call() -> None:
            result.copy_(function(*operands))

        return call


def packed(take: Take, task: Evaluation, runs: Runs) -> tuple[tuple[Job, ...], tuple[DeviceArray, ...]]:
    """The operands of a box of points as dense arrays, and what copies them there."""
    op, dtypes = task.op, dtypes_of(task)
    assert isinstance(op.body, Block)
    made = [dim.name for dim in op.dims[len(op.dims) - BLOCKS[op.body.kernel].uncut :]]
    kept = [name for name in op.parallel_dims if name not in made]
    fresh = Renaming("d", runs)
    fields = {name: Field(stored, dtypes[name]) for name, stored in task.reads.items()}
    packing, operands = [], []
    for read in op.body.reads:
        own = depends_on(read)
        names = [*kept, *(name for name in (*op.reduce_dims, *made) if name in own)]
        runs_of = [runs[name] if name in own else range(1) for name in names]
        target = dense(take, runs_of, dtypes[read.tensor])
        index = tuple(_place(fresh, name) if name in own else Affine() for name in names)
        dims = tuple(dim for dim in fresh.dims if any(dim[0] in row.dims for row in index))
        place = Field(Stored(target.array, _from_0(target.grid)), dtypes[read.tensor])
        packing.append(Job(dims, (), fields, (Store(fresh.expr(read, dtypes), index, place),)))
        operands.append(target.array)
    return tuple(packing), tuple(operands)


def dense(take: Take, runs: Sequence[range], dtype: str) -> Stored:
    """An array for a box, one axis a run."""
    shape = tuple(map(len, runs))
    grid = Grid(tuple(IntSet.of(run) for run in runs))
    return Stored(take(prod(shape), numpy_dtype(dtype)).reshape(shape), grid)


def _from_0(grid: Grid) -> Grid:
    return Grid(tuple(IntSet.interval(0, axis.size) for axis in grid.axes))


def _place(fresh: Renaming, name: str) -> Affine:
    """The fresh dimension of a dimension, from 0; 0 where its run is one element."""
    [*dims] = fresh.values[name].dims
    return Affine.dim(dims[0]) if dims else Affine()
