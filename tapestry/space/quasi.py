"""Algebra of quasi-affine index expressions over given ranges: floors simplified, coefficients read and rescaled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd

from ..expr.index import Affine, Floor

Ranges = Mapping[str, tuple[int, int]]


def simplify(expr: Affine, ranges: Ranges) -> Affine:
    """The same values over the box ``ranges``, with floors removed, flattened or made smaller where arithmetic allows.

    >>> i, j = Affine.dim("i"), Affine.dim("j")
    >>> str(simplify((12 * i + j) // 4 + ((i // 3) // 5), {"i": (0, 99), "j": (0, 4)}))
    '3*i + i//15'
    """
    if expr.is_affine:
        return expr
    result = Affine(tuple((atom, c) for atom, c in expr.terms if isinstance(atom, str)), expr.const)
    for atom, c in expr.terms:
        if isinstance(atom, Floor):
            result += _floor(simplify(atom.inner, ranges), atom.divisor, ranges) * c
    return result


def _floor(inner: Affine, divisor: int, ranges: Ranges) -> Affine:
    """floor(inner / divisor): whole multiples leave, constants fold, common factors cancel, nested floors flatten."""
    whole = Affine((), inner.const // divisor)
    rest = Affine((), inner.const % divisor)
    for atom, c in inner.terms:
        taken = abs(c) // divisor * (1 if c > 0 else -1)
        whole += Affine(((atom, taken),)) if taken else 0
        rest += Affine(((atom, c - taken * divisor),)) if c != taken * divisor else 0
    lo, hi = rest.bounds(ranges)
    if lo // divisor == (hi - 1) // divisor:
        return whole + lo // divisor
    common = gcd(divisor, *(c for _, c in rest.terms))
    if common > 1:
        return whole + _floor(_divided(rest, common), divisor // common, ranges)
    if divisor == 1:
        return whole + rest
    if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Floor) and rest.terms[0][1] == 1:
        nested = rest.terms[0][0]
        return whole + _floor(nested.inner + rest.const * nested.divisor, divisor * nested.divisor, ranges)
    return whole + (_without_small_terms(rest, divisor, ranges) or Affine(((Floor(rest, divisor), 1),)))


def _divided(expr: Affine, by: int) -> Affine:
    return Affine(tuple((atom, c // by) for atom, c in expr.terms), expr.const // by)


def _without_small_terms(rest: Affine, divisor: int, ranges: Ranges) -> Affine | None:
    """floor((g*A + b) / (g*d)) = floor((A + k) / d) when k*g <= b < (k+1)*g everywhere; None when no such g exists."""
    for g in sorted({gcd(c, divisor) for _, c in rest.terms} - {1}, reverse=True):
        small = Affine(tuple(term for term in rest.terms if term[1] % g), rest.const)
        lo, hi = small.bounds(ranges)
        if lo // g == (hi - 1) // g:
            large = Affine(tuple((atom, c // g) for atom, c in rest.terms if c % g == 0), lo // g)
            return _floor(large, divisor // g, ranges)
    return None


def floors(exprs: Iterable[Affine]) -> Iterator[Floor]:
    """All floors, nested ones after their parents."""
    for expr in exprs:
        for atom, _ in expr.terms:
            if isinstance(atom, Floor):
                yield atom
                yield from floors([atom.inner])


def rescale(expr: Affine, divisors: Mapping[str, int]) -> Affine:
    """Divide the coefficients of the given dimensions, inside floors too; divisor 0 removes the dimension."""
    result = Affine((), expr.const)
    for atom, c in expr.terms:
        if isinstance(atom, Floor):
            result += Affine(((Floor(rescale(atom.inner, divisors), atom.divisor), 1),)) * c
        elif divisors.get(atom, 1):
            result += Affine(((atom, c // divisors.get(atom, 1)),))
    return result


def column(dim: str, places: Iterable[Affine]) -> tuple[int, ...]:
    """Coefficient of a dimension at each place (a row, a bound, the inside of a floor)."""
    return tuple(place.coefficient(dim) for place in places)


def primitive(vector: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """A non-zero vector as (primitive vector with positive leading entry, factor)."""
    factor = gcd(*vector)
    if next(c for c in vector if c) < 0:
        factor = -factor
    return tuple(c // factor for c in vector), factor
