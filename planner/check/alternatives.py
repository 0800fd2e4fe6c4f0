"""Conditions with tables in them as cases without: each point that satisfies the conditions is in exactly one case.

A table has a constant value on each of its steps, so a case is a step of each table. Written again for the second
engine: the first one's are in `tapestry.space.cases`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ...expr import Affine, Bound, Table
from .listing import names_in

Rows = tuple[Affine, ...]
Case = tuple[Rows, tuple[Bound, ...]]
MOST = 256  # cases; where there are more, tables are evaluated point by point


def cases(rows: Sequence[Affine], conditions: Sequence[Bound]) -> list[Case]:
    """Rows and conditions, once for each combination of steps; as they are where these are more than `MOST`."""
    left: list[Case] = [(tuple(rows), tuple(conditions))]
    done: list[Case] = []
    while left:
        mine = left.pop()
        table = _first_table([*mine[0], *(bound.expr for bound in mine[1])])
        if table is None:
            done.append(mine)
            continue
        left += [case for step in _steps(table) if (case := _at(mine, table, *step)) is not None]
        if len(left) + len(done) > MOST:
            return [(tuple(rows), tuple(conditions))]
    return done


def _first_table(exprs: Sequence[Affine]) -> Table | None:
    """A table whose index has none to tell apart in it. Tables of several axes are looked up point by point."""
    for expr in exprs:
        for atom, _ in expr.terms:
            if isinstance(atom, str):
                continue
            found = _first_table([atom.inner])
            if found is not None:
                return found
            if isinstance(atom, Table) and (len(names_in(atom.inner)) == 1 or len(_steps(atom)) <= 2):
                return atom
    return None


def _steps(table: Table) -> list[tuple[int | None, int | None, int]]:
    found: list[tuple[int | None, int | None, int]] = []
    at = 0
    for value, group in groupby(table.values):
        end = at + len(list(group))
        found.append((at if at else None, end if end < len(table.values) else None, value))
        at = end
    return found


def _at(case: Case, table: Table, lo: int | None, end: int | None, value: int) -> Case | None:
    """The case where a table has one of its values; None where a condition then fails whatever the indices are."""
    rows, conditions = case
    kept = [Bound(table.inner, lo, end)]
    for bound in conditions:
        expr = _with(bound.expr, table, value)
        if expr.terms:
            kept.append(Bound(expr, bound.lo, bound.hi))
        elif (bound.lo is not None and expr.const < bound.lo) or (bound.hi is not None and expr.const >= bound.hi):
            return None
    return tuple(_with(row, table, value) for row in rows), tuple(kept)


def _with(expr: Affine, table: Table, value: int) -> Affine:
    """An expression in which a table has a value."""
    total: dict[object, int] = {}
    const = expr.const
    for atom, factor in expr.terms:
        if atom == table:
            const += factor * value
            continue
        if not isinstance(atom, str):
            inner = _with(atom.inner, table, value)
            if isinstance(atom, Table) and not inner.terms:
                const += factor * atom.values[max(0, min(inner.const, len(atom.values) - 1))]
                continue
            if not isinstance(atom, Table) and not inner.terms:
                const += factor * (inner.const // atom.divisor)
                continue
            atom = type(atom)(inner, atom.values if isinstance(atom, Table) else atom.divisor)  # type: ignore[arg-type]
        total[atom] = total.get(atom, 0) + factor
    return Affine(tuple((atom, factor) for atom, factor in total.items() if factor), const)  # type: ignore[misc]
