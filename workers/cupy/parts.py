"""Long folds of few points in parts: threads of many blocks have a part each, and a second kernel folds what they made.

    before    y[i]    = sum[k in 0:K] f(i, k)
    after     p[s, i] = sum[k in part(s)] f(i, k);  y[i] = sum[s in 0:S] p[s, i]

Where a fold goes over several stretches, each stretch has parts, made by a kernel of its own, and one more kernel folds
those of all. The parts, and the order in which they are folded, are the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
EVERY = "every_part"  # the dimension that counts them all


@dataclass(frozen=True)
class _Cut:
    """The dimensions that count parts, and what of a fold is left to a part: ``values`` of dimensions that are both."""

    parts: Dims
    left: Dims
    values: dict[str, Affine]
    where: tuple[Bound, ...]


def in_parts(job: Job, take: Callable[[int, DType], DeviceArray]) -> tuple[Job, ...]:
    """The job as several, the last of which folds what the others leave in memory that ``take`` gives, or as it is."""
    if not _divisible(job):
        return (job,)
    together = along_fold(job)
    idle = BUSY // (job.points * (THREADS if together else SHARED))
    wanted = idle if together else idle * SHARED
    if idle <= 1:
        return (job,)
    points = sum(fold.points for fold in job.folds)
    most = [min(wanted, MOST, points // SHARE) * fold.points // points for fold in job.folds]
    cuts = [(fold, _cut(fold, each)) for fold, each in zip(job.folds, most, strict=True)]
    return _made(job, cuts, take) if any(cut is not None for _, cut in cuts) else (job,)


def _divisible(job: Job) -> bool:
    """Whether it folds so long, and any order will do."""
    if job.record is None or job.placed or not job.folds or not job.points:
        return False
    monoid = job.record.monoid
    if job.where or monoid.packed or "commutative" not in monoid.laws:
        return False
    if any(fold.whole or fold.chosen for fold in job.folds):
        return False
    return sum(fold.points for fold in job.folds) >= LONG * sharing(job)


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


def _made(
    job: Job, cuts: Sequence[tuple[Fold, _Cut | None]], take: Callable[[int, DType], DeviceArray]
) -> tuple[Job, ...]:
    """A job for each fold that is cut, which leaves its parts behind those of the folds before, one for all others, and
    one that folds all parts."""
    assert job.record is not None
    cut_ones, others = [(f, cut) for f, cut in cuts if cut is not None], [f for f, cut in cuts if cut is None]
    count = sum(prod(n for _, n in cut.parts) for _, cut in cut_ones) + bool(others)
    shape, kept = (count, *(n for _, n in job.kept)), tuple(Affine.dim(name) for name, _ in job.kept)
    names = [component.name for component in job.record.monoid.components]
    fields: dict[str, Field] = {}
    for name, dtype in zip(names, job.record.dtypes, strict=True):
        array = replace(take(prod(shape), numpy_dtype(dtype)), shape=shape)
        fields[f"part.{name}"] = Field(Stored(array, Box.of_shape(shape).grid()), dtype)

    def stores(at: Affine) -> tuple[Store, ...]:
        return tuple(Store(Read(f"r.{name}", ()), (at, *kept), fields[f"part.{name}"]) for name in names)

    found, before = [], 0
    for fold, cut in cut_ones:
        here = (replace(fold, dims=cut.left),)
        made = replace(job, kept=(*cut.parts, *job.kept), stores=stores(_number(cut.parts) + before), folds=here)
        if cut.values:
            made = with_values(made, cut.values)
        [rest] = made.folds
        found.append(replace(made, folds=(replace(rest, where=(*rest.where, *cut.where)),)))
        before += prod(n for _, n in cut.parts)
    if others:
        found.append(replace(job, stores=stores(Affine.of(before)), folds=tuple(others)))
    values = tuple(Read(name, (Affine.dim(EVERY), *kept)) for name in fields)
    every = Fold(((EVERY, count),), (), values, whole=True)
    return (*found, replace(job, fields=fields, folds=(every,)))


def _number(parts: Dims) -> Affine:
    """The number of a part, counted along the last dimension first."""
    found, step = Affine.of(0), 1
    for name, n in reversed(parts):
        found, step = found + Affine.dim(name) * step, step * n
    return found
