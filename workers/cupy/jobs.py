"""What one generated kernel computes: a `Job`, the middle between a task and its source.

for every point of kept where ``where`` holds:
    record = identity
    for fold in folds, for every point of fold.dims where fold.where holds:
        record = combine(record, fold.values)
    for store in stores:  store.into[store.index] = store.value

Along a dimension that is selected from (`tapestry.selection`) only the value that counts is gone to. Where it is a kept
dimension, the record is not the thread's own but stands where the value says, and every point is folded into it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from ...expr import Affine, Bound, Expr, IndexValue, Inside, Monoid, Read, substitute, walk
from ...expr.simplify import Ranges, simplify_bounds, simplify_index
from ...kernels.elementwise.indices import simplified_body
from ...selection import Selection
from ...updates import Window
from ..device import Stored
from .cells import Runs

Dims = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Field:
    """Elements as they are read or written: all of an array's element, or a part of so many bytes in."""

    stored: Stored
    dtype: str
    offset: int = 0


@dataclass(frozen=True)
class Store:
    """``value`` may read the components of the record, as r.NAME."""

    value: Expr
    index: tuple[Affine, ...]
    into: Field


@dataclass(frozen=True)
class Record:
    """What is folded: the dtypes of its components in their order."""

    monoid: Monoid
    dtypes: tuple[str, ...]

    def named(self, letter: str) -> dict[str, str]:
        """The dtypes of the components by the names that a record has in expressions."""
        names = (f"{letter}.{component.name}" for component in self.monoid.components)
        return dict(zip(names, self.dtypes, strict=True))


@dataclass(frozen=True)
class Fold:
    """Points that are folded, one after another; a value for each component.

    ``chosen`` are selected from: dimensions of the fold, and those of a job whose records stand where they say.
    ``whole``: the values are those of records of many points, not of one.
    """

    dims: Dims
    where: tuple[Bound, ...]
    values: tuple[Expr, ...]
    chosen: tuple[Selection, ...] = ()
    whole: bool = False

    @property
    def looped(self) -> Dims:
        """The dimensions that are gone through value by value."""
        gone_to = {one.dim for one in self.chosen}
        return tuple(dim for dim in self.dims if dim[0] not in gone_to)

    @property
    def points(self) -> int:
        return prod(n for _, n in self.looped)


@dataclass(frozen=True)
class Only:
    """Of a map written over what it changes: what has to hold for a point to be stored, and where it can hold."""

    conditions: tuple[Expr, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Job:
    kept: Dims
    where: tuple[Bound, ...]
    fields: Mapping[str, Field]
    stores: tuple[Store, ...]
    record: Record | None = None
    folds: tuple[Fold, ...] = ()
    placed: tuple[str, ...] = ()  # the kept dimensions that every fold selects from
    only: Only | None = None

    @property
    def threads(self) -> Dims:
        """The kept dimensions of which each point is a thread's own, as long as their windows."""
        sizes = {window.dim: window.size for window in self.only.windows} if self.only else {}
        return tuple((name, sizes.get(name, n)) for name, n in self.kept if name not in self.placed)

    @property
    def points(self) -> int:
        return prod(n for _, n in self.threads)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        dims = [*self.kept, *(dim for fold in self.folds for dim in fold.dims)]
        return {name: (0, extent) for name, extent in dims}

    @property
    def expressions(self) -> list[Expr]:
        """What is computed."""
        folded = [expr for fold in self.folds for expr in (*fold.values, *(one.value for one in fold.chosen))]
        asked = [*self.only.conditions, *(one.first for one in self.only.windows)] if self.only else []
        return [*(store.value for store in self.stores), *folded, *asked]

    def reads(self) -> Iterator[Read]:
        """Reads of arrays."""
        for expr in self.expressions:
            yield from (node for node in walk(expr) if isinstance(node, Read) and node.tensor in self.fields)

    def indices(self) -> Iterator[Affine]:
        """Index expressions other than those of reads and stores."""
        yield from (bound.expr for bound in self.where)
        for fold in self.folds:
            yield from (bound.expr for bound in fold.where)
        for expr in self.expressions:
            for node in walk(expr):
                if isinstance(node, IndexValue):
                    yield node.index
                elif isinstance(node, Inside):
                    yield from (bound.expr for bound in node.bounds)
                elif isinstance(node, Read):
                    yield from (bound.expr for bound in node.guard)


class Renaming:
    """Runs of dimensions as fresh dimensions that start at 0: what was ``name`` is start + step * new."""

    def __init__(self, prefix: str, runs: Runs, outer: Renaming | None = None) -> None:
        long = [name for name, run in runs.items() if len(run) > 1]
        self.dims: Dims = tuple((f"{prefix}{k}", len(runs[name])) for k, name in enumerate(long))
        fresh = dict(zip(long, (name for name, _ in self.dims), strict=True))
        self.values: dict[str, Affine] = dict(outer.values) if outer else {}
        for name, run in runs.items():
            terms = ((fresh[name], run.step),) if name in fresh else ()
            self.values[name] = Affine(terms, run.start)
        self.ranges: Ranges = {**(outer.ranges if outer else {}), **{name: (0, n) for name, n in self.dims}}

    def expr(self, expr: Expr, dtypes: Mapping[str, str]) -> Expr:
        """An expression over the fresh dimensions; guards that they decide are gone."""
        return simplified_body(substitute(expr, self.values), self.ranges, dtypes)

    def index(self, index: Affine) -> Affine:
        return simplify_index(index.substitute(self.values), self.ranges)

    def bounds(self, bounds: tuple[Bound, ...]) -> tuple[Bound, ...] | None:
        """Conditions; None where they never hold."""
        return simplify_bounds(tuple(bound.substitute(self.values) for bound in bounds), self.ranges)


def with_values(job: Job, values: Mapping[str, Affine]) -> Job:
    """Expressions over other dimensions, which a job of folds has already. No condition may turn out never to hold."""
    ranges, dtypes = job.ranges, {name: field.dtype for name, field in job.fields.items()}

    def fold_of(fold: Fold) -> Fold:
        where = simplify_bounds(tuple(bound.substitute(values) for bound in fold.where), ranges)
        assert where is not None
        made = tuple(simplified_body(substitute(value, values), ranges, dtypes) for value in fold.values)
        return replace(fold, where=where, values=made)

    def store_of(store: Store) -> Store:
        index = tuple(simplify_index(row.substitute(values), ranges) for row in store.index)
        return replace(store, index=index)

    return replace(job, folds=tuple(map(fold_of, job.folds)), stores=tuple(map(store_of, job.stores)))
