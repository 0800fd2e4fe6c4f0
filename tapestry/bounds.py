"""Whether a read stays inside its tensor: intervals first, then integer sets; a witness where it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .errors import ReadOutOfBounds
from .expr import Affine, Bound
from .space import Access, Box, IndexSet

Ranges = Mapping[str, tuple[int, int]]
LISTED = 1 << 22  # points at which expressions with tables are evaluated one by one


@dataclass(frozen=True)
class Escape:
    """A read that leaves its tensor: the axis, the half-open interval read there, a point where it happens."""

    axis: int
    reads: tuple[int, int]
    point: dict[str, int]


def escape(
    index: Sequence[Affine], shape: Sequence[int], ranges: Ranges, bounds: Sequence[Bound] = ()
) -> Escape | None:
    """The first axis on which ``index`` leaves 0:extent in the box ``ranges`` where ``bounds`` hold, or None.

    Exact: intervals answer where they suffice (each dimension once per row, a guard that says what is needed); isl
    otherwise.
    """
    for axis, (expr, extent) in enumerate(zip(index, shape, strict=True)):
        found = escape_of(axis, expr, extent, ranges, bounds)
        if found:
            return found
    return None


def escape_of(axis: int, expr: Affine, extent: int, ranges: Ranges, bounds: Sequence[Bound] = ()) -> Escape | None:
    """`escape` for one axis alone."""
    if _inside(expr, extent, ranges) or _granted(expr, extent, ranges, bounds):
        return None
    point = _witness(expr, extent, ranges, bounds)
    return None if point is None else Escape(axis, _reached(expr, ranges, bounds), point)


def _inside(expr: Affine, extent: int, ranges: Ranges) -> bool:
    lo, hi = expr.bounds(ranges)
    return lo >= 0 and hi <= extent


def _granted(expr: Affine, extent: int, ranges: Ranges, bounds: Sequence[Bound]) -> bool:
    """Bounds on the same linear form, up to a constant, together with the ranges."""
    lo, hi = expr.bounds(ranges)
    for bound in bounds:
        if bound.expr.terms == expr.terms:
            shift = expr.const - bound.expr.const
            lo = lo if bound.lo is None else max(lo, bound.lo + shift)
            hi = hi if bound.hi is None else min(hi, bound.hi + shift)
    return lo >= 0 and hi <= extent


def _points(expr: Affine, ranges: Ranges, bounds: Sequence[Bound]) -> IndexSet:
    """Points of the box at which the bounds hold, over the dimensions that they and the expression name."""
    names = sorted(set(expr.dims).union(*(bound.expr.dims for bound in bounds)))
    box = Box(tuple(ranges[name][0] for name in names), tuple(ranges[name][1] for name in names))
    return IndexSet.of(names, box, bounds)


def _witness(expr: Affine, extent: int, ranges: Ranges, bounds: Sequence[Bound]) -> dict[str, int] | None:
    """A point of the box that satisfies the bounds and where expr is outside 0:extent; the least one."""
    listed = _listed(expr, ranges, bounds)
    if listed is not None:
        return _first(listed, extent)
    for outside in (Bound(expr, None, 0), Bound(expr, extent, None)):
        found = _points(expr, ranges, (*bounds, outside))
        point = found.witness()
        if point is not None:
            return dict(zip(found.dims, point, strict=True))
    return None


def _reached(expr: Affine, ranges: Ranges, bounds: Sequence[Bound]) -> tuple[int, int]:
    """The half-open interval from the least to the greatest value of expr where the bounds hold."""
    listed = _listed(expr, ranges, bounds)
    if listed is not None:
        values = listed.values[listed.inside]
        return int(values.min()), int(values.max()) + 1
    points = _points(expr, ranges, bounds)
    values = Access(points.dims, (expr,)).image_set(points)
    if not values:
        return expr.bounds(ranges)
    hull = values.hull()
    return hull.lo[0], hull.hi[0]


@dataclass(frozen=True)
class _Listed:
    """The values of an expression at all points of a box, and where the bounds hold."""

    at: Mapping[str, Any]
    values: Any
    inside: Any


def _listed(expr: Affine, ranges: Ranges, bounds: Sequence[Bound]) -> _Listed | None:
    """Expressions with tables point by point: isl is told these case by case, which are many where tables are long.

    None for others, and for too many points.
    """
    exprs = [expr, *(bound.expr for bound in bounds)]
    names = sorted(set().union(*(one.dims for one in exprs)))
    extents = [ranges[name][1] - ranges[name][0] for name in names]
    if not any(table for one in exprs for table in one.tables if not table.is_step) or not 0 < prod(extents) <= LISTED:
        return None
    import numpy as np

    at = dict(zip(names, np.meshgrid(*(np.arange(*ranges[name]) for name in names), indexing="ij"), strict=True))
    inside = np.ones(extents, dtype=bool)
    for bound in bounds:
        value = np.broadcast_to(bound.expr.evaluate(at), inside.shape)
        inside &= True if bound.lo is None else value >= bound.lo
        inside &= True if bound.hi is None else value < bound.hi
    return _Listed(at, np.broadcast_to(expr.evaluate(at), inside.shape), inside)


def _first(listed: _Listed, extent: int) -> dict[str, int] | None:
    """The least point at which the bounds hold and the value is outside 0:extent."""
    import numpy as np

    found = np.argwhere(listed.inside & ((listed.values < 0) | (listed.values >= extent)))
    return {name: int(grid[tuple(found[0])]) for name, grid in listed.at.items()} if len(found) else None


def out_of_bounds(
    place: str,
    tensor: str,
    axes: Sequence[str],
    shape: Sequence[int],
    index: Sequence[Affine],
    found: Escape,
    ranges: Ranges,
    spoken: Callable[[str], str] = str,
) -> ReadOutOfBounds:
    """The error for an escape, with both intervals and the witness.

    ``place`` is "op (file:line)"; ``spoken`` gives the user's names of the dimensions.
    """
    k, extent = found.axis, shape[found.axis]
    names = {name for expr in index for name in expr.dims}
    point = {name: found.point.get(name, ranges.get(name, (0, 1))[0]) for name in names}
    at = " ".join(f"{axis}={expr.evaluate(point)}" for axis, expr in zip(axes, index, strict=True))
    origin = " ".join(f"{spoken(name)}={value}" for name, value in found.point.items() if name in index[k].dims)
    shown = [str(expr.substitute({name: Affine.dim(spoken(name)) for name in expr.dims})) for expr in index]
    declared = ", ".join(f"{axis}={size}" for axis, size in zip(axes, shape, strict=True))
    lo, hi = found.reads
    held = f"{axes[k]} in [0, {extent - 1}]" if extent else f"nothing, as {axes[k]}=0"
    before, after = max(0, -lo), max(0, hi - extent)
    amount = str(before) if before == after else f"({before}, {after})"
    hint = f"pad the operand (tp.pad({tensor}, {axes[k]}={amount})), guard the read (.get[...]) or shrink the range"
    return ReadOutOfBounds(
        f"{place} reads {tensor}[{', '.join(shown)}] outside its shape",
        sides={
            "axes": f"{tensor}[{declared}]",
            "reads": f"{shown[k]} in [{lo}, {hi - 1}] along {axes[k]}",
            "holds": held,
        },
        witness=at + (f"  from {origin}" if origin else ""),
        hint=hint,
    )
