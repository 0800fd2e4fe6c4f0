"""The monoids whose folds have several results: the least and the largest value, the largest of some number."""

from __future__ import annotations

from collections.abc import Sequence

from . import derivatives as d
from .derivatives import call
from .monoids import ALL_LAWS, EVERY, INFINITY, MONOIDS, NOTHING, ROWS, TWO_LAWS, VALUE, Component, Monoid, add_monoid
from .scalar import Expr, Read

MOST_PLACES = 64  # of the largest: every thread of a GPU holds as many


def _read(record: str, name: str) -> Read:
    return Read(f"{record}.{name}", ())


def _minmax() -> Monoid:
    components = (
        Component("min", "stored", INFINITY, call("minimum", _read("a", "min"), _read("b", "min"))),
        Component("max", "stored", -INFINITY, call("maximum", _read("a", "max"), _read("b", "max"))),
    )
    return Monoid(
        "minmax", components, None, ALL_LAWS, EVERY,
        doc="The least and the largest value.", slopes=(d.EXTREME, d.EXTREME), rows=f"{ROWS}:minmax",
    )  # fmt: skip


def _top(count: int) -> Monoid | None:
    """The largest ``count`` values, from the largest down."""
    if not 1 <= count <= MOST_PLACES:
        return None
    names = [f"place{k}" for k in range(count)]
    a, b = ([_read(record, name) for name in names] for record in "ab")
    components = []
    for k, (name, both) in enumerate(zip(names, _merged(a, b), strict=True)):
        one = call("maximum", a[k], call("minimum", a[k - 1], b[0]) if k else b[0])
        components.append(Component(name, "stored", -INFINITY, both, NOTHING if k else VALUE, step=one))
    doc = f"The largest {count} values, from the largest down."
    return Monoid(f"top{count}", tuple(components), None, TWO_LAWS, EVERY, doc=doc, rows=f"{ROWS}:top")


def _merged(a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
    """The largest of two falling lists, falling: Batcher, Sorting networks and their applications, 1968.

    One list beside the other turned round, the larger of each two: these are the largest of both, first falling, then
    rising. Then halves, quarters, ... are put in order. None stands for what is less than everything.
    """
    length = 1 << (len(a) - 1).bit_length()
    first, second = ([*values, *[None] * (length - len(a))] for values in (a, b))
    row = [_ordered(x, y)[0] for x, y in zip(first, reversed(second), strict=True)]
    apart = length // 2
    while apart:
        for k in range(length):
            if not k & apart:
                row[k], row[k + apart] = _ordered(row[k], row[k + apart])
        apart //= 2
    return [value for value in row[: len(a)] if value is not None]


def _ordered(x: Expr | None, y: Expr | None) -> tuple[Expr | None, Expr | None]:
    """The larger and the smaller."""
    if x is None or y is None:
        return x or y, None
    return call("maximum", x, y), call("minimum", x, y)


add_monoid(_minmax())
MONOIDS.families["top"] = _top
