"""A `Piece`: a box of points of a compute task, with the operation's expressions rewritten over it.

Its dimensions are fresh and start at 0. Strided shards lose their stride, guards that fail everywhere become their
fill, constants are folded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ...expr import Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read, rewrite
from ...expr.simplify import Ranges, Simplifier
from .folding import constant_expr, fold_call, number

NOWHERE = (Bound(Affine(), 1, None),)  # the conditions of a domain without points


@dataclass(frozen=True)
class Piece:
    """Points 0 <= d < extent of ``dims``; ``reduce`` names the dimensions to fold.

    ``where`` restricts the points, as in the operation; ``dtypes`` are those of the tensors, for fills.
    """

    dims: tuple[tuple[str, int], ...]
    reduce: frozenset[str]
    write: tuple[Affine, ...]
    body: Expr
    where: tuple[Bound, ...]
    dtypes: Mapping[str, str]

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {name: (0, extent) for name, extent in self.dims}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.dims)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @cached_property
    def empty(self) -> bool:
        """No points: an extent or a bound of the domain leaves none."""
        return not self.size or any(bound.decided(self.ranges) is False for bound in self.where)

    def substituted(self, dims: tuple[tuple[str, int], ...], values: Mapping[str, Affine]) -> Piece:
        """The piece over other dimensions, simplified."""
        reduce = self.reduce | {
            new for new, _ in dims if new.split("'")[0] in {old.split("'")[0] for old in self.reduce}
        }
        ranges = {name: (0, extent) for name, extent in dims}
        simplify = Simplify(ranges, values, self.dtypes)
        return replace(
            self,
            dims=dims,
            reduce=frozenset(name for name, _ in dims) & reduce,
            write=tuple(simplify.index(expr) for expr in self.write),
            body=simplify.expr(self.body),
            where=simplify.where(self.where),
        )

    def part(self, name: str, lo: int, hi: int) -> Piece:
        """The points with lo <= name < hi, shifted to 0."""
        dims = tuple((n, hi - lo if n == name else extent) for n, extent in self.dims)
        return self.substituted(dims, {name: Affine(((name, 1),), lo)})

    def split(self, name: str, period: int) -> Piece:
        """One dimension, a multiple of ``period`` long, as two: name = period * name'q + name'r."""
        quotient, rest = f"{name}'q", f"{name}'r"
        dims: list[tuple[str, int]] = []
        for n, extent in self.dims:
            dims += [(quotient, extent // period), (rest, period)] if n == name else [(n, extent)]
        return self.substituted(tuple(dims), {name: Affine(((quotient, period), (rest, 1)))})


def whole(piece: Piece, start: Mapping[str, range]) -> Piece:
    """The piece restricted to one run per dimension of an operation, renumbered from 0."""
    dims = tuple((name, len(start[name])) for name, _ in piece.dims)
    values = {name: Affine(((name, start[name].step),), start[name].start) for name, _ in piece.dims}
    return piece.substituted(dims, values)


class Simplify(Simplifier):
    """Expressions over other dimensions, for what is computed: constants are folded, fills have their tensor's type."""

    def __init__(self, ranges: Ranges, values: Mapping[str, Affine], dtypes: Mapping[str, str]) -> None:
        super().__init__(ranges, values)
        self.dtypes = dtypes

    def where(self, bounds: Collection[Bound]) -> tuple[Bound, ...]:
        """The conditions of a domain; `NOWHERE` when they can never all hold."""
        found = self.bounds(bounds)
        return NOWHERE if found is None else found

    def missed(self, read: Read) -> Expr:
        return constant_expr(number(read.fill, self.dtypes[read.tensor]))

    def called(self, call: Call) -> Expr:
        return fold_call(call)

    def indexed(self, index: Affine) -> Expr:
        return IndexValue(index) if index.terms else Cast("int64", Const(index.const))


def masked(body: Expr, where: tuple[Bound, ...], identity: float | int | bool) -> Expr:
    """The body where the domain's bounds hold, elsewhere the identity; reads are guarded by the bounds as well."""
    if not where:
        return body
    return Call("where", (Inside(where), guarded(body, where), Const(identity)))


def guarded(node: Expr, where: tuple[Bound, ...]) -> Expr:
    """The expression with every read guarded by further bounds."""
    if not where:
        return node

    def leaf(part: Expr) -> Expr:
        return replace(part, guard=(*part.guard, *where)) if isinstance(part, Read) else part

    return rewrite(node, leaf)
