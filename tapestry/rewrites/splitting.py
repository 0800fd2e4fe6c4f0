"""Index dimensions in parts: a dimension as two, two as one, and folds in stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import tapestry as tp

from ..expr import Affine, Bound, Read, depends_on
from ..program import Block, Dim, Operation, Program
from .bodies import over
from .drafts import drafted, fresh, fresh_dims, simple
from .folds import folds_values, partial_dtype
from .rule import Change, rule


def _doubled(*, n: int = 5, dtype: str = "f32") -> tp.Tensor:
    return (tp.input("x", dtype, (n,), axes=("n",)) * 2).named("y")


def _summed(*, n: int = 3, k: int = 5, dtype: str = "f32") -> tp.Tensor:
    return tp.sum(tp.input("x", dtype, (n, k), axes=("n", "k")), 1).named("y")


def _flattened(*, a: int = 3, b: int = 4, dtype: str = "f32") -> tp.Tensor:
    return tp.sum(tp.reshape(tp.input("x", dtype, (a * b,)), (a, b))).named("y")


@dataclass(frozen=True)
class Parts:
    """A dimension as ``length`` elements of each of ``count`` parts: name = length * outer + inner."""

    name: str
    extent: int
    outer: Dim
    inner: Dim

    @staticmethod
    def of(op: Operation, dim: Dim, parts: int) -> Parts | None:
        """None where there is nothing to split: parts, and there are several, have several elements."""
        length = -(-dim.extent // max(parts, 1))
        return Parts.of_length(op, dim, length) if parts > 1 and length > 1 else None

    @staticmethod
    def of_length(op: Operation, dim: Dim, length: int) -> Parts:
        """Parts of so many elements each."""
        outer, inner = fresh_dims((f"{dim.name}0", f"{dim.name}1"), op.extents)
        count = -(-dim.extent // length)
        return Parts(dim.name, dim.extent, Dim(outer, count, dim.cut), Dim(inner, length, dim.cut))

    @property
    def value(self) -> Affine:
        return self.inner.extent * Affine.dim(self.outer.name) + Affine.dim(self.inner.name)

    @property
    def even(self) -> bool:
        return self.outer.extent * self.inner.extent == self.extent

    @property
    def where(self) -> tuple[Bound, ...]:
        """The last part may be shorter."""
        return () if self.even else (Bound(self.value, None, self.extent),)

    def within(self, op: Operation) -> Operation:
        """The operation over the two dimensions, one after the other where the one was."""
        values = {self.name: self.value}
        dims = tuple(new for dim in op.dims for new in ((self.outer, self.inner) if dim.name == self.name else (dim,)))
        names = (self.outer.name, self.inner.name)
        return replace(
            op,
            dims=dims,
            write=tuple(row.substitute(values) for row in op.write),
            body=over(op.body, values),
            reduce_dims=tuple(new for name in op.reduce_dims for new in (names if name == self.name else (name,))),
            where=(*(bound.substitute(values) for bound in op.where), *self.where),
        )


@rule(example=_doubled, once=True)
def split_dimension(program: Program, op: Operation, *, dim: str | None = None, parts: int = 2) -> Iterator[Change]:
    """Go over a dimension in ``parts``: which part, and where in it.

    before:
        y[n] = x[n] * 2
    after:
        y[3*n0 + n1] = x[3*n0 + n1] * 2  where 3*n0 + n1 < 5
    legal: the parts are disjoint and cover the dimension. They are of equal length where a fold goes by positions, and
        where it writes an element for each: a fold over nothing writes one too
    """
    for found in _splits(op, dim, parts):
        if found.even or op.monoid is None or (found.name in op.reduce_dims and folds_values(op)):
            yield Change((op.name,), (simple(program, found.within(op)),))


@rule(example=_summed, once=True)
def split_reduction(program: Program, op: Operation, *, dim: str | None = None, parts: int = 2) -> Iterator[Change]:
    """Fold in two stages: each of ``parts`` of a dimension, then the parts.

    before:
        y[n] = sum[k] x[n, k]
    after:
        y.part[n, k0] = sum[k1] x[n, 3*k0 + k1]  where 3*k0 + k1 < 5
        y[n] = sum[k0] y.part[n, k0]
    legal: the monoid folds plain values in any grouping; the parts are disjoint and cover the dimension
    """
    if isinstance(op.body, Block) or not folds_values(op):
        return
    for found in _splits(op, dim, parts):
        if found.name in op.reduce_dims:
            yield _staged(program, op, found)


def _splits(op: Operation, dim: str | None, parts: int) -> Iterator[Parts]:
    """The dimensions that may be split; not those of blocks, scans, lookups and records, known by their form."""
    if isinstance(op.body, Block) or op.scan is not None or op.selections:
        return
    for one in op.dims:
        found = Parts.of(op, one, parts) if dim in (None, one.name) and one.name != op.record_dim else None
        if found is not None:
            yield found


def _staged(program: Program, op: Operation, parts: Parts) -> Change:
    halves = parts.within(op)
    assert not isinstance(halves.body, Block)
    folded = tuple(name for name in halves.reduce_dims if name != parts.outer.name)
    first, part = drafted(
        program, op, "part", halves.dims, halves.body, partial_dtype(program, op, halves.body),
        reduce_dims=folded, monoid=op.monoid, where=halves.where,
    )  # fmt: skip
    outer = (*(dim for dim in op.dims if dim.name not in op.reduce_dims), parts.outer)
    body = Read(part.name, first.write)
    second = replace(op, dims=outer, body=body, reduce_dims=(parts.outer.name,), where=())
    return Change((op.name,), (simple(program, first), second), (part,))


@rule(example=_flattened)
def merge_dimensions(program: Program, op: Operation) -> Iterator[Change]:
    """Go over two dimensions as over one, where one counts the parts in which the other goes.

    before:
        y[] = sum[d0, d1] x[4*d0 + d1]
    after:
        y[] = sum[d0] x[d0]
    legal: they stand nowhere but together, as length * outer + inner; both are folded or both are not
    """
    if not isinstance(op.body, Block) and op.scan is None and not op.selections:
        for outer in op.dims:
            for inner in op.dims:
                found = merged(op, outer, inner)
                if found is not None:
                    yield Change((op.name,), (simple(program, found),))


def merged(op: Operation, outer: Dim, inner: Dim) -> Operation | None:
    """The operation over one dimension, under the outer one's name, in place of two."""
    if not _may_merge(op, outer, inner):
        return None
    whole = fresh("whole", op.extents)
    values = {inner.name: Affine.dim(whole) - inner.extent * Affine.dim(outer.name)}
    write = tuple(row.substitute(values) for row in op.write)
    where = tuple(bound.substitute(values) for bound in op.where)
    body = over(op.body, values)
    assert not isinstance(body, Block)
    left = depends_on(body).union(*(row.dims for row in write), *(bound.expr.dims for bound in where))
    if outer.name in left:
        return None
    limits = [bound.hi for bound in where if bound.hi is not None and bound.expr == Affine.dim(whole)]
    counts = op.monoid is None or outer.name in op.reduce_dims  # a fold writes an element where it folds nothing too
    end = min([outer.extent * inner.extent, *(limits if counts else ())])
    named = {whole: Affine.dim(outer.name)}
    return replace(
        op,
        dims=tuple(replace(dim, extent=end) if dim is outer else dim for dim in op.dims if dim is not inner),
        write=tuple(row.substitute(named) for row in write),
        body=over(body, named),
        reduce_dims=tuple(name for name in op.reduce_dims if name != inner.name),
        where=tuple(bound.substitute(named) for bound in where),
    )


def _may_merge(op: Operation, outer: Dim, inner: Dim) -> bool:
    """Both folded or neither, in any order where that does not matter, and one inside of the other where it does."""
    if outer is inner or outer.cut != inner.cut:
        return False
    folded = [dim.name in op.reduce_dims for dim in (outer, inner)]
    adjacent = op.dims.index(inner) == op.dims.index(outer) + 1
    return folded[0] == folded[1] and (adjacent or not folded[0] or folds_values(op))
