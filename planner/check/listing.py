"""Points listed: what rows reach and how many points satisfy conditions, value by value, as far as that is few.

Of a dimension that stands under equal floors alone, the values of a floor are told apart and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ...expr import Affine, Bound, Table
from .cells import Runs, Spend, Tile, last, length

Classes = list[tuple[int, int]]
"""Intervals of the values of a dimension, in order."""

LISTED = 1 << 18  # points of dimensions that rows or conditions share, and are listed
LOOKED_UP = 1 << 22  # the same where conditions look up tables, of which isl knows nothing
LARGEST = 1 << 61  # of values that are computed in 64 bits
WORK = "listing the points of index projections"


class TooMany(Exception):
    """More points than are listed."""


def names_in(expr: Affine) -> set[str]:
    found: set[str] = set()
    for atom, _ in expr.terms:
        found |= {atom} if isinstance(atom, str) else names_in(atom.inner)
    return found


def listed(
    exprs: Sequence[Affine], conditions: Sequence[Bound], dims: Mapping[str, Runs], spend: Spend
) -> Iterable[Tile]:
    """What rows reach where conditions hold, class by class.

    A row that is a dimension by itself reaches all of a class, where conditions have it under equal floors alone.
    """
    fits(dims, exprs, conditions)
    limits = [bound.expr for bound in conditions]
    alone = {k: str(row.terms[0][0]) for k, row in enumerate(exprs) if _single(row, exprs) and _stepped(row, limits)}
    rest = [row for k, row in enumerate(exprs) if k not in alone]
    classes = _classes(dims, [*rest, *limits], spend)
    values = _along(classes, lambda _, ends: ends[0])
    held = inside(conditions, values)
    if not held.any():
        return ()
    places = _along(classes, lambda at, _: at)
    rows = [places[alone[k]] if k in alone else evaluated(expr, values) for k, expr in enumerate(exprs)]
    columns = [np.broadcast_to(row, held.shape)[held] for row in rows]
    if not columns:
        return ((),)
    tiles = _tiled(np.unique(np.stack(columns, axis=1), axis=0).tolist())
    own = {k: (classes[name], exprs[k].const) for k, name in alone.items()}
    return [tuple(_widened(runs, *own[k]) if k in own else runs for k, runs in enumerate(tile)) for tile in tiles]


def _single(row: Affine, rows: Sequence[Affine]) -> bool:
    """A row of one dimension by itself, in no other row."""
    if len(row.terms) != 1 or row.terms[0][1] != 1 or not isinstance(row.terms[0][0], str):
        return False
    return sum(row.terms[0][0] in names_in(other) for other in rows) == 1


def _stepped(row: Affine, limits: Sequence[Affine]) -> bool:
    """Conditions have the dimension of a row under floors, none of them by itself."""
    return min((step for expr in limits for step in _divisors(str(row.terms[0][0]), expr)), default=1) > 1


def _widened(runs: Runs, classes: Classes, const: int) -> Runs:
    """All values of classes that are given by number."""
    found: list[range] = []
    for lo, hi in sorted(classes[number] for run in runs for number in run):
        if found and found[-1].stop == lo + const:
            found[-1] = range(found[-1].start, hi + const)
        else:
            found.append(range(lo + const, hi + const))
    return tuple(found)


def _classes(dims: Mapping[str, Runs], exprs: Sequence[Affine], spend: Spend) -> dict[str, Classes]:
    """Per dimension the intervals within which no expression tells its values apart: those under equal floors, where it
    stands under such alone; else each value. TooMany where there are more points of these than are listed."""
    found: dict[str, Classes] = {}
    for name, runs in dims.items():
        steps = {step for expr in exprs for step in _divisors(name, expr)}
        step = next(iter(steps)) if len(steps) == 1 and all(run.step == 1 for run in runs) else 1
        found[name] = [
            (max(run.start, at), min(last(run) + 1, at + step))
            for run in runs
            for at in (range(run.start // step * step, run.stop, step) if step > 1 else run)
        ]
    size = prod(map(len, found.values()))
    tables = any(isinstance(atom, Table) for expr in exprs for atom, _ in expr.terms)
    if size > (LOOKED_UP if tables else LISTED):
        raise TooMany
    spend(size >> 3, WORK)
    return found


def _along(classes: Mapping[str, Classes], part: Callable[[int, tuple[int, int]], int]) -> dict[str, Any]:
    """A number for each class of each dimension, along an axis of its own."""
    return {
        name: np.array([part(at, ends) for at, ends in enumerate(mine)], dtype=np.int64).reshape(
            [-1 if axis == k else 1 for axis in range(len(classes))]
        )
        for k, (name, mine) in enumerate(classes.items())
    }


def satisfying(conditions: Sequence[Bound], dims: Mapping[str, Runs], spend: Spend) -> int:
    """How many points satisfy the conditions."""
    fits(dims, (), conditions)
    classes = _classes(dims, [bound.expr for bound in conditions], spend)
    total = inside(conditions, _along(classes, lambda _, ends: ends[0])).astype(np.int64)
    for sizes in _along(classes, lambda _, ends: ends[1] - ends[0]).values():
        total = total * sizes
    return int(total.sum())


def fits(dims: Mapping[str, Runs], exprs: Iterable[Affine], conditions: Iterable[Bound]) -> None:
    """TooMany where 64 bits might not hold a value that is computed on the way."""
    furthest = {name: max(max(abs(run.start), abs(last(run))) for run in runs) for name, runs in dims.items()}
    limits = (abs(limit) for bound in conditions for limit in (bound.lo, bound.hi) if limit is not None)
    values = (_furthest(expr, furthest) for expr in (*exprs, *(bound.expr for bound in conditions)))
    if max(chain(limits, values), default=0) > LARGEST:
        raise TooMany


def values_of(dims: Mapping[str, Runs], spend: Spend) -> dict[str, Any]:
    """Per dimension its values, along an axis of their own."""
    size = prod(map(length, dims.values()))
    if size > LISTED:
        raise TooMany
    spend(size >> 3, WORK)
    return {
        name: np.array([*chain(*runs)], dtype=np.int64).reshape([-1 if axis == k else 1 for axis in range(len(dims))])
        for k, (name, runs) in enumerate(dims.items())
    }


def _divisors(name: str, expr: Affine) -> Iterator[int]:
    """By what a dimension is divided wherever it stands; 1 where it stands alone or with others."""
    for atom, _ in expr.terms:
        if isinstance(atom, str):
            yield from [1] if atom == name else []
        elif not isinstance(atom, Table) and atom.inner.terms == ((name, 1),) and not atom.inner.const:
            yield atom.divisor
        else:
            yield from _divisors(name, atom.inner)


def _furthest(expr: Affine, dims: Mapping[str, int]) -> int:
    """No part of the expression is further from zero than that."""
    total = abs(expr.const)
    for atom, factor in expr.terms:
        size = dims[atom] if isinstance(atom, str) else _furthest(atom.inner, dims)
        size = max(size, *map(abs, atom.values), len(atom.values)) if isinstance(atom, Table) else size
        total += size * abs(factor)
    return total


def evaluated(expr: Affine, values: Mapping[str, Any]) -> Any:
    """An expression of dimensions that are integers or arrays of them."""
    total: Any = expr.const
    for atom, factor in expr.terms:
        if isinstance(atom, str):
            value = values[atom]
        elif isinstance(atom, Table):
            places = np.clip(evaluated(atom.inner, values), 0, len(atom.values) - 1)
            value = np.array(atom.values, dtype=np.int64)[places]
        else:
            value = evaluated(atom.inner, values) // atom.divisor
        total = total + factor * value
    return total


def inside(conditions: Iterable[Bound], values: Mapping[str, Any]) -> Any:
    """Where all conditions hold, over all dimensions."""
    inside = np.ones(np.broadcast_shapes(*(value.shape for value in values.values())), dtype=bool)
    for bound in conditions:
        value = evaluated(bound.expr, values)
        inside &= True if bound.lo is None else value >= bound.lo
        inside &= True if bound.hi is None else value < bound.hi
    return inside


def _tiled(tuples: Iterable[Sequence[int]]) -> list[Tile]:
    """Tuples in ascending order as tiles: those that go on alike are taken together."""
    goes_on: dict[tuple[int, ...], list[int]] = {}
    for point in tuples:
        goes_on.setdefault(tuple(point[:-1]), []).append(point[-1])
    if list(goes_on) == [()]:
        return [(runs_of(goes_on[()]),)]
    alike: dict[Runs, list[tuple[int, ...]]] = {}
    for before, values in goes_on.items():
        alike.setdefault(runs_of(values), []).append(before)
    return [(*tile, runs) for runs, before in alike.items() for tile in _tiled(before)]


def runs_of(values: Sequence[int]) -> Runs:
    """Ascending values as runs.

    >>> runs_of([0, 1, 2, 5, 7, 9])
    (range(0, 3), range(5, 10, 2))
    """
    found, k = [], 0
    while k < len(values):
        step = values[k + 1] - values[k] if k + 1 < len(values) else 1
        end = k + 1
        while end < len(values) and values[end] - values[end - 1] == step:
            end += 1
        if end - k == 2 and step > 1:
            step, end = 1, k + 1
        found.append(range(values[k], values[end - 1] + 1, step))
        k = end
    return tuple(found)
