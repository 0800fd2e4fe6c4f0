"""The one place where points are counted. An answer is `Exact`, or a `Bound` that nothing may take for exact.

Boxes, grids and regions (disjoint by construction) are products and sums. A condition over two dimensions is counted in
closed form (lattice points under a line), whatever the extents. Floors are taken apart into digits and tables into
their steps, which have no point in common. Further dimensions are listed while that is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ..expr import index
from ..expr.index import Affine
from .cases import Problem, clip_bounds, connected, merge, split, table_cases
from .intset import IntSet, run_size
from .region import Box, Grid, Region
from .runs import flipped, scale

if TYPE_CHECKING:
    from .indexset import IndexSet

LIST_LIMIT = 4096  # points of the smaller dimensions that are listed before a bound is returned
ISL_LIMIT = 65536  # points of all dimensions but the longest that isl may list


@dataclass(frozen=True)
class Exact:
    """The number of points."""

    value: int
    exact: ClassVar[bool] = True


@dataclass(frozen=True)
class Bound:
    """An upper bound on the number of points."""

    value: int
    exact: ClassVar[bool] = False


Count = Exact | Bound


def total(counts: Iterable[Count]) -> Count:
    """The sum, exact where all terms are."""
    terms = list(counts)
    value = sum(term.value for term in terms)
    return Exact(value) if all(term.exact for term in terms) else Bound(value)


def product(counts: Iterable[Count]) -> Count:
    """The product, exact where all factors are, or where one is exactly zero."""
    factors = list(counts)
    value = prod(factor.value for factor in factors)
    return Exact(value) if value == 0 or all(factor.exact for factor in factors) else Bound(value)


def count(points: Box | Grid | Region | IndexSet) -> Count:
    """How many points: a product, a sum over disjoint grids, or isl's answer where it can be trusted.

    isl's ``count_val`` answers 0 for a set with parameters and lists all dimensions but one; so it is asked last, for
    sets without parameters (`IndexSet` has none) whose pieces have few points to list, and under a limit of work.
    """
    if isinstance(points, Box | Grid | Region):
        return Exact(points.size)
    region = points.region()
    return Exact(region.size) if region is not None else _count_by_isl(points)


def _count_by_isl(points: IndexSet) -> Count:
    from . import polyhedral

    hull = points.hull()
    listed = prod(sorted(hull.shape)[:-1]) <= ISL_LIMIT
    found = polyhedral.count_within(points.points) if listed else None
    # The set is not empty (an empty one is a region): anything below one is not an answer.
    return Exact(found) if found else Bound(hull.size)


@lru_cache(maxsize=65536)
def count_grid(names: tuple[str, ...], bounds: tuple[index.Bound, ...], grid: Grid) -> Count:
    """Points of ``grid`` (axes named ``names``) at which all ``bounds`` hold.

    >>> t, s = index.Affine.dim("t"), index.Affine.dim("s")
    >>> causal = index.Bound(s - t, None, 1)
    >>> square = Grid((IntSet.interval(0, 10**9), IntSet.interval(0, 10**9)))
    >>> count_grid(("t", "s"), (causal,), square)
    Exact(value=500000000500000000)
    """
    return _Counter(LIST_LIMIT).count(bounds, dict(zip(names, grid.axes, strict=True)))


class _Counter:
    """Counts with a budget of listed points."""

    def __init__(self, left: int) -> None:
        self.left = left

    def count(self, bounds: Sequence[index.Bound], sets: Mapping[str, IntSet]) -> Count:
        clipped = clip_bounds(bounds, sets)
        if clipped is None:
            return Exact(0)
        kept = _joined(clipped[0])
        groups = connected([[name] for name in sets] + [sorted(bound.expr.dims) for bound in kept])
        names = list(sets)
        parts = []
        for group in groups:
            mine = {names[k]: clipped[1][names[k]] for k in group if k < len(names)}
            parts.append(self._connected([kept[k - len(names)] for k in group if k >= len(names)], mine))
        return product(parts)

    def _connected(self, bounds: list[index.Bound], sets: dict[str, IntSet]) -> Count:
        size = prod(values.size for values in sets.values())
        if not bounds:
            return Exact(size)
        if len(bounds) == 1 and len(sets) == 2 and bounds[0].expr.is_affine:
            return Exact(_count_pairs(bounds[0], sets))
        problem = Problem((), tuple(bounds), sets)
        merged, exact = merge(problem)
        if merged != problem and exact and prod(values.size for values in merged.sets.values()) == size:
            return self.count(merged.bounds, merged.sets)
        cases = split(problem, self.left) or table_cases(problem, self.left)
        if cases is not None:
            self.left -= len(cases.problems)
            return total(self.count(case.bounds, case.sets) for case in cases.problems)
        name, values = min(sets.items(), key=lambda item: (item[1].size, item[0]))
        if values.size > self.left:
            return Bound(size)
        self.left -= values.size
        rest = {other: axis for other, axis in sets.items() if other != name}
        return total(self.count([bound.substitute({name: value}) for bound in bounds], rest) for value in values)


def _joined(bounds: Iterable[index.Bound]) -> list[index.Bound]:
    """One condition for those on the same expression up to sign and constant."""
    found: dict[Affine, tuple[int | None, int | None]] = {}
    for bound in bounds:
        bare = Affine(bound.expr.terms)
        lo = None if bound.lo is None else bound.lo - bound.expr.const
        hi = None if bound.hi is None else bound.hi - bound.expr.const
        if -bare in found:
            bare, (lo, hi) = -bare, flipped(lo, hi)
        old_lo, old_hi = found.get(bare, (None, None))
        lows, highs = [x for x in (lo, old_lo) if x is not None], [x for x in (hi, old_hi) if x is not None]
        found[bare] = (max(lows, default=None), min(highs, default=None))
    return [index.Bound(expr, lo, hi) for expr, (lo, hi) in found.items()]


def _count_pairs(bound: index.Bound, sets: Mapping[str, IntSet]) -> int:
    """Pairs (x, y) with lo <= a*x + b*y + const < hi."""
    (first, a), (second, b) = bound.expr.terms
    pairs = [(x, y) for x in scale(sets[str(first)], a).runs for y in scale(sets[str(second)], b).runs]
    const = bound.expr.const

    def below(limit: int) -> int:
        return sum(_pairs_below(x, y, limit - const) for x, y in pairs)

    most = sum(run_size(x) * run_size(y) for x, y in pairs) if bound.hi is None else below(bound.hi)
    least = 0 if bound.lo is None else below(bound.lo)
    return max(0, most - least)


def _pairs_below(x: range, y: range, limit: int) -> int:
    """Pairs of elements of two runs whose sum is below ``limit``: whole columns, then a sum of floors."""
    n, m, s, t = run_size(x), run_size(y), x.step, y.step
    top = limit - x.start - y.start - 1  # s*i + t*j <= top
    full = min(max((top - (m - 1) * t) // s + 1, 0), n)
    some = min(max(top // s + 1, 0), n)
    return full * m + floor_sum(some - full, t, s, top + t - s * (some - 1))


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Sum of floor((a*k + b) / m) for 0 <= k < n, with a, b >= 0 and m > 0, by Euclid's algorithm (no loop over k).

    >>> floor_sum(4, 3, 2, 1) == sum((2 * k + 1) // 3 for k in range(4))
    True
    """
    result = 0
    while n > 0:
        result += n * (n - 1) // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        n, b, m, a = (a * n + b) // m, (a * n + b) % m, a, m
    return result
