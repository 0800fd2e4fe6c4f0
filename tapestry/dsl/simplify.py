"""Simplify index expressions over a box: floors that the ranges decide vanish, guards that always hold are dropped.

Views compose by substitution, so a split followed by a merge reads as floors of sums. Over known ranges most of them
are affine again: (128*h + e)//128 is h where 0 <= e < 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from ..expr import Affine, Bound, Call, Cast, Const, Expr, Floor, IndexValue, Inside, Read

Ranges = Mapping[str, tuple[int, int]]


def simplify_index(index: Affine, ranges: Ranges) -> Affine:
    """An equal expression with fewer floors, for dimensions lo <= name < hi in ``ranges``.

    >>> h, e = Affine.dim("h"), Affine.dim("e")
    >>> str(simplify_index((128 * h + e) // 128, {"h": (0, 32), "e": (0, 128)}))
    'h'
    """
    if index.is_affine:
        return _drop_points(index, ranges)
    total = Affine((), index.const)
    for atom, c in index.terms:
        if isinstance(atom, str):
            total += Affine(((atom, c),))
        else:
            total += _floor(simplify_index(atom.inner, ranges), atom.divisor, ranges) * c
    return _drop_points(total, ranges)


def _drop_points(index: Affine, ranges: Ranges) -> Affine:
    """A dimension of one value is a constant, unless it stands alone (where its name says more)."""
    if len(index.terms) == 1 and index.terms[0][1] == 1 and not index.const:
        return index
    points = {a: ranges[a][0] for a, _ in index.terms if isinstance(a, str) and ranges[a][1] - ranges[a][0] == 1}
    return index.substitute(points) if points else index


def _floor(inner: Affine, divisor: int, ranges: Ranges) -> Affine:
    """floor(inner / divisor), the inner expression being simple already."""
    whole = Affine(tuple((a, c // divisor) for a, c in inner.terms if c % divisor == 0), inner.const // divisor)
    rest = Affine(tuple((a, c) for a, c in inner.terms if c % divisor), inner.const % divisor)
    lo, hi = rest.bounds(ranges)
    if lo // divisor == (hi - 1) // divisor:
        return whole + lo // divisor
    if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Floor) and rest.terms[0][1] == 1:
        nested = rest.terms[0][0]  # floor((floor(x / m) + k) / d) = floor((x + k*m) / (m*d))
        return whole + _floor(nested.inner + rest.const * nested.divisor, nested.divisor * divisor, ranges)
    return whole + _by_common_factor(rest, divisor, ranges)


def _by_common_factor(inner: Affine, divisor: int, ranges: Ranges) -> Affine:
    """floor((g*x + r) / (g*d)) = floor(x / d) where 0 <= r < g."""
    for factor in sorted({gcd(c, divisor) for _, c in inner.terms} - {1}, reverse=True):
        outer = Affine(tuple((a, c // factor) for a, c in inner.terms if c % factor == 0))
        rest = Affine(tuple((a, c) for a, c in inner.terms if c % factor), inner.const)
        lo, hi = rest.bounds(ranges)
        if lo // factor == (hi - 1) // factor:
            return _floor(outer + lo // factor, divisor // factor, ranges)
    return inner // divisor


def simplify_bounds(bounds: tuple[Bound, ...], ranges: Ranges) -> tuple[Bound, ...] | None:
    """The bounds that the ranges do not already grant, one for each linear form; None when they can never all hold."""
    merged: dict[Affine, tuple[Affine, int | None, int | None]] = {}
    for bound in bounds:
        expr = simplify_index(bound.expr, ranges)
        form, shift = Affine(expr.terms), expr.const
        first, lo, hi = merged.get(form, (expr, None, None))
        lower = [v for v in (lo, None if bound.lo is None else bound.lo - shift) if v is not None]
        upper = [v for v in (hi, None if bound.hi is None else bound.hi - shift) if v is not None]
        merged[form] = first, max(lower, default=None), min(upper, default=None)
    kept = [_needed(form, *found, ranges) for form, found in merged.items()]
    return None if None in kept else tuple(bound for bound in kept if bound and (bound.lo, bound.hi) != (None, None))


def _needed(form: Affine, expr: Affine, lo: int | None, hi: int | None, ranges: Ranges) -> Bound | None:
    """lo <= form < hi, said of expr = form + constant, without sides that the ranges grant; None if it never holds."""
    least, end = form.bounds(ranges)
    if max(least, least if lo is None else lo) >= min(end, end if hi is None else hi):
        return None
    need_lo = lo + expr.const if lo is not None and least < lo else None
    need_hi = hi + expr.const if hi is not None and end > hi else None
    return Bound(expr, need_lo, need_hi)


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """Simplify every index, guard and condition of a scalar expression; choices that the ranges decide are taken."""
    if isinstance(expr, Read):
        guard = simplify_bounds(expr.guard, ranges)
        if guard is None:
            return Const(expr.fill)
        return Read(expr.tensor, tuple(simplify_index(i, ranges) for i in expr.index), guard, expr.fill if guard else 0)
    if isinstance(expr, IndexValue):
        return IndexValue(simplify_index(expr.index, ranges))
    if isinstance(expr, Inside):
        bounds = simplify_bounds(expr.bounds, ranges)
        return Inside(bounds) if bounds else Const(bounds is not None)
    if isinstance(expr, Cast):
        return Cast(expr.dtype, simplify(expr.arg, ranges))
    if isinstance(expr, Call):
        return _choose(Call(expr.function, tuple(simplify(arg, ranges) for arg in expr.args)))
    return expr


def _choose(call: Call) -> Expr:
    if call.function == "where" and isinstance(call.args[0], Const):
        return call.args[1] if call.args[0].value else call.args[2]
    return call
