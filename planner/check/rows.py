"""What index expressions and conditions say wherever some dimensions are."""

from __future__ import annotations

from collections.abc import Iterable

from ...expr import Affine, Bound


def alone(row: Affine) -> str:
    """The dimension that a row is by itself; nothing for other rows."""
    found = [str(name) for name, factor in row.terms if row.is_affine and factor == 1]
    return found[0] if len(found) == len(row.terms) == 1 and not row.const else ""


def names(rows: Iterable[Affine]) -> set[str]:
    return {name for row in rows for name in row.dims}


def always(bounds: Iterable[Bound], ends: dict[str, int], dims: set[str]) -> bool:
    """Wherever these dimensions are within their ends, all others at 0."""
    for bound in bounds:
        if not bound.expr.is_affine:
            return False
        most = [factor * (ends[str(name)] - 1) for name, factor in bound.expr.terms if name in dims]
        low, high = (bound.expr.const + sum(end for end in most if (end > 0) == up) for up in (False, True))
        if (bound.lo is not None and bound.lo > low) or (bound.hi is not None and bound.hi <= high):
            return False
    return True
