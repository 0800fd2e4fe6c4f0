"""Images of grids under quasi-affine rows: which integer tuples do index rows reach? Exact, or a hull that says so.

One solver serves reads, writes and accesses. It works until each row owns at most one dimension and no condition is
left:

    clip      a condition on one dimension clips its set
    merge     dimensions that occur only through one combination (p and r in 2*p + r) become one: their sums
    project   a dimension that no row uses is eliminated from the conditions
    split     x under floor(x / c) becomes c*q + m, on few products of quotients and remainders
    unravel   a table becomes its value, once for each of its steps; a row with a long one is looked up point by point
    tighten   conditions on several dimensions narrow each
    list      a small dimension that rows share is listed value by value

What is then left is taken row by row: a superset, labelled ``exact=False``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

from ..expr.index import Affine, Bound
from ..expr.simplify import simplify_index
from .cases import Bounds, Cases, Problem, Rows, Sets, clip_bounds, connected, merge, split, table_cases
from .intset import IntSet
from .region import Region
from .runs import RUN_LIMIT, add, clip_linear, flipped, scale, unscale

SPLIT_LIMIT = 64  # pieces that one floor may be split into
LIST_LIMIT = 16  # values of a shared dimension that are listed one by one
PIECE_LIMIT = 512  # pieces in all, per grid
POINT_LIMIT = 1 << 20  # points at which a row with tables is looked up one by one

Pieces = tuple[tuple[IntSet, ...], ...]


@dataclass(frozen=True)
class Image:
    """A set of elements. ``exact`` False: ``region`` is a superset (a hull), and must be counted as such."""

    region: Region
    exact: bool

    def __or__(self, other: Image) -> Image:
        return Image(self.region | other.region, self.exact and other.exact)


NOTHING = Image(Region(), True)


@dataclass
class _Answer:
    """Products of one set per row (they may overlap), and whether they are exact."""

    pieces: list[tuple[IntSet, ...]]
    exact: bool = True


class _Search:
    """The solver with its budget of pieces and whether any step so far took a superset."""

    def __init__(self) -> None:
        self.left = PIECE_LIMIT

    def solve(self, problem: Problem) -> _Answer:
        settled, exact = _settle(problem)
        if settled is None:
            return _Answer([])
        parts = _components(settled)
        if len(parts) == 1:
            answer = self._connected(settled)
        else:
            answer = _product(len(settled.rows), [(rows, self.solve(part)) for rows, part in parts])
        return _Answer(answer.pieces, answer.exact and exact)

    def _connected(self, problem: Problem) -> _Answer:
        if not problem.bounds and len(problem.rows) <= 1 and len(problem.sets) <= 1 and not _floored(problem):
            return _Answer([tuple(_single(row, problem.sets) for row in problem.rows)])
        listed = _looked_up(problem)
        if listed is not None:
            return listed
        for step in (_project, self._split, self._unravel, _tighten, self._list):
            cases = step(problem)
            if cases is not None:
                answers = [self.solve(case) for case in cases.problems]
                return _Answer([p for a in answers for p in a.pieces], cases.exact and all(a.exact for a in answers))
        return self._hull(problem)

    def _split(self, problem: Problem) -> Cases | None:
        return self._paid(split(problem, min(self.left, SPLIT_LIMIT)))

    def _unravel(self, problem: Problem) -> Cases | None:
        return self._paid(table_cases(problem, min(self.left, SPLIT_LIMIT)))

    def _paid(self, cases: Cases | None) -> Cases | None:
        self.left -= len(cases.problems) if cases else 0
        return cases

    def _list(self, problem: Problem) -> Cases | None:
        """One case for each value of the smallest dimension, where that is few."""
        name, values = min(problem.sets.items(), key=lambda item: (item[1].size, item[0]))
        if values.size > min(self.left, LIST_LIMIT):
            return None
        self.left -= values.size
        return Cases([problem.substituted(name, Affine((), value), {}) for value in values])

    def _hull(self, problem: Problem) -> _Answer:
        """Row by row; a single row loses its conditions, and at last its gaps."""
        if len(problem.rows) > 1:
            alone = [self.solve(Problem((row,), problem.bounds, problem.sets)) for row in problem.rows]
            if not all(answer.pieces for answer in alone):
                return _Answer([])
            return _Answer([tuple(IntSet().union(*(s for (s,) in a.pieces)) for a in alone)], exact=False)
        if problem.bounds:
            return _Answer(self.solve(Problem(problem.rows, (), problem.sets)).pieces, exact=False)
        return _Answer([tuple(IntSet.interval(*row.bounds(problem.ranges)) for row in problem.rows)], exact=False)


def _looked_up(problem: Problem) -> _Answer | None:
    """The values of a row with long tables in it, point by point; None for others, and where these are too many."""
    if len(problem.rows) != 1 or max((len(table.runs) for table in problem.tables), default=0) <= SPLIT_LIMIT:
        return None
    names = list(problem.sets)
    if prod(values.size for values in problem.sets.values()) > POINT_LIMIT:
        return None
    import numpy as np

    grid = np.meshgrid(*(np.array([*values], dtype=np.int64) for values in problem.sets.values()), indexing="ij")
    at = dict(zip(names, grid, strict=True))
    inside = np.ones(grid[0].shape, dtype=bool)
    for bound in problem.bounds:
        value = bound.expr.evaluate(at)
        inside &= (value >= (value.min() if bound.lo is None else bound.lo)) & (
            value < (value.max() + 1 if bound.hi is None else bound.hi)
        )
    found = np.unique(np.broadcast_to(problem.rows[0].evaluate(at), inside.shape)[inside])
    if not found.size:
        return _Answer([])
    ends = np.flatnonzero(np.diff(found) != 1)
    starts, stops = found[np.concatenate(([0], ends + 1))], found[np.concatenate((ends, [found.size - 1]))]
    if len(starts) > RUN_LIMIT:
        return None
    return _Answer([(IntSet.of(*(range(lo, hi + 1) for lo, hi in zip(starts.tolist(), stops.tolist(), strict=True))),)])


def _single(row: Affine, sets: Sets) -> IntSet:
    """The values of a row with at most one dimension."""
    if not row.terms:
        return IntSet.interval(row.const, row.const + 1)
    ((name, factor),) = row.terms
    assert isinstance(name, str)
    return scale(sets[name], factor).shift(row.const)


def _floored(problem: Problem) -> bool:
    return not all(row.is_affine for row in problem.rows)


def _settle(problem: Problem) -> tuple[Problem | None, bool]:
    """Clip, simplify, drop and merge until nothing changes. None: the set is empty. False: a merge took a superset."""
    exact = True
    while True:
        clipped = _clip(problem)
        if clipped is None:
            return None, True
        merged, good = merge(clipped)
        exact = exact and good
        if merged == problem:
            return problem, exact
        problem = merged


def _clip(problem: Problem) -> Problem | None:
    """Clip, simplify, and drop dimensions that nothing uses; None when empty."""
    clipped = clip_bounds(problem.bounds, problem.sets)
    if clipped is None:
        return None
    bounds, sets = clipped
    ranges = problem.ranges
    rows = tuple(simplify_index(row, ranges) for row in problem.rows)
    used = {name for expr in [*rows, *(bound.expr for bound in bounds)] for name in expr.dims}
    return Problem(rows, bounds, {name: values for name, values in sets.items() if name in used})


def _components(problem: Problem) -> list[tuple[tuple[int, ...], Problem]]:
    """Independent parts, each with the positions of its rows."""
    groups = connected([expr.dims for expr in [*problem.rows, *(bound.expr for bound in problem.bounds)]])
    count = len(problem.rows)
    parts = []
    for group in groups:
        rows = tuple(k for k in group if k < count)
        bounds = tuple(problem.bounds[k - count] for k in group if k >= count)
        names = {name for k in rows for name in problem.rows[k].dims} | {n for b in bounds for n in b.expr.dims}
        sets = {name: values for name, values in problem.sets.items() if name in names}
        parts.append((rows, Problem(tuple(problem.rows[k] for k in rows), bounds, sets)))
    return parts


def _product(count: int, parts: list[tuple[tuple[int, ...], _Answer]]) -> _Answer:
    """Put the answers of independent parts together."""
    pieces = []
    for choice in product(*(answer.pieces for _, answer in parts)):
        found: dict[int, IntSet] = {}
        for (rows, _), piece in zip(parts, choice, strict=True):
            found.update(zip(rows, piece, strict=True))
        pieces.append(tuple(found[k] for k in range(count)))
    return _Answer(pieces, all(answer.exact for _, answer in parts))


def _project(problem: Problem) -> Cases | None:
    """Eliminate a dimension that occurs only in conditions, outside of floors and tables."""
    inner = {name for expr in problem.outer for atom in expr.compound for name in atom.inner.dims}
    used = inner | {name for row in problem.rows for name in row.dims}
    for name in problem.sets:
        if name in used:
            continue
        touching = [bound for bound in problem.bounds if bound.expr.coefficient(name)]
        if len(touching) == 1:
            return _project_single(problem, name, touching[0])
        unit = all(abs(bound.expr.coefficient(name)) == 1 for bound in touching)
        if unit and problem.sets[name].contiguous and len(touching) <= 4:
            return Cases([_fourier_motzkin(problem, name, touching)])
    return None


def _without(problem: Problem, name: str, touching: Iterable[Bound], added: Iterable[Bound]) -> Problem:
    gone = set(touching)
    bounds = (*(bound for bound in problem.bounds if bound not in gone), *added)
    return Problem(problem.rows, bounds, {n: s for n, s in problem.sets.items() if n != name})


def _project_single(problem: Problem, name: str, bound: Bound) -> Cases:
    """exists x in S: lo <= e + c*x < hi, that is e in the sums of [lo, hi) and -c*S."""
    factor = bound.expr.coefficient(name)
    rest = bound.expr - Affine.dim(name) * factor
    away = scale(problem.sets[name], -factor)
    if bound.lo is None or bound.hi is None:
        lo = None if bound.lo is None else bound.lo + away.lo
        hi = None if bound.hi is None else bound.hi + away.hi - 1
        return Cases([_without(problem, name, [bound], [Bound(rest, lo, hi)])])
    allowed, exact = add(IntSet.interval(bound.lo, bound.hi), away)
    left = _without(problem, name, [bound], [])
    if len(rest.terms) == 1 and isinstance(rest.terms[0][0], str):
        other, factor = rest.terms[0][0], rest.terms[0][1]
        kept = unscale(allowed.shift(-rest.const) & scale(left.sets[other], factor), factor)
        return Cases([replace(left, sets={**left.sets, other: kept})], exact)
    if len(allowed.runs) > LIST_LIMIT or any(run.step != 1 for run in allowed.runs):
        allowed, exact = IntSet.interval(allowed.lo, allowed.hi), False
    return Cases([replace(left, bounds=(*left.bounds, Bound(rest, r.start, r.stop))) for r in allowed.runs], exact)


def _fourier_motzkin(problem: Problem, name: str, touching: list[Bound]) -> Problem:
    """Every lower bound on x below every upper bound: exact on the integers since x has coefficients 1 or -1."""
    x = Affine.dim(name)
    lowers, uppers = [Affine((), problem.sets[name].lo)], [Affine((), problem.sets[name].hi - 1)]
    for bound in touching:
        sign = bound.expr.coefficient(name)
        rest = (bound.expr - x * sign) * sign  # sign*e = x + rest
        lo, hi = flipped(bound.lo, bound.hi) if sign < 0 else (bound.lo, bound.hi)
        if lo is not None:
            lowers.append(lo - rest)
        if hi is not None:
            uppers.append(hi - 1 - rest)
    return _without(problem, name, touching, [Bound(upper - lower, 0, None) for lower in lowers for upper in uppers])


def _tighten(problem: Problem) -> Cases | None:
    """Narrow each dimension by what the others leave it in each condition; None when nothing narrows."""
    sets = dict(problem.sets)
    for bound in problem.bounds:
        for name in sorted(bound.expr.dims):
            factor = bound.expr.coefficient(name)
            rest = bound.expr - Affine.dim(name) * factor
            if not factor or name in rest.dims:
                continue
            lo, hi = rest.bounds({n: (s.lo, s.hi) for n, s in sets.items()})
            least = None if bound.lo is None else bound.lo - hi + 1
            most = None if bound.hi is None else bound.hi - lo
            sets[name] = clip_linear(sets[name], factor, 0, least, most)
            if not sets[name]:
                return Cases([])
    return None if sets == problem.sets else Cases([Problem(problem.rows, problem.bounds, sets)])


@lru_cache(maxsize=65536)
def solve_rows(rows: Rows, bounds: Bounds, names: tuple[str, ...], sets: tuple[IntSet, ...]) -> tuple[Pieces, bool]:
    """Products of one set per row whose union is the image of the rows where the bounds hold; whether that is exact."""
    answer = _Search().solve(Problem(rows, bounds, dict(zip(names, sets, strict=True))))
    return tuple(answer.pieces), answer.exact
