"""Further kinds of operations of generated programs: folds up to an index, and those whose places data say."""

from __future__ import annotations

from math import prod

from ..expr import Affine, Bound, Expr, IndexValue
from .bodies import call
from .growing import LETTERS, Growing, index_of
from .operands import broadcast
from .shapes import KINDS, folded_dtype, result_dtype_of


def scan(g: Growing) -> None:
    """A fold over all that comes before an index along an axis, or after it, with or without the index itself."""
    ch, x = g.ch, g.operand(("float", "int"), ranks=(1, 3))
    names = LETTERS[: len(x.shape)]
    axis = ch.integer(0, len(names) - 1)
    extents = dict(zip(names, x.shape, strict=True)) | {"s": x.shape[axis]}
    if prod(extents.values()) > g.size.points:
        return
    monoid = ch.pick(("sum", "max", "min"))
    along, folded = Affine.dim(names[axis]), Affine.dim("s")
    body = x.at(tuple(folded if k == axis else Affine.dim(name) for k, name in enumerate(names)))
    if monoid == "sum" and x.kind == "float":
        body = call("multiply", body, 1 / x.shape[axis])
    # The largest of nothing is no number that sums of others stay small beside.
    inclusive = 0 if monoid == "sum" and ch.chance(30) else 1
    where = Bound(along - folded, 1 - inclusive, None) if ch.chance(70) else Bound(folded - along, 1 - inclusive, None)
    g.emit(extents, body, folded_dtype(g, x, monoid), reduce=("s",), monoid=monoid, where=(where,), bound=x.bound)


def lookup(g: Growing) -> None:
    """Rows of a table where a tensor of integers says: those that it does not have are zeros."""
    ch, table = g.ch, g.operand(("float", "int"), ranks=(1, 2))
    places = g.operand(("int",), ranks=(1, 2))
    names, at = LETTERS[: len(places.shape)], index_of(LETTERS[: len(places.shape)])
    row = {"v": table.shape[0]} | dict(zip("w", table.shape[1:], strict=False))
    extents = dict(zip(names, places.shape, strict=True)) | row
    if prod(extents.values()) > g.size.points:
        return
    asked: Expr = places.at(at)
    if ch.chance(70):
        asked = call("remainder", asked, table.shape[0])
    here = call("equal", IndexValue(Affine.dim("v")), asked)
    body = call("where", here, table.at(index_of(tuple(row))), 0)
    g.emit(extents, body, result_dtype_of(g, table.kind), reduce=("v",), monoid="sum", bound=table.bound)


def scatter(g: Growing) -> None:
    """Elements added up at the places that a tensor of integers says, nothing where these are outside."""
    ch, places = g.ch, g.operand(("int",), ranks=(1, 1))
    x = broadcast(g.fresh(places.shape), places.shape)
    extents = {"v": ch.integer(1, g.size.largest), "i": places.shape[0]}
    if x.kind == "bool":
        return
    here = call("equal", IndexValue(Affine.dim("v")), places.at(index_of("i")))
    value = x.at(index_of("i"))
    share = call("multiply", value, 1 / max(1, places.shape[0])) if x.kind == "float" else value
    body = call("where", here, share, 0)
    g.emit(extents, body, result_dtype_of(g, x.kind), reduce=("i",), monoid="sum", bound=x.bound)


EVERY_KIND = (*KINDS, scan, lookup, scatter)
