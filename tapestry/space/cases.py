"""Problems over index sets, and how one is taken apart into others: by the digits under a floor, by the steps of a
table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from ..expr.conditions import unwrapped
from ..expr.index import Affine, Bound, Floor, Table
from ..expr.simplify import Ranges, simplify_index
from .intset import IntSet
from .runs import add, clip_linear, digits, piece_count, scale

Sets = Mapping[str, IntSet]
Rows = tuple[Affine, ...]
Bounds = tuple[Bound, ...]


@dataclass(frozen=True)
class Problem:
    """Rows over dimensions that range over sets, where all bounds hold."""

    rows: Rows
    bounds: Bounds
    sets: Sets

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {name: (values.lo, values.hi) for name, values in self.sets.items()}

    @property
    def outer(self) -> list[Affine]:
        """Rows and conditions."""
        return [*self.rows, *(bound.expr for bound in self.bounds)]

    @property
    def floors(self) -> dict[Floor, None]:
        """The distinct floors, in order of appearance."""
        return dict.fromkeys(floor for expr in self.outer for floor in expr.floors)

    @property
    def tables(self) -> dict[Table, None]:
        """The distinct tables, in order of appearance."""
        return dict.fromkeys(table for expr in self.outer for table in expr.tables)

    @property
    def places(self) -> list[Affine]:
        """Every linear form: rows, conditions, insides of floors and tables."""
        return [*self.outer, *dict.fromkeys(atom.inner for expr in self.outer for atom in expr.compound)]

    def clipped(self, name: str, values: IntSet) -> Problem:
        """The problem where a dimension has one of these values."""
        return Problem(self.rows, self.bounds, {**self.sets, name: values})

    def fixed(self, table: Table, value: int, *more: Bound) -> Problem:
        """The problem where a table has this value and further conditions hold."""
        rows = tuple(row.fixed(table, value) for row in self.rows)
        bounds = tuple(Bound(bound.expr.fixed(table, value), bound.lo, bound.hi) for bound in self.bounds)
        return Problem(rows, (*more, *bounds), self.sets)

    def substituted(self, name: str, value: Affine, sets: Sets) -> Problem:
        rows = tuple(row.substitute({name: value}) for row in self.rows)
        bounds = tuple(bound.substitute({name: value}) for bound in self.bounds)
        return Problem(rows, bounds, {**{n: s for n, s in self.sets.items() if n != name}, **sets})


@dataclass
class Cases:
    """A problem as the union of others; those of `digit_cases` and `table_cases` have no point in common."""

    problems: list[Problem]
    exact: bool = True


def clip_bounds(bounds: Iterable[Bound], sets: Sets) -> tuple[Bounds, dict[str, IntSet]] | None:
    """Apply conditions on one dimension to its set and drop those that always hold; None when nothing is left."""
    if not all(sets.values()):
        return None
    ranges, sets = {name: (values.lo, values.hi) for name, values in sets.items()}, dict(sets)
    kept: list[Bound] = []
    for bound in _simple(bounds, ranges):
        expr, verdict = bound.expr, bound.decided(ranges)
        if verdict is False:
            return None
        if verdict is True:
            continue
        if len(expr.terms) == 1 and isinstance(expr.terms[0][0], str):
            name, factor = expr.terms[0][0], expr.terms[0][1]
            sets[name] = clip_linear(sets[name], factor, expr.const, bound.lo, bound.hi)
        else:
            kept.append(bound)
    return (tuple(kept), sets) if all(sets.values()) else None


def _simple(bounds: Iterable[Bound], ranges: Ranges) -> Iterator[Bound]:
    """Conditions simplified over a box, said of what is inside of their tables where that says it all."""
    for bound in bounds:
        simple = Bound(simplify_index(bound.expr, ranges), bound.lo, bound.hi)
        parts = unwrapped(simple)
        yield from (simple,) if parts == (simple,) else _simple(parts, ranges)


def connected(members: Sequence[Iterable[str]]) -> list[list[int]]:
    """Group positions that share a name, directly or through others; in order of first position.

    >>> connected([["a"], ["b"], ["c", "a"], []])
    [[0, 2], [1], [3]]
    """
    groups: list[tuple[set[str], list[int]]] = []
    for k, names in enumerate(members):
        mine, positions = set(names), [k]
        for group in [group for group in groups if group[0] & mine]:
            groups.remove(group)
            mine |= group[0]
            positions = group[1] + positions
        groups.append((mine, sorted(positions)))
    return sorted(positions for _, positions in groups)


def merge(problem: Problem) -> tuple[Problem, bool]:
    """Make one dimension of those whose columns are parallel: they occur through one linear combination only.

    False: the sums are a superset.
    """
    places = problem.places
    groups: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for name in problem.sets:
        direction, factor = _primitive(tuple(place.coefficient(name) for place in places))
        groups.setdefault(direction, []).append((name, factor))
    divisors: dict[str, int] = {}
    sets, exact = dict(problem.sets), True
    for group in groups.values():
        if len(group) < 2:
            continue
        (first, factor), *others = group
        total = scale(sets[first], factor)
        for name, other in others:
            total, good = add(total, scale(sets.pop(name), other))
            exact = exact and good
        sets[first] = total
        divisors |= {first: factor, **{name: 0 for name, _ in others}}
    if not divisors:
        return problem, True
    rows = tuple(row.rescaled(divisors) for row in problem.rows)
    bounds = tuple(Bound(bound.expr.rescaled(divisors), bound.lo, bound.hi) for bound in problem.bounds)
    return Problem(rows, bounds, sets), exact


def _primitive(vector: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """A non-zero vector as (primitive vector with positive leading entry, factor)."""
    factor = gcd(*vector)
    if next(c for c in vector if c) < 0:
        factor = -factor
    return tuple(c // factor for c in vector), factor


def split(problem: Problem, limit: int) -> Cases | None:
    """Replace x under floor((a*x + b) / c) by quotient and remainder, one case for each product of digits."""
    for floor in sorted(problem.floors, key=lambda f: (-f.divisor, str(f))):
        if len(floor.inner.terms) == 1 and isinstance(floor.inner.terms[0][0], str):
            cases = digit_cases(problem, floor, limit)
            if cases is not None:
                return cases
    return None


def digit_cases(problem: Problem, floor: Floor, limit: int) -> Cases | None:
    """x under one floor((a*x + b) / c) as quotient and remainder, a case for each product of digits.

    None when these are more than ``limit``.
    """
    ((name, factor),) = floor.inner.terms
    assert isinstance(name, str)
    base, values, sign = floor.divisor, problem.sets[name], 1
    if factor < 0:
        values, sign, factor = scale(values, -1), -1, -factor
    offset = floor.inner.const if factor == 1 else 0
    if piece_count(values, base) > limit:
        return None
    pieces = digits(values.shift(offset), base)
    if factor > 1:  # remainders on which floor((a*m + b) / c) is constant
        const = floor.inner.const
        steps = [k * base - const for k in range(const // base, (factor * (base - 1) + const) // base + 1)]
        pieces = [(q, clip_linear(m, factor, 0, k, k + base)) for q, m in pieces for k in steps]
        pieces = [(q, m) for q, m in pieces if m]
    if len(pieces) > limit:
        return None
    quotient, remainder = f"{name}/", f"{name}%"
    value = (Affine.dim(quotient) * base + Affine.dim(remainder) - offset) * sign
    return Cases([problem.substituted(name, value, {quotient: q, remainder: m}) for q, m in pieces])


def table_cases(problem: Problem, limit: int) -> Cases | None:
    """One case for each step of a table; None where there is no table of at most ``limit`` steps.

    A table at one dimension is taken first, a case for each of its values.
    """
    ranges = problem.ranges
    for table in sorted(problem.tables, key=lambda table: len(table.inner.dims)):
        terms = table.inner.terms
        if len(terms) == 1 and isinstance(terms[0][0], str):
            parts = _by_value(table, terms[0][1], problem.sets[terms[0][0]])
            if len(parts) <= limit:
                return Cases([problem.fixed(table, value).clipped(terms[0][0], part) for value, part in parts])
            continue
        least, end = table.inner.bounds(ranges)
        met = [step for step in table.runs if (step[0] or least) < end and (step[1] is None or least < step[1])]
        fewest = min(problem.sets[name].size for name in table.inner.dims)
        if len(met) <= min(limit, max(2, fewest)):  # else it is less to list a dimension
            return Cases([problem.fixed(table, value, Bound(table.inner, lo, hi)) for lo, hi, value in met])
    return None


def _by_value(table: Table, factor: int, values: IntSet) -> list[tuple[int, IntSet]]:
    """The values of a table at one dimension, each with the places where it has it."""
    found: dict[int, list[range]] = {}
    if values.size <= len(table.values):
        for x in values:
            found.setdefault(table.value(factor * x + table.inner.const), []).append(range(x, x + 1))
        return [(value, IntSet.of(*runs)) for value, runs in found.items()]
    for lo, hi, value in table.runs:
        part = clip_linear(values, factor, table.inner.const, lo, hi)
        if part:
            found.setdefault(value, []).extend(part.runs)
    return [(value, IntSet.of(*runs)) for value, runs in found.items()]
