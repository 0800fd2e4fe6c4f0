"""The second engine for index projections: which tuples do index rows reach, and how many points satisfy conditions?

Rows and conditions that share no dimension are independent. A row over one dimension scales its runs; sums whose gaps
fill are runs again; everything else is listed value by value, and past `LISTED` asked of isl. It shares no code with
`tapestry.space`, and reads of `tapestry.expr` only what an expression is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod

import numpy as np

from ...expr import Affine, Bound
from .between import points_between
from .cells import Form, Runs, Spend, Tile, last, length
from .listing import evaluated, fits, listed, names_in, satisfying, values_of


@dataclass(frozen=True)
class Group:
    """Rows (by position) and conditions over dimensions (by axis) that no others use."""

    rows: tuple[int, ...]
    exprs: tuple[Affine, ...]
    conditions: tuple[Bound, ...]
    dims: tuple[str, ...]
    axes: tuple[int, ...]


def groups(names: Sequence[str], rows: Sequence[Affine], conditions: Sequence[Bound]) -> tuple[Group, ...]:
    """All of them; a dimension that nothing uses is a group of its own, which has points or not."""
    place = {name: k for k, name in enumerate(names)}
    parts: list[tuple[set[str], list[int]]] = [({name}, []) for name in names]
    for k, expr in enumerate([*rows, *(bound.expr for bound in conditions)]):
        mine = names_in(expr)
        touching = [part for part in parts if part[0] & mine]
        joined = mine.union(*(dims for dims, _ in touching)), [k, *chain(*(at for _, at in touching))]
        parts = [*(part for part in parts if not part[0] & mine), joined]
    found = []
    for dims, at in parts:
        mine_rows = tuple(k for k in sorted(at) if k < len(rows))
        bounds = tuple(conditions[k - len(rows)] for k in sorted(at) if k >= len(rows))
        used = tuple(sorted(dims, key=place.__getitem__))
        found.append(Group(mine_rows, tuple(rows[k] for k in mine_rows), bounds, used, tuple(place[n] for n in used)))
    return tuple(found)


def difference(one: Affine, other: Affine) -> Affine:
    """One row without the other, term by term.

    >>> str(difference(Affine((("i", 2),), 1), Affine((("i", 2), ("j", 1)))))
    '-j + 1'
    """
    total = dict(one.terms)
    for atom, factor in other.terms:
        total[atom] = total.get(atom, 0) - factor
    return Affine(tuple((atom, factor) for atom, factor in total.items() if factor), one.const - other.const)


class Reach:
    """Index rows over named dimensions where all conditions hold."""

    def __init__(self, names: Sequence[str], rows: Sequence[Affine], conditions: Sequence[Bound], spend: Spend) -> None:
        self.names, self.rows, self.conditions, self._spend = tuple(names), tuple(rows), tuple(conditions), spend
        self._groups = groups(names, rows, conditions)
        self._known: dict[tuple[int, Tile], tuple[Tile, ...]] = {}
        self._counted: dict[tuple[int, Tile], int] = {}

    def image(self, points: Form) -> Form:
        """The tuples that the rows reach from these points; tiles may overlap. TooMany where they are not listed."""
        return Form(tuple(chain.from_iterable(map(self._tiles, points.tiles))))

    def _tiles(self, tile: Tile) -> Iterator[Tile]:
        parts = []
        for k, group in enumerate(self._groups):
            mine = tuple(tile[axis] for axis in group.axes)
            if (k, mine) not in self._known:
                self._known[k, mine] = tuple(_reached(group, mine, self._spend))
            parts.append(self._known[k, mine])
        for choice in product(*parts):
            rows: list[Runs] = [()] * len(self.rows)
            for group, part in zip(self._groups, choice, strict=True):
                for row, runs in zip(group.rows, part, strict=True):
                    rows[row] = runs
            yield tuple(rows)

    def count(self, points: Form) -> int:
        """Points that satisfy the conditions. TooMany where they are not listed."""
        return sum(map(self._counts, points.tiles))

    def _counts(self, tile: Tile) -> int:
        found = 1
        for k, group in enumerate(self._groups):
            mine = tuple(tile[axis] for axis in group.axes)
            if (k, mine) not in self._counted:
                self._counted[k, mine] = _satisfying(group, mine, self._spend)
            found *= self._counted[k, mine]
        return found


def _reached(group: Group, sets: Tile, spend: Spend) -> Iterable[Tile]:
    """What the rows of a group reach: tiles of so many axes as it has rows."""
    used = set().union(*map(names_in, group.exprs))
    for k, name in enumerate(group.dims):
        if name not in used and len(sets[k]) > 1 and len(_touching(name, group.conditions)) > 1:
            parts = ((*sets[:k], (run,), *sets[k + 1 :]) for run in sets[k])
            return [tile for part in parts for tile in _reached(group, part, spend)]
    left = _narrowed(group, sets)
    if left is None:
        return ()
    dims, conditions = left
    if _without(used, dims, conditions):
        left = _narrowed(replace(group, conditions=tuple(conditions), dims=tuple(dims)), tuple(dims.values()))
        if left is None:
            return ()
        dims, conditions = left
    if not conditions and not group.rows:
        return ((),)
    if not conditions and len(group.rows) == 1:
        summed = _summed(group.exprs[0], dims)
        if summed is not None:
            return ((summed,),)
    return listed(group.exprs, conditions, dims, spend)


def _narrowed(group: Group, sets: Tile) -> tuple[dict[str, Runs], list[Bound]] | None:
    """The dimensions after conditions on one of them, and the other conditions; None where nothing is left."""
    dims, others = dict(zip(group.dims, sets, strict=True)), []
    for bound in group.conditions:
        expr = bound.expr
        if len(expr.terms) == 1 and isinstance(expr.terms[0][0], str):
            name, factor = expr.terms[0][0], expr.terms[0][1]
            dims[name] = clipped(dims[name], factor, expr.const, bound.lo, bound.hi)
        elif expr.terms:
            others.append(bound)
        elif (bound.lo is not None and expr.const < bound.lo) or (bound.hi is not None and expr.const >= bound.hi):
            return None
    return (dims, others) if all(dims.values()) else None


def clipped(runs: Runs, factor: int, const: int, lo: int | None, hi: int | None) -> Runs:
    """The values v with lo <= factor * v + const < hi.

    >>> clipped((range(0, 10),), -2, 5, 0, None)
    (range(0, 3),)
    """
    top = None if hi is None else hi - 1
    if factor < 0:
        factor, const, lo, top = -factor, -const, None if top is None else -top, None if lo is None else -lo
    least = None if lo is None else -((const - lo) // factor)
    found = []
    for run in runs:
        start = run.start if least is None else run.start + max(0, -((run.start - least) // run.step)) * run.step
        stop = run.stop if top is None else min(run.stop, (top - const) // factor + 1)
        found += [range(start, stop, run.step)] if start < stop else []
    return tuple(found)


def _without(used: set[str], dims: dict[str, Runs], conditions: list[Bound]) -> bool:
    """Drop dimensions that no row uses, where conditions on the others say whether one of their values is left."""
    before = len(dims)
    for name in sorted(dims.keys() - used):
        touching = _touching(name, conditions)
        left: list[Bound] | None = []
        if len(touching) == 1:
            told = _by_ends(touching[0], name, dims[name])
            left = None if told is None else [told]
        elif touching:
            left = _between_limits(touching, name, dims[name])
        if left is not None:
            conditions[:] = [*(bound for bound in conditions if bound not in touching), *left]
            del dims[name]
    return len(dims) < before


def _touching(name: str, conditions: Iterable[Bound]) -> list[Bound]:
    return [bound for bound in conditions if name in names_in(bound.expr)]


def _between_limits(bounds: Sequence[Bound], name: str, values: Runs) -> list[Bound] | None:
    """The conditions that some value of a dense dimension satisfies all of some: each lower limit is at most each upper
    one (Fourier and Motzkin; exact for whole numbers, as the dimension is counted once in each). None for others.
    """
    if len(values) > 1 or values[0].step > 1:
        return None
    lows, tops = [Affine((), values[0].start)], [Affine((), last(values[0]))]
    for bound in bounds:
        factor = dict(bound.expr.terms).get(name, 0)
        rest = Affine(tuple(term for term in bound.expr.terms if term[0] != name), bound.expr.const)
        if abs(factor) != 1 or name in names_in(rest):
            return None
        for limit, beyond in ((bound.lo, 0), (bound.hi, 1)):
            if limit is None:
                continue
            # factor * value + rest is at least lo and at most hi - 1; turned round where the factor is -1
            end = Affine((), limit - beyond)
            found = difference(end, rest) if factor > 0 else difference(rest, end)
            (lows if (factor > 0) == (beyond == 0) else tops).append(found)
    return [Bound(difference(top, low), 0, None) for low in lows for top in tops]


def _by_ends(bound: Bound, name: str, values: Runs) -> Bound | None:
    """The condition that some value of the dimension satisfies it; None where the ends of the values do not tell."""
    rest = Affine(tuple(term for term in bound.expr.terms if term[0] != name), bound.expr.const)
    factor = dict(bound.expr.terms).get(name, 0)
    if name in names_in(rest):
        return None
    ends = [factor * run.start for run in values] + [factor * last(run) for run in values]
    if bound.lo is not None and bound.hi is not None:
        if bound.hi <= bound.lo:
            return Bound(Affine(), 1, 1)
        if len(values) > 1 or values[0].step > 1 or abs(factor) > bound.hi - bound.lo:
            return None
    lo, hi = None if bound.lo is None else bound.lo - max(ends), None if bound.hi is None else bound.hi - min(ends)
    return Bound(rest, lo, hi)


def _summed(row: Affine, dims: Mapping[str, Runs]) -> Runs | None:
    """The values of a row: one dimension scaled, or a sum in which each fills the gaps of the next. None for others."""
    if any(not isinstance(atom, str) for atom, _ in row.terms):
        return None
    if len(row.terms) == 1:
        ((name, factor),) = row.terms
        return tuple(_scaled(run, factor, row.const) for run in dims[str(name)])
    if any(len(dims[str(name)]) != 1 for name, _ in row.terms):
        return None
    start, count, unit = row.const, 1, 1
    runs = (_scaled(dims[str(name)][0], factor, 0) for name, factor in row.terms)
    for run in sorted(runs, key=lambda run: run.step):
        size = length((run,))
        start += run.start
        if size > 1 and count == 1:
            unit = run.step
        elif size > 1 and (run.step % unit or run.step > unit * count):
            return None
        count += (run.step // unit) * (size - 1)
    return (range(start, start + (count - 1) * unit + 1, unit if count > 1 else 1),)


def _scaled(run: range, factor: int, const: int) -> range:
    size = length((run,))
    ends = (factor * run.start + const, factor * last(run) + const)
    return range(min(ends), max(ends) + 1, abs(factor) * run.step if size > 1 else 1)


def _satisfying(group: Group, sets: Tile, spend: Spend) -> int:
    """Points of the group's dimensions that satisfy its conditions."""
    left = _narrowed(group, sets)
    if left is None:
        return 0
    dims, conditions = left
    if not conditions:
        return prod(map(length, dims.values()))
    fits(dims, (), conditions)
    longest = max(dims, key=lambda name: length(dims[name]))
    found = points_between(longest, dims, conditions, spend)
    if found is not None:
        return found
    if length(dims[longest]) > 1 and _along(longest, dims, conditions):
        return _counted_along(longest, dims, conditions, spend)
    return satisfying(conditions, dims, spend)


