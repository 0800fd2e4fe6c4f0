"""The monoids whose folds have several results: the least and the largest value, the largest of some number."""

from __future__ import annotations

from . import derivatives as d
from .derivatives import call
from .monoids import ALL_LAWS, EVERY, INFINITY, MONOIDS, NOTHING, ROWS, TWO_LAWS, VALUE, Component, Monoid, add_monoid
from .scalar import Expr, Read

MOST_PLACES = 64  # of the largest: combining them takes the square of their number


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
    doc = f"The largest {count} values, from the largest down."
    components = tuple(_place(k) for k in range(count))
    return Monoid(f"top{count}", components, None, TWO_LAWS, EVERY, doc=doc, rows=f"{ROWS}:top")


def _place(k: int) -> Component:
    """The value that k others of two falling lists precede: of p + 1 from one and k - p from the other the least, for
    the p that makes it greatest.
    """
    a, b = ([_read(record, f"place{p}") for p in range(k + 1)] for record in "ab")
    both: Expr = call("maximum", a[k], b[k])
    for p in range(k):
        both = call("maximum", both, call("minimum", a[p], b[k - 1 - p]))
    one = call("maximum", a[k], call("minimum", a[k - 1], b[0]) if k else b[0])
    return Component(f"place{k}", "stored", -INFINITY, both, NOTHING if k else VALUE, step=one)


add_monoid(_minmax())
MONOIDS.families["top"] = _top
