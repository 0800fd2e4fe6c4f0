"""Compute tasks as jobs, and folds of parts as jobs: what devices are asked for, in the terms of one kernel each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...blocks import record_layout
from ...dtypes import DTYPES, name_of
from ...expr import MONOIDS, Affine, Bound, Call, Cast, Const, Expr, Inside, Monoid, Read, substitute
from ...expr.monoids import VALUE
from ...program import Block
from ...result_type import result_dtype
from ...selection import Selection, neutral_value, selections
from ...space import Grid, Region
from ..device import Evaluation, Packed, Stored, packets
from ..lifting import dtypes_of, over_records, value_dtype, values_of
from .cells import Cell, boxes, cells_of, overlaid
from .jobs import Field, Fold, Job, Record, Renaming, Store


def unfolded(task: Evaluation) -> Evaluation:
    """A fold over a single point as the map that it is."""
    op = task.op
    gone = {k for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims}
    if op.monoid is None or isinstance(op.body, Block) or op.where or any(op.dims[k].extent != 1 for k in gone):
        return task
    monoid = MONOIDS[op.monoid]
    if monoid.function is None or monoid.components[0].lift != VALUE or any(not grid for grid in task.points.grids):
        return task
    body = substitute(op.body, {op.dims[k].name: Affine() for k in gone})
    dims = tuple(dim for k, dim in enumerate(op.dims) if k not in gone)
    grids = (Grid(tuple(axis for k, axis in enumerate(g.axes) if k not in gone)) for g in task.points.grids)
    return replace(task, op=replace(op, dims=dims, reduce_dims=(), monoid=None, body=body), points=Region(tuple(grids)))


def jobs_of(task: Evaluation) -> list[Job]:
    """The kernels of a task whose body is an expression."""
    task = over_records(task)
    return [job for cell in cells_of(task.op, task.points) for job in _jobs(task, cell)]


def _jobs(task: Evaluation, cell: Cell) -> list[Job]:
    job = _job(task, cell)
    if job is None or job.record is None:
        return [] if job is None else [job]
    kept = [name for name, _ in job.kept]
    into = [{one.dim for one in _chosen(task, fold, kept)} for fold in job.folds]
    placed = frozenset[str]().union(*into)
    if not placed or any(names != placed for names in into) or not _in_place(job.record, task):
        return [job]
    folds = tuple(replace(fold, chosen=(*fold.chosen, *_chosen(task, fold, kept))) for fold in job.folds)
    return [_started(job), replace(job, folds=folds, placed=tuple(name for name in kept if name in placed))]


def _chosen(task: Evaluation, fold: Fold, dims: Sequence[str]) -> tuple[Selection, ...]:
    """What a fold selects from, of some dimensions, by integers."""
    neutral = neutral_value(task.op.monoid)
    taken = {one.dim for one in fold.chosen}
    found = selections(fold.values[0], [*dims, *taken], neutral, fold.where) if len(fold.values) == 1 else ()
    whole = [one for one in found if DTYPES[result_dtype(one.value, dtypes_of(task))].kind == "int"]
    return tuple(one for one in whole if one.dim not in taken)


def _in_place(record: Record, task: Evaluation) -> bool:
    """Whether records stand in the target as they are while they are folded: nothing is rounded on the way."""
    dtype = record.dtypes[0]
    exact = DTYPES[dtype].kind != "float" or DTYPES[dtype].compute == dtype
    return record.monoid.function is not None and exact and record.dtypes == (name_of(task.write.array.dtype),)


def _started(job: Job) -> Job:
    """Every record the identity."""
    assert job.record is not None
    [dtype], [component] = job.record.dtypes, job.record.monoid.components
    nothing = Cast(dtype, Const(component.identity_in(dtype)))
    return Job(job.kept, (), {}, tuple(replace(store, value=nothing) for store in job.stores))


def _job(task: Evaluation, cell: Cell) -> Job | None:
    op, dtypes = task.op, dtypes_of(task)
    kept = Renaming("d", cell.kept)
    fields = {name: Field(stored, dtypes[name]) for name, stored in task.reads.items()}
    index = tuple(kept.index(row) for row in op.write)
    values = values_of(task)
    if op.monoid is None:
        where = kept.bounds(op.where)
        store = Store(kept.expr(values[0], dtypes), index, Field(task.write, name_of(task.write.array.dtype)))
        return None if where is None else Job(kept.dims, where, fields, (store,))
    record = Record(MONOIDS[op.monoid], MONOIDS[op.monoid].dtypes_for(value_dtype(task), dtypes[op.output]))
    folds = []
    for k, runs in enumerate(cell.folds):
        inner = Renaming(f"r{k}_", runs, kept)
        where = inner.bounds(op.where)
        if where is not None:
            fold = Fold(inner.dims, where, tuple(inner.expr(value, dtypes) for value in values))
            folds.append(replace(fold, chosen=_chosen(task, fold, [name for name, _ in inner.dims])))
    return Job(kept.dims, (), fields, stores_of(record.monoid, task.write, index), record, tuple(folds))


def stores_of(monoid: Monoid, target: Stored, index: tuple[Affine, ...]) -> tuple[Store, ...]:
    """What is written of a record: its components where the target holds records, else its result."""
    names = target.array.dtype.names
    if names:
        fields = [target.array.dtype.fields[name] for name in names]
        return tuple(
            Store(Read(f"r.{component.name}", ()), index, Field(target, name_of(dtype), offset))
            for component, (dtype, offset) in zip(monoid.components, fields, strict=True)
        )
    assert monoid.finish is not None
    return (Store(monoid.finish, index, Field(target, name_of(target.array.dtype))),)


# -- folds of parts ----------------------------------------------------------------------------------------------------


def folding_jobs(parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: Monoid) -> list[Job]:
    """Contributions folded, in the order given, into the elements of a target that they cover."""
    layers = [layer for region, held in parts for layer in _layers(region, held)]
    names = [f"a{k}" for k in range(target.grid.ndim)]
    found = []
    for grid, sources in overlaid(layers):
        for runs in boxes(names, grid.axes):
            found.append(_folding(Renaming("d", runs), names, sources, target, monoid))
    return found


def _layers(region: Region, held: Stored | Packed) -> list[tuple[Grid, Stored]]:
    """Grids and where their elements are stored."""
    if isinstance(held, Stored):
        return [(grid, held) for grid in region.grids]
    found = []
    for part in packets(held.array, [Region((grid,)) for grid in held.region.grids]):
        [grid] = part.region.grids
        lines = [Stored(part.array.reshape(grid.shape), grid)]
        found += [(common, stored) for stored in lines for wanted in region.grids if (common := wanted & grid)]
    return found


def _folding(kept: Renaming, names: Sequence[str], sources: Sequence[Stored], target: Stored, monoid: Monoid) -> Job:
    fields: dict[str, Field] = {}
    folds = []
    for k, source in enumerate(sources):
        where = Read(f"p{k}", tuple(kept.index(Affine.dim(name)) for name in names))
        values, found = _components(where, source, monoid)
        fields |= found
        folds.append(Fold((), (), values, whole=True))
    dtypes = tuple(fields[f"p0.{component.name}"].dtype for component in monoid.components)
    record = Record(monoid, dtypes)
    index = tuple(kept.index(Affine.dim(name)) for name in names)
    stores = _packed_store(index, target, monoid) if monoid.packed else stores_of(monoid, target, index)
    return Job(kept.dims, (), fields, stores, record, tuple(folds))


def _components(read: Read, source: Stored, monoid: Monoid) -> tuple[tuple[Expr, ...], dict[str, Field]]:
    """The components of the record at one element, and the fields that they read."""
    array, name = source.array, read.tensor
    if monoid.packed:
        return _packed(read, source, monoid)
    if array.dtype.names:
        parts = [array.dtype.fields[part] for part in array.dtype.names]
        fields = [Field(source, name_of(dtype), offset) for dtype, offset in parts]
    else:
        fields = [Field(source, name_of(array.dtype))]
    labels = [f"{name}.{component.name}" for component in monoid.components]
    values = tuple(Read(label, read.index) for label in labels)
    return values, dict(zip(labels, fields, strict=True))


def _packed(read: Read, source: Stored, monoid: Monoid) -> tuple[tuple[Expr, ...], dict[str, Field]]:
    """Of a record along the last axis: the element itself of its vector, the others where they stand."""
    field = Field(source, name_of(source.array.dtype))
    values: list[Expr] = []
    fields = {}
    for component, (label, at) in zip(monoid.components, _places(source, monoid).items(), strict=True):
        fields[f"{read.tensor}.{label}"] = field
        last = read.index[-1] if component.vector else Affine.of(at.start)
        guard = (Bound(last, at.start, at.stop),) if component.vector else ()
        values.append(Read(f"{read.tensor}.{label}", (*read.index[:-1], last), guard))
    return tuple(values), fields


def _packed_store(index: tuple[Affine, ...], target: Stored, monoid: Monoid) -> tuple[Store, ...]:
    value: Expr | None = None
    for component, at in reversed(list(zip(monoid.components, _places(target, monoid).values(), strict=True))):
        part = Read(f"r.{component.name}", ())
        inside = Inside((Bound(index[-1], at.start, at.stop),))
        value = part if value is None else Call("where", (inside, part, value))
    assert value is not None
    return (Store(value, index, Field(target, name_of(target.array.dtype))),)


def _places(stored: Stored, monoid: Monoid) -> Mapping[str, slice]:
    """Where the components stand along the last axis, which is never cut."""
    return record_layout(monoid, stored.grid.axes[-1].size)
