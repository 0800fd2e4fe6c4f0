"""Cutting pieces until every guard is decided and every index is affine, as far as few pieces allow.

A dimension is cut where a bound on it changes and at the steps of floors; what is left over (a guard that couples two
long dimensions) is evaluated by masks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ...expr import Bound, Floor, IndexValue, Inside, Read, walk
from .pieces import Piece

MAX_PIECES = 400
WINDOW = 16  # a dimension at most this long is written out where a guard couples it with another
WORTHWHILE = 4096  # points below which a mask is cheaper than more pieces


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
        place = threshold(bound, open_dims)
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


def threshold(bound: Bound, open_dims: Mapping[str, int]) -> tuple[str, int] | None:
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
