"""Simplify expressions over a box: floors that the ranges decide vanish, guards that always hold are dropped.

Views compose by substitution, so a split followed by a merge reads as floors of sums. Over known ranges most of them
are affine again: (128*h + e)//128 is h where 0 <= e < 128. This is the one simplifier of index expressions: the
language, the integer sets, the workers and the kernels all use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from math import gcd

from .conditions import unwrapped
from .functions import FUNCTIONS
from .index import Affine, Atom, Bound, Floor, Table
from .scalar import Call, Cast, Const, Expr, IndexValue, Inside, Read, children_first

Ranges = Mapping[str, tuple[int, int]]


def simplify_index(index: Affine, ranges: Ranges) -> Affine:
    """An equal expression for dimensions lo <= name < hi in ``ranges``, with fewer and smaller floors.

    A dimension of one value becomes that value.

    >>> h, e = Affine.dim("h"), Affine.dim("e")
    >>> str(simplify_index((128 * h + e) // 128 + (h // 3) // 5, {"h": (0, 32), "e": (0, 128)}))
    'h + h//15'
    """
    plain = _simplified(index, ranges, False)
    if not any(abs(c) > floor.divisor for floor in plain.floors for _, c in floor.inner.terms):
        return plain
    return min(plain, _simplified(index, ranges, True), key=lambda found: _complexity(found, ranges))


def _complexity(index: Affine, ranges: Ranges) -> tuple[int, int, int, int]:
    """How much there is to compute, and to prove: floors, the interval of values, terms, the sizes of factors."""
    floors = set(index.floors)
    lo, hi = index.bounds(ranges)
    factors = [c for expr in (index, *(atom.inner for atom in index.compound)) for _, c in expr.terms]
    return len(floors), hi - lo, len(factors), sum(map(abs, factors))


def _simplified(index: Affine, ranges: Ranges, apart: bool) -> Affine:
    """``apart``: multiples of a divisor are taken out of a factor, 5*i/4 as i + i/4.

    That leaves less inside of floors, and sums in which more cancels, but puts one dimension in two places.
    """
    terms: list[tuple[Atom, int]] = []
    const, same = index.const, True
    for atom, c in index.terms:
        if isinstance(atom, str):
            lo, hi = ranges[atom]
            if hi - lo == 1:
                const, same = const + c * lo, False
            else:
                terms.append((atom, c))
            continue
        inner = _simplified(atom.inner, ranges, apart)
        if isinstance(atom, Table):
            value = _table(inner, atom.values, ranges)
        else:
            value = _floor(inner, atom.divisor, ranges, apart)
        same = same and value.terms == ((atom, 1),) and not value.const
        const += c * value.const
        terms += [(inner, c * factor) for inner, factor in value.terms]
    return index if same else Affine.sum_of(terms, const)


def _table(inner: Affine, values: tuple[int, ...], ranges: Ranges) -> Affine:
    """values[inner], the inner expression being simple already: as much of the table as it reaches."""
    lo, hi = inner.bounds(ranges)
    lo, hi = max(0, min(lo, len(values) - 1)), min(len(values), max(hi, 1))
    kept = values[lo:hi]
    least, end = Table(inner, values).interval(ranges)
    if end - least == 1:
        return Affine((), least)
    step = kept[1] - kept[0]
    reached = (lo, hi) == (inner.bounds(ranges))
    if reached and len(kept) > 2 and all(b - a == step for a, b in pairwise(kept)):
        return inner * step + (kept[0] - lo * step)
    return Affine(((Table(inner - lo, kept), 1),))


def _floor(inner: Affine, divisor: int, ranges: Ranges, apart: bool) -> Affine:
    """floor(inner / divisor), the inner expression being simple already: multiples of the divisor leave the floor."""
    taken = [(a, _quotient(c, divisor) if apart or c % divisor == 0 else 0) for a, c in inner.terms]
    whole = Affine(tuple((a, c) for a, c in taken if c), inner.const // divisor)
    left = ((a, c - out * divisor) for (a, c), (_, out) in zip(inner.terms, taken, strict=True))
    rest = Affine(tuple((a, c) for a, c in left if c), inner.const % divisor)
    return whole + _proper_floor(rest, divisor, ranges, apart)


def _quotient(value: int, divisor: int) -> int:
    """Rounded toward zero, so that what is left has the value's sign."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _proper_floor(rest: Affine, divisor: int, ranges: Ranges, apart: bool) -> Affine:
    """floor(rest / divisor), no factor of ``rest`` being a multiple of the divisor, and 0 <= its constant < divisor."""
    lo, hi = rest.bounds(ranges)
    if lo // divisor == (hi - 1) // divisor:
        return Affine((), lo // divisor)
    common = gcd(divisor, *(c for _, c in rest.terms))
    if common > 1:
        divided = Affine(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return _floor(divided, divisor // common, ranges, apart)
    if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Floor) and rest.terms[0][1] == 1:
        nested = rest.terms[0][0]  # floor((floor(x / m) + k) / d) = floor((x + k*m) / (m*d))
        return _floor(nested.inner + rest.const * nested.divisor, nested.divisor * divisor, ranges, apart)
    for factor in sorted({gcd(c, divisor) for _, c in rest.terms} - {1}, reverse=True):
        small = Affine(tuple((a, c) for a, c in rest.terms if c % factor), rest.const)
        lo, hi = small.bounds(ranges)
        if lo // factor == (hi - 1) // factor:  # floor((g*x + r) / (g*d)) = floor((x + k) / d) where k*g <= r < k*g + g
            large = Affine(tuple((a, c // factor) for a, c in rest.terms if c % factor == 0), lo // factor)
            return _floor(large, divisor // factor, ranges, apart)
    return Affine(((Floor(rest, divisor), 1),))


def simplify_bounds(bounds: Iterable[Bound], ranges: Ranges) -> tuple[Bound, ...] | None:
    """The bounds that the ranges do not already grant, one for each linear form; None when they can never all hold."""
    return _granted(((bound, simplify_index(bound.expr, ranges)) for bound in bounds), ranges)


def _granted(found: Iterable[tuple[Bound, Affine]], ranges: Ranges) -> tuple[Bound, ...] | None:
    """`simplify_bounds` of bounds whose expressions, the second of each pair, are simple already."""
    merged: dict[tuple[tuple[Atom, int], ...], tuple[Affine, int | None, int | None]] = {}
    for bound, expr in (_without_rest(bound, expr, ranges) for bound, expr in _opened(found)):
        first, lo, hi = merged.get(expr.terms, (expr, None, None))
        merged[expr.terms] = first, _tighter(max, lo, bound.lo, expr.const), _tighter(min, hi, bound.hi, expr.const)
    kept = [_needed(Affine(terms), *sides, ranges) for terms, sides in merged.items()]
    return None if None in kept else tuple(bound for bound in kept if bound and (bound.lo, bound.hi) != (None, None))


def _without_rest(bound: Bound, expr: Affine, ranges: Ranges) -> tuple[Bound, Affine]:
    """A bound without the terms that cannot decide it: 64*q + r >= 64 is q >= 1 where 0 <= r < 64."""
    for factor in sorted({abs(c) for _, c in expr.terms} - {1}, reverse=True):
        rest = Affine(tuple((a, c) for a, c in expr.terms if c % factor), expr.const)
        least, end = rest.bounds(ranges)
        sides = [[None if s is None else -((r - s) // factor) for r in (least, end - 1)] for s in (bound.lo, bound.hi)]
        if rest.terms and all(first == last for first, last in sides):
            whole = Affine(tuple((a, c // factor) for a, c in expr.terms if c % factor == 0))
            return Bound(whole, sides[0][0], sides[1][0]), whole
    return bound, expr


def _opened(found: Iterable[tuple[Bound, Affine]]) -> Iterator[tuple[Bound, Affine]]:
    """Bounds with their simple expressions; what tables alone say is said of what is inside of them."""
    for bound, expr in found:
        if any(isinstance(atom, Table) for atom, _ in expr.terms):
            yield from ((part, part.expr) for part in unwrapped(Bound(expr, bound.lo, bound.hi)))
        else:
            yield bound, expr


def _tighter(choose: Callable[[int, int], int], known: int | None, limit: int | None, shift: int) -> int | None:
    """Of two limits of one side, None being open, the one that leaves less; the second is of a form + shift."""
    if limit is None:
        return known
    return limit - shift if known is None else choose(known, limit - shift)


def _needed(form: Affine, expr: Affine, lo: int | None, hi: int | None, ranges: Ranges) -> Bound | None:
    """lo <= form < hi, said of expr = form + constant, without sides that the ranges grant; None if it never holds."""
    least, end = form.bounds(ranges)
    if max(least, least if lo is None else lo) >= min(end, end if hi is None else hi):
        return None
    need_lo = lo + expr.const if lo is not None and least < lo else None
    need_hi = hi + expr.const if hi is not None and end > hi else None
    return Bound(expr, need_lo, need_hi)


class Simplifier:
    """Simplifies scalar expressions over one box, each index expression once; shared nodes stay shared.

    ``values`` are put in for dimensions first. ``names``: a dimension of one value keeps its name where it stands
    alone, for programs that people read. What a read becomes whose guard never holds, and what calls and index values
    become, is for subclasses to say otherwise.
    """

    def __init__(self, ranges: Ranges, values: Mapping[str, Affine] | None = None, *, names: bool = False) -> None:
        self.ranges, self.values, self.names = ranges, values or {}, names
        self._seen: dict[int, tuple[Expr, Expr]] = {}
        self._indices: dict[Affine, Affine] = {}

    def index(self, index: Affine) -> Affine:
        """An index expression, as `simplify_index`."""
        found = self._indices.get(index)
        if found is None:
            found = index.substitute(self.values) if self.values else index
            lone = self.names and len(found.terms) == 1 and found.terms[0][1] == 1 and not found.const
            if not (lone and isinstance(found.terms[0][0], str)):
                found = simplify_index(found, self.ranges)
            self._indices[index] = found
        return found

    def bounds(self, bounds: Iterable[Bound]) -> tuple[Bound, ...] | None:
        """Conditions, as `simplify_bounds`."""
        return _granted(((bound, self.index(bound.expr)) for bound in bounds), self.ranges)

    def expr(self, node: Expr) -> Expr:
        """Every index, guard and condition simplified; choices that the ranges decide are taken."""
        for part in children_first(node, self._seen):
            self._seen[id(part)] = (part, self._rewritten(part))
        return self._seen[id(node)][1]

    def _rewritten(self, node: Expr) -> Expr:
        if isinstance(node, Call):
            return self.called(Call(node.function, tuple(self._seen[id(arg)][1] for arg in node.args)))
        if isinstance(node, Cast):
            return Cast(node.dtype, self._seen[id(node.arg)][1])
        if isinstance(node, Read):
            guard = self.bounds(node.guard)
            if guard is None:
                return self.missed(node)
            return Read(node.tensor, tuple(map(self.index, node.index)), guard, node.fill if guard else 0)
        if isinstance(node, IndexValue):
            return self.indexed(self.index(node.index))
        if isinstance(node, Inside):
            bounds = self.bounds(node.bounds)
            return Inside(bounds) if bounds else Const(bounds is not None)
        return node

    def missed(self, read: Read) -> Expr:
        """What a read is whose guard never holds."""
        return Const(read.fill)

    def called(self, call: Call) -> Expr:
        """What a call is whose arguments are simple."""
        if FUNCTIONS[call.function].result == "branch" and isinstance(call.args[0], Const):
            return call.args[1] if call.args[0].value else call.args[2]
        return call

    def indexed(self, index: Affine) -> Expr:
        """What the value of a simple index expression is."""
        return IndexValue(index)


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """Simplify every index, guard and condition of a scalar expression, for people to read.

    >>> i = Affine.dim("i")
    >>> print(simplify(Read("x", (i // 4,), (Bound(i, 0, 9),)), {"i": (0, 8)}))
    x[i//4]
    """
    return Simplifier(ranges, names=True).expr(expr)
