"""Cutting a compute task into pieces on which every guard is decided and every index is affine.

A `Piece` is a box of fresh dimensions that start at 0, with the operation's expressions rewritten over them. Strided
shards lose their stride, guards that fail everywhere become their fill, floors of a dimension that is cut at their
steps disappear, small windows are unrolled. What is left over (a guard that couples two long dimensions) is evaluated
by masks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from ...expr import Affine, Bound, Call, Cast, Const, Expr, Floor, IndexValue, Inside, Read, children, walk
from ...expr.simplify import Ranges, Simplifier
from .folding import constant_expr, fold_call, number

MAX_PIECES = 400
WINDOW = 16  # a dimension at most this long is written out where a guard couples it with another
WORTHWHILE = 4096  # points below which a mask is cheaper than more pieces
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


def resolve(piece: Piece, cuttable: Collection[str]) -> list[Piece]:
    """Cut ``cuttable`` dimensions where guards and floors change, so that the pieces are as plain as can be."""
    done: list[Piece] = []
    stack = [piece]
    while stack:
        part = stack.pop()
        if part.empty:
            continue
        halves = None if len(done) + len(stack) >= MAX_PIECES else _cut(part, cuttable)
        if halves is None:
            done.append(part)
        else:
            stack += reversed(halves)
    return done


def _cut(piece: Piece, cuttable: Collection[str]) -> list[Piece] | None:
    """Two halves at the first undecided bound, or a floor taken apart; None when nothing can be cut."""
    family = {name.split("'")[0] for name in cuttable}
    open_dims = {name: extent for name, extent in piece.dims if extent > 1 and name.split("'")[0] in family}
    for bound in undecided(piece):
        place = _threshold(bound, open_dims)
        if place is not None:
            name, at = place
            return [piece.part(name, 0, at), piece.part(name, at, open_dims[name])]
    for bound in undecided(piece) if piece.size >= WORTHWHILE else ():
        names = [str(atom) for atom, _ in bound.expr.terms if atom in open_dims]
        short = min(names, key=lambda name: open_dims[name], default=None)
        if short is not None and len(bound.expr.terms) > 1 and open_dims[short] <= WINDOW:
            return [piece.part(short, 0, 1), piece.part(short, 1, open_dims[short])]
    for floor in floors(piece):
        halves = _unfloor(piece, floor, open_dims)
        if halves is not None:
            return halves
    return None


def undecided(piece: Piece) -> Iterator[Bound]:
    """Bounds of the domain, of guards and of conditions that are left."""
    yield from piece.where
    for node in walk(piece.body):
        if isinstance(node, Read):
            yield from node.guard
        elif isinstance(node, Inside):
            yield from node.bounds


def _threshold(bound: Bound, open_dims: Mapping[str, int]) -> tuple[str, int] | None:
    """Where a bound on a single dimension changes: the dimension and the first point of the upper part."""
    if len(bound.expr.terms) != 1:
        return None
    name, c = bound.expr.terms[0]
    if not isinstance(name, str) or name not in open_dims:
        return None
    for edge in (bound.lo, bound.hi):
        if edge is None:
            continue
        gap = edge - bound.expr.const
        at = -(-gap // c) if c > 0 else gap // c + 1
        if 0 < at < open_dims[name]:
            return name, at
    return None


def floors(piece: Piece) -> Iterator[Floor]:
    """Floors outside of other floors, in the order they are met."""
    exprs = list(piece.write) + [bound.expr for bound in undecided(piece)]
    for node in walk(piece.body):
        if isinstance(node, Read):
            exprs += node.index
        elif isinstance(node, IndexValue):
            exprs.append(node.index)
    for expr in exprs:
        yield from (atom for atom, _ in expr.terms if isinstance(atom, Floor))


def _unfloor(piece: Piece, floor: Floor, open_dims: Mapping[str, int]) -> list[Piece] | None:
    """Cut a dimension at the steps of floor((c*d + k) / D), c dividing D; many steps become a dimension."""
    if len(floor.inner.terms) != 1:
        return None
    name, c = floor.inner.terms[0]
    if not isinstance(name, str) or name not in open_dims or c < 0 or floor.divisor % c:
        return None
    period, extent = floor.divisor // c, open_dims[name]
    first = -(-(floor.divisor - floor.inner.const % floor.divisor) // c)
    if first < period or extent < 2 * period:
        return [piece.part(name, 0, first), piece.part(name, first, extent)] if first < extent else None
    if extent % period:
        return [piece.part(name, 0, extent - extent % period), piece.part(name, extent - extent % period, extent)]
    return [piece.split(name, period)]


def unrolled(piece: Piece, function: str, identity: float | int | bool) -> Piece:
    """The fold over all reduce dimensions written out as one expression: f(f(tap0, tap1), tap2) ..."""
    names = [name for name, _ in piece.dims if name in piece.reduce]
    extents = [extent for name, extent in piece.dims if name in piece.reduce]
    kept = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    total: Expr | None = None
    for values in product(*map(range, extents)):
        at = {name: Affine.of(value) for name, value in zip(names, values, strict=True)}
        tap = _tap(piece, kept, at, identity)
        total = tap if total is None else Call(function, (total, tap))
    body = Const(identity) if total is None else total
    return replace(piece, dims=kept, reduce=frozenset(), body=body, where=())


def _tap(
    piece: Piece, kept: tuple[tuple[str, int], ...], at: Mapping[str, Affine], identity: float | int | bool
) -> Expr:
    simplify = Simplify({name: (0, extent) for name, extent in kept}, at, piece.dtypes)
    return simplify.expr(masked(piece.body, piece.where, identity))


def masked(body: Expr, where: tuple[Bound, ...], identity: float | int | bool) -> Expr:
    """The body where the domain's bounds hold, elsewhere the identity; reads are guarded by the bounds as well."""
    if not where:
        return body
    return Call("where", (Inside(where), guarded(body, where), Const(identity)))


def guarded(node: Expr, where: tuple[Bound, ...]) -> Expr:
    """The expression with every read guarded by further bounds."""
    if not where:
        return node
    if isinstance(node, Read):
        return Read(node.tensor, node.index, (*node.guard, *where), node.fill)
    if isinstance(node, Call):
        return Call(node.function, tuple(guarded(arg, where) for arg in children(node)))
    return Cast(node.dtype, guarded(node.arg, where)) if isinstance(node, Cast) else node
