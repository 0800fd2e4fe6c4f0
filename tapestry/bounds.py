"""Whether a read stays inside its tensor: intervals first, then integer sets; a witness where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import ReadOutOfBounds
from .expr import Affine, Bound, Floor

Ranges = Mapping[str, tuple[int, int]]


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
        if _inside(expr, extent, ranges) or _granted(expr, extent, ranges, bounds):
            continue
        point = _witness(expr, extent, ranges, bounds)
        if point is not None:
            return Escape(axis, expr.bounds(ranges), point)
    return None


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


def _witness(expr: Affine, extent: int, ranges: Ranges, bounds: Sequence[Bound]) -> dict[str, int] | None:
    """A point of the box that satisfies the bounds and where expr is outside 0:extent; the least one, by isl."""
    import islpy as isl

    names = sorted(set(expr.dims).union(*(bound.expr.dims for bound in bounds)))
    if any(ranges[name][0] >= ranges[name][1] for name in names):
        return None
    alias = {name: f"i{k}" for k, name in enumerate(names)}
    conditions = [f"{ranges[name][0]} <= {alias[name]} < {ranges[name][1]}" for name in names]
    conditions += [bound_text(bound, alias) for bound in bounds]
    for outside in (f"{affine_text(expr, alias)} < 0", f"{affine_text(expr, alias)} >= {extent}"):
        points = isl.Set(f"{{ [{', '.join(alias.values())}] : {' and '.join([*conditions, outside])} }}")
        if not points.is_empty():
            point = points.lexmin().sample_point()
            values = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(len(names))]
            return dict(zip(names, values, strict=True))
    return None


def affine_text(expr: Affine, alias: Mapping[str, str]) -> str:
    """The expression in isl's notation, dimensions renamed by ``alias``."""
    parts = [str(expr.const)]
    for atom, c in expr.terms:
        inner = f"floor(({affine_text(atom.inner, alias)})/{atom.divisor})" if isinstance(atom, Floor) else alias[atom]
        parts.append(f"{c}*{inner}")
    return " + ".join(parts)


def bound_text(bound: Bound, alias: Mapping[str, str]) -> str:
    """The bound in isl's notation."""
    text = affine_text(bound.expr, alias)
    sides = [] if bound.lo is None else [f"{bound.lo} <= {text}"]
    sides += [] if bound.hi is None else [f"{text} < {bound.hi}"]
    return " and ".join(sides) or "true"


def out_of_bounds(
    place: str,
    tensor: str,
    axes: Sequence[str],
    shape: Sequence[int],
    index: Sequence[Affine],
    found: Escape,
    ranges: Ranges,
) -> ReadOutOfBounds:
    """The error for an escape, with both intervals and the witness. ``place`` is "op (file:line)"."""
    k, extent = found.axis, shape[found.axis]
    point = {name: found.point.get(name, ranges[name][0]) for name in ranges}
    at = " ".join(f"{axis}={expr.evaluate(point)}" for axis, expr in zip(axes, index, strict=True))
    origin = " ".join(f"{name}={value}" for name, value in found.point.items() if name in index[k].dims)
    lo, hi = found.reads
    before, after = max(0, -lo), max(0, hi - extent)
    amount = str(before) if before == after else f"({before}, {after})"
    return ReadOutOfBounds(
        f"{place} reads {tensor}[{', '.join(axes)}] outside its shape",
        sides={"reads": f"{axes[k]} in [{lo}, {hi - 1}]", "holds": f"{axes[k]} in [0, {extent - 1}]"},
        witness=at + (f"  from {origin}" if origin else ""),
        hint=f"pad the operand (tp.pad({tensor}, {axes[k]}={amount})) or shrink the window",
    )