def _along(name: str, dims: Mapping[str, Runs], conditions: Sequence[Bound]) -> bool:
    """All values of a dimension are dense and it is in no floor: what satisfies the conditions is an interval."""
    (run, *others) = dims[name]
    loose = all(
        isinstance(atom, str) or name not in names_in(atom.inner) for b in conditions for atom, _ in b.expr.terms
    )
    return loose and not others and run.step == 1


def _counted_along(name: str, dims: Mapping[str, Runs], conditions: Sequence[Bound], spend: Spend) -> int:
    """The other dimensions are listed, and of this one an interval is left for each of their points."""
    run, others = dims[name][0], {other: runs for other, runs in dims.items() if other != name}
    values = values_of(others, spend)
    least, most = np.int64(run.start), np.int64(run.stop - 1)
    inside = np.ones(np.broadcast_shapes(*(value.shape for value in values.values())), dtype=bool)
    for bound in conditions:
        factor = dict(bound.expr.terms).get(name, 0)
        rest = evaluated(Affine(tuple(t for t in bound.expr.terms if t[0] != name), bound.expr.const), values)
        lo, top = bound.lo, None if bound.hi is None else bound.hi - 1
        if factor < 0:
            factor, rest, lo, top = -factor, -rest, None if top is None else -top, None if lo is None else -lo
        if not factor:
            inside &= True if lo is None else rest >= lo
            inside &= True if top is None else rest <= top
            continue
        least = least if lo is None else np.maximum(least, -((rest - lo) // factor))
        most = most if top is None else np.minimum(most, (top - rest) // factor)
    return int((np.maximum(0, most - least + 1) * inside).sum())
