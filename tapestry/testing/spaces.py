"""Strategies for integer sets, grids, regions and index expressions: small enough to list, with signs and strides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import strategies as st

from ..expr import Affine, Bound, Table
from ..expr.conditions import any_of, none_of
from ..space import Box, Grid, IntSet, Region


@st.composite
def int_sets(draw: st.DrawFn, low: int = -6, high: int = 12, *, empty: bool = True) -> IntSet:
    """One to three runs, strided or not, overlapping or not."""
    runs = []
    for _ in range(draw(st.integers(0 if empty else 1, 3))):
        start = draw(st.integers(low, high - 1))
        runs.append(range(start, draw(st.integers(start + 1, high)), draw(st.integers(1, 4))))
    return IntSet.of(*runs)


def grids(ndim: int, *, empty: bool = False) -> st.SearchStrategy[Grid]:
    """Products of integer sets."""
    return st.tuples(*[int_sets(-3, 6, empty=empty)] * ndim).map(Grid)


def regions(ndim: int, *, most: int = 3) -> st.SearchStrategy[Region]:
    """Unions of up to ``most`` grids, which may overlap before they are united."""
    return st.lists(grids(ndim), max_size=most).map(lambda found: Region.of(*found))


@st.composite
def boxes(draw: st.DrawFn, ndim: int, low: int = -4, high: int = 8) -> Box:
    """Boxes, empty ones included."""
    lo = draw(st.tuples(*[st.integers(low, high)] * ndim))
    return Box(lo, tuple(draw(st.integers(a - 1, high)) for a in lo))


@st.composite
def affines(draw: st.DrawFn, dims: Sequence[str], *, floors: int = 2) -> Affine:
    """Rows with any signs, and floors and remainders nested up to ``floors`` deep."""
    expr = Affine((), draw(st.integers(-4, 4)))
    for name in dims:
        expr += Affine.dim(name) * draw(st.sampled_from([0, 1, 1, -1, 2, -2, 3, 4, -3]))
    if floors and draw(st.integers(0, 3)) == 0:
        inner = draw(affines(dims, floors=floors - 1))
        divisor = draw(st.sampled_from([2, 3, 4, 6]))
        expr += (inner // divisor if draw(st.booleans()) else inner % divisor) * draw(st.sampled_from([1, -1, 2]))
    return expr


@st.composite
def bounds(draw: st.DrawFn, dims: Sequence[str]) -> Bound:
    """Conditions with one side or two."""
    expr = draw(affines(dims, floors=1))
    lo, hi = draw(st.sampled_from([None, -3, 0, 1])), draw(st.sampled_from([None, 2, 3, 7]))
    return Bound(expr, lo, hi)


@st.composite
def tables(draw: st.DrawFn, dims: Sequence[str]) -> Affine:
    """A constant table at an index expression, which may lie beyond its ends."""
    values = tuple(draw(st.lists(st.integers(-2, 6), min_size=1, max_size=6)))
    inner = draw(affines(dims, floors=1))
    return Table(inner, values).over(inner)


@st.composite
def conditions(draw: st.DrawFn, dims: Sequence[str], *, depth: int = 2) -> tuple[Bound, ...]:
    """Conditions of any form: compared tables, and "and", "or" and "not" nested up to ``depth`` deep."""
    form = draw(st.sampled_from(["plain", "table", *(["and", "or", "not"] if depth else [])]))
    if form == "plain":
        return (draw(bounds(dims)),)
    if form == "table":
        against = draw(st.sampled_from([Affine(), *map(Affine.dim, dims)]))
        lo, hi = draw(st.sampled_from([None, -2, 1])), draw(st.sampled_from([None, 2]))
        return (Bound(against - draw(tables(dims)), lo, hi),)
    parts = draw(st.lists(conditions(dims, depth=depth - 1), min_size=1, max_size=2))
    if form == "and":
        return tuple(bound for part in parts for bound in part)
    return any_of(parts) if form == "or" else none_of(parts[0])


def points(region: Region) -> set[tuple[int, ...]]:
    """All points of a region, by enumeration."""
    return {point for grid in region.grids for point in product(*(tuple(axis) for axis in grid.axes))}
