"""What index expressions and conditions say of all places along some dimensions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...expr import Affine, Bound


def single(row: Affine) -> str:
    """The dimension that a row is, nothing else."""
    (atom, factor), *more = row.terms or (("", 0),)
    return atom if isinstance(atom, str) and factor == 1 and not more and not row.const else ""


def dims_of(*rows: Affine) -> set[str]:
    return {name for row in rows for name in row.dims}


def holds(bounds: Sequence[Bound], extents: Mapping[str, int], spread: Collection[str]) -> bool:
    """Conditions hold at any place along some dimensions, the others at 0."""
    for bound in bounds:
        if not bound.expr.is_affine:
            return False
        ends = [factor * (extents[str(name)] - 1) for name, factor in bound.expr.terms if name in spread]
        least, most = (bound.expr.const + sum(pick(0, end) for end in ends) for pick in (min, max))
        if (bound.lo is not None and least < bound.lo) or (bound.hi is not None and most >= bound.hi):
            return False
    return True


def span(rows: Sequence[Affine], extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """The box from zero each of whose elements is the image of as many points; None where there is no such.

    Each row counts its axis through, digit by digit, and no dimension is in two rows.
    """
    used: list[str] = []
    found: list[int] = []
    for row in rows:
        digits = sorted((factor, str(name)) for name, factor in row.terms if row.is_affine and extents[str(name)] > 1)
        used += [name for _, name in digits]
        base = 1
        for factor, name in digits:
            if factor != base:
                return None
            base *= extents[name]
        if not row.is_affine or row.const:
            return None
        found.append(base)
    return tuple(found) if len(set(used)) == len(used) else None
