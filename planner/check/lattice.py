"""What is too large to list: the same questions asked of isl, with texts of our own, in counted work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...expr import Affine, Bound, Table
from .budget import Exhausted
from .cells import Form, Runs

WORK = "index projections of many points"
OPERATIONS = 4_000_000  # isl's own unit of work, for one question

Projection = tuple[Sequence[str], Sequence[Affine], Sequence[Bound]]
"""Dimensions, index rows and conditions."""


def reaches(projections: Iterable[Projection], points: Form, claimed: Form, exact: bool) -> bool:
    """Whether the projections of the points make up the claimed set, or at most that, where it is not exact."""
    with _counted() as (isl, context):
        found = isl.Set(_tuples(len(claimed.tiles[0]), Form(()), "t"), context) if claimed.tiles else None
        for names, rows, conditions in projections:
            chosen = isl.Set(_tuples(len(names), points, "d"), context)
            image = chosen.apply(isl.Map(_map(names, rows, conditions), context))
            found = image if found is None else found.union(image)
        if found is None or not claimed.tiles:
            return found is None or bool(found.is_empty())
        there = isl.Set(_tuples(len(claimed.tiles[0]), claimed, "t"), context)
        return bool(found.is_equal(there)) if exact else bool(found.is_subset(there))


def points_within(names: Sequence[str], conditions: Sequence[Bound], points: Form) -> int:
    """How many points satisfy the conditions."""
    with _counted() as (isl, context):
        chosen = isl.Set(_tuples(len(names), points, "d"), context)
        within = isl.Set(f"{{ [{_names(len(names), 'd')}] : {_conditions(names, conditions)} }}", context)
        count = chosen.intersect(within).count_val().to_str()
    if count is None:
        raise Exhausted(WORK)
    return int(count)


@cache
def _isl() -> tuple[Any, Any]:
    import islpy

    return islpy, islpy.Context()


@contextmanager
def _counted() -> Iterator[tuple[Any, Any]]:
    """isl, stopped after so much work: Exhausted then."""
    isl, context = _isl()
    context.reset_operations()
    context.set_max_operations(OPERATIONS)
    try:
        yield isl, context
    except isl.Error as error:
        if "maximal number of operations" in str(error):
            raise Exhausted(WORK) from None
        raise
    finally:
        context.set_max_operations(0)


def _names(count: int, letter: str) -> str:
    return ", ".join(f"{letter}{k}" for k in range(count))


def _tuples(ndim: int, form: Form, letter: str) -> str:
    """A set of tuples as isl reads it."""
    names = _names(ndim, letter)
    tiles = (" and ".join(_axis(f"{letter}{k}", runs) for k, runs in enumerate(tile)) or "true" for tile in form.tiles)
    return f"{{ [{names}] : {' or '.join(f'({tile})' for tile in tiles) or 'false'} }}"


def _axis(name: str, runs: Runs) -> str:
    parts = []
    for run in runs:
        step = f" and ({name} - {run.start}) mod {run.step} = 0" if run.step > 1 else ""
        parts.append(f"({run.start} <= {name} < {run.stop}{step})")
    return f"({' or '.join(parts) or 'false'})"


def _map(names: Sequence[str], rows: Sequence[Affine], conditions: Sequence[Bound]) -> str:
    image = ", ".join(_text(row, names) for row in rows)
    return f"{{ [{_names(len(names), 'd')}] -> [{image}] : {_conditions(names, conditions)} }}"


def _conditions(names: Sequence[str], conditions: Sequence[Bound]) -> str:
    parts = []
    for bound in conditions:
        expr = _text(bound.expr, names)
        parts += [] if bound.lo is None else [f"{bound.lo} <= {expr}"]
        parts += [] if bound.hi is None else [f"{expr} < {bound.hi}"]
    return " and ".join(parts) or "true"


def _text(expr: Affine, names: Sequence[str]) -> str:
    parts = [str(expr.const)]
    for atom, factor in expr.terms:
        if isinstance(atom, Table):  # of more steps than are told apart
            raise Exhausted(WORK)
        inner = (
            f"d{names.index(atom)}" if isinstance(atom, str) else f"floor(({_text(atom.inner, names)})/{atom.divisor})"
        )
        parts.append(f"{factor}*{inner}")
    return " + ".join(parts)
