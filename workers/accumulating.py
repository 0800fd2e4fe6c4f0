"""A compute task whose points are folded onto partial results that are there, by what every device has.

    share = fold of the points          in temporary memory of the lane, as records
    write = prior combined with share   in this order, and finished where ``write`` holds elements

Records that lie along an axis are combined whole, in memory apart from both, because their elements are read by one
another; others element by element, in the place of the prior ones if that is where they go.
"""

from __future__ import annotations

from dataclasses import replace

from ..expr import MONOIDS
from ..space import Grid
from ..space.projection import write_image
from .device import Device, DType, Evaluation, Runner, Stored, in_order, nothing


def bind_accumulated(device: Device, task: Evaluation, prior: Stored) -> Runner:
    """The runner of a task and of the fold of what it leaves."""
    region = write_image(task.op, task.points).region
    storage = region.storage()
    if storage is None:
        return nothing
    monoid = task.op.monoid or ""
    with device.temporaries(task.lane):
        share = _taken(device, task, storage, prior.array.dtype)
        made = device.compute(replace(task, write=share))
        parts = [(region, prior), (region, share)]
        if not (MONOIDS[monoid].packed and prior is task.write):
            return in_order([made, device.fold(parts, task.write, monoid, task.lane)])
        apart = _taken(device, task, storage, task.write.array.dtype)
        folded = device.fold(parts, apart, monoid, task.lane)
        return in_order([made, folded, device.copy(apart, task.write, region)])


def _taken(device: Device, task: Evaluation, storage: Grid, dtype: DType) -> Stored:
    return Stored(device.take(storage.size, dtype, task.lane).reshape(storage.shape), storage)
