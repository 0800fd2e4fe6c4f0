"""Folds over windows that overlap, as jobs of which a thread has neighbouring points, and reads what they share once.

    before     y[i]          for s in taps:  s0 += x[i + s] * w[s]
    after      y[8*i + t]    for each t:     s_t += (x[8*i + t] * w[0] + x[8*i + t + 1] * w[1]) + ..

Equal reads are one expression, which is computed once: x is read at every t + s, w at every s. The neighbours' records
are the components of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...dtypes import DTYPES
from ...expr import Affine, Cast, Expr, Monoid, Read, rewrite
from ...expr.monoids import Component
from .jobs import Fold, Job, Record, Store, with_values
from .places import place
from .threads import BUSY, sharing

# Points of a thread, the best first, and values of a fold that stand in the text.
COUNTS, MOST_VALUES = (8, 7, 6, 5, 4, 3, 2), 128


@dataclass(frozen=True)
class _Overlap:
    """A kept dimension, and a folded one along which the windows of its neighbours overlap."""

    kept: str
    folded: str


def beside(job: Job) -> list[Job]:
    """The job with neighbouring points beside each other, what is left over in a job of its own; else the job."""
    overlap = _overlap(job)
    count = _count(job, overlap) if overlap else 1
    if overlap is None or count == 1:
        return [job]
    extent = dict(job.kept)[overlap.kept]
    whole = extent - extent % count
    found = [_tiled(_part(job, overlap.kept, 0, whole), overlap, count)]
    return found if whole == extent else [*found, _part(job, overlap.kept, whole, extent)]


def _overlap(job: Job) -> _Overlap | None:
    """The overlap that saves the most reads, along a dimension whose neighbours other threads do not read together."""
    if job.record is None or job.where or job.placed or len(job.folds) != 1 or sharing(job) > 1:
        return None
    [fold] = job.folds
    if fold.chosen or job.record.monoid.ordered:
        return None
    extents, fixed = dict((*job.kept, *fold.dims)), {_nearest(job), *_conditions(fold)}
    shared = {
        (kept, folded): _shared(row, kept, folded, extents[folded])
        for read in job.reads()
        for row in read.index
        for kept in row.dims & dict(job.kept).keys() - fixed
        for folded in row.dims & dict(fold.dims).keys() - fixed
    }
    best = max(shared, key=lambda pair: (shared[pair], pair), default=None)
    return _Overlap(*best) if best is not None and shared[best] > 0 else None


def _conditions(fold: Fold) -> set[str]:
    return {name for bound in fold.where for name in bound.expr.dims}


def _nearest(job: Job) -> str:
    """The kept dimension along which the results lie next to one another: neighbouring threads have its points."""
    steps = place(job.stores[0].index, job.stores[0].into.stored, job.ranges).plain
    return min((name for name, _ in job.kept), key=lambda name: abs(steps.coefficient(name)) or 1 << 62, default="")


def _shared(row: Affine, kept: str, folded: str, taps: int) -> int:
    """Elements that the windows of two neighbours share."""
    step, gap = abs(row.coefficient(kept)), abs(row.coefficient(folded))
    return taps - step // gap if row.is_affine and step and gap and step % gap == 0 else 0


def _count(job: Job, overlap: _Overlap) -> int:
    """Points of a thread: as many as leave the GPU busy and the text short, a divisor of the extent if there is one."""
    assert job.record is not None
    extents = dict((*job.kept, *job.folds[0].dims))
    values = extents[overlap.folded] * len(job.record.dtypes)
    most = min(MOST_VALUES // values, job.points // BUSY, extents[overlap.kept])
    fits = [count for count in COUNTS if count <= most]
    return next((count for count in fits if extents[overlap.kept] % count == 0), max(fits, default=1))


# -- jobs out of jobs --------------------------------------------------------------------------------------------------


def _part(job: Job, name: str, start: int, stop: int) -> Job:
    """The points of a job whose value along a kept dimension lies in a range, counted from its start."""
    kept = tuple((dim, stop - start if dim == name else n) for dim, n in job.kept)
    return with_values(replace(job, kept=kept), {name: Affine.dim(name) + start})


def _tiled(job: Job, overlap: _Overlap, count: int) -> Job:
    """The job with so many neighbours beside each other; its extent is a multiple of them."""
    assert job.record is not None
    [fold] = job.folds
    taps = dict(fold.dims)[overlap.folded]
    dims = tuple(dim for dim in fold.dims if dim[0] != overlap.folded)
    kept = tuple((dim, n // count if dim == overlap.kept else n) for dim, n in job.kept)
    fewer = replace(job, kept=kept, folds=(replace(fold, dims=dims),))
    points = []
    for t in range(count):
        at = {overlap.kept: Affine.dim(overlap.kept) * count + t}
        parts = [with_values(fewer, {**at, overlap.folded: Affine.of(tap)}) for tap in range(taps)]
        values = _combined(job.record, [part.folds[0].values for part in parts])
        points.append((values, tuple(_named(store, t) for store in parts[0].stores)))
    record = Record(_many(job.record.monoid, count), job.record.dtypes * count)
    folded = Fold(dims, fold.where, tuple(value for values, _ in points for value in values))
    stores = tuple(store for _, found in points for store in found)
    return replace(fewer, record=record, folds=(folded,), stores=stores)


# -- records out of records --------------------------------------------------------------------------------------------


def _combined(record: Record, points: Sequence[Sequence[Expr]]) -> list[Expr]:
    """The components of points folded one after another."""
    components = record.monoid.components
    found: list[Expr] = []
    for values in points:
        wide = [Cast(DTYPES[dtype].compute, value) for value, dtype in zip(values, record.dtypes, strict=True)]
        known: dict[str, Expr] = {f"b.{c.name}": value for c, value in zip(components, wide, strict=True)}
        known |= {f"a.{c.name}": value for c, value in zip(components, found, strict=False)}
        found = [_replaced(c.combine, known) for c in components] if found else list[Expr](wide)
    return found


def _replaced(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    def leaf(node: Expr) -> Expr:
        return known.get(node.tensor, node) if isinstance(node, Read) else node

    return rewrite(expr, leaf)


def _many(monoid: Monoid, count: int) -> Monoid:
    """Records of so many points beside each other."""
    return replace(monoid, components=tuple(_numbered(c, monoid, t) for t in range(count) for c in monoid.components))


def _numbered(component: Component, monoid: Monoid, t: int) -> Component:
    known = {f"{side}.{c.name}": Read(f"{side}.{c.name}_{t}", ()) for side in "ab" for c in monoid.components}
    return replace(component, name=f"{component.name}_{t}", combine=_replaced(component.combine, known))


def _named(store: Store, t: int) -> Store:
    """A store of the t-th record."""

    def leaf(node: Expr) -> Expr:
        own = isinstance(node, Read) and node.tensor.startswith("r.")
        return Read(f"{node.tensor}_{t}", ()) if own and isinstance(node, Read) else node

    return replace(store, value=rewrite(store.value, leaf))
