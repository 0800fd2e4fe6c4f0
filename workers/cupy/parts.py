"""Long folds of few points in parts: threads of many blocks have a part each, and a second kernel folds what they made.

    before    y[i]    = sum[k in 0:K] f(i, k)
    after     p[s, i] = sum[k in part(s)] f(i, k);  y[i] = sum[s in 0:S] p[s, i]

The parts, and the order in which they are folded, are the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from ...dtypes import numpy_dtype
from ...expr import Affine, Bound, Read
from ...space import Box
from ..device import DType, Stored
from .arrays import DeviceArray
from .jobs import Dims, Field, Fold, Job, Store, with_values
from .machine import THREADS
from .threads import BUSY, SHARE, SHARED, along_fold, sharing

# Points of a fold that a thread goes through one after another from which on a second kernel is worth it: one takes
# 0.1 to 0.2 us, a launch of a graph 1.1 us (H200, 2026-11-22). Parts, all of which the second kernel folds.
LONG, MOST = 64, 1024
# What records of all parts take: at most `BUSY` of them, of four components of 8 bytes.
PARTS_BYTES = 32 * BUSY


@dataclass(frozen=True)
class _Cut:
    """The dimensions that count parts, and what of a fold is left to a part: ``values`` of dimensions that are both."""

    parts: Dims
    left: Dims
    values: dict[str, Affine]
    where: tuple[Bound, ...]


def in_parts(job: Job, take: Callable[[int, DType], DeviceArray]) -> tuple[Job, ...]:
    """The job as two, the second of which folds what the first leaves in memory that ``take`` gives; else as it is."""
    if not _divisible(job):
        return (job,)
    together = along_fold(job)
    idle = BUSY // (job.points * (THREADS if together else SHARED))
    wanted = idle if together else idle * SHARED
    cut = _cut(job.folds[0], min(wanted, MOST, job.folds[0].points // SHARE)) if idle > 1 else None
    return (job,) if cut is None else _two(job, cut, take)


def _divisible(job: Job) -> bool:
    """Whether it folds so long, and any order will do."""
    if job.record is None or job.placed or len(job.folds) != 1 or not job.points:
        return False
    monoid, [fold] = job.record.monoid, job.folds
    if fold.whole or fold.chosen or job.where or monoid.packed or "commutative" not in monoid.laws:
        return False
    return fold.points >= LONG * sharing(job)


def _cut(fold: Fold, most: int) -> _Cut | None:
    """At most so many parts: the outermost dimensions whole, and some of the next one together."""
    parts: list[tuple[str, int]] = []
    left = list(fold.dims)
    while left and left[0][1] <= most // prod(n for _, n in parts):
        parts.append(left.pop(0))
    count = most // prod(n for _, n in parts)
    if not left or count < 2:
        return _Cut(tuple(parts), tuple(left), {}, ()) if parts and left else None
    (name, extent), *others = left
    count = next((n for n in range(count, count // 2, -1) if extent % n == 0), count)
    size = -(-extent // count)
    outer = f"{name}_part"
    at = Affine.dim(outer) * size + Affine.dim(name)
    ragged = (Bound(at, None, extent),) if extent % size else ()
    return _Cut((*parts, (outer, -(-extent // size))), ((name, size), *others), {name: at}, ragged)


def _two(job: Job, cut: _Cut, take: Callable[[int, DType], DeviceArray]) -> tuple[Job, Job]:
    assert job.record is not None
    [fold] = job.folds
    dims = (*cut.parts, *job.kept)
    shape, index = tuple(n for _, n in dims), tuple(Affine.dim(name) for name, _ in dims)
    fields, stores, values = {}, list[Store](), list[Read]()
    for component, dtype in zip(job.record.monoid.components, job.record.dtypes, strict=True):
        array = replace(take(prod(shape), numpy_dtype(dtype)), shape=shape)
        name = f"part.{component.name}"
        fields[name] = Field(Stored(array, Box.of_shape(shape).grid()), dtype)
        stores.append(Store(Read(f"r.{component.name}", ()), index, fields[name]))
        values.append(Read(name, index))
    first = replace(job, kept=dims, stores=tuple(stores), folds=(replace(fold, dims=cut.left),))
    if cut.values:
        first = with_values(first, cut.values)
    [rest] = first.folds
    first = replace(first, folds=(replace(rest, where=(*rest.where, *cut.where)),))
    second = replace(job, fields=fields, folds=(Fold(cut.parts, (), tuple(values), whole=True),))
    return first, second
