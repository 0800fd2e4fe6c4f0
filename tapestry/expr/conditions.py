"""Conditions on indices of any form, joined by and, or, not, as `Bound`s.

A `Bound` compares an index expression with constants, so "and" is several of them. The others are said with steps,
`Table`s that are 1 where an expression is at least 1 and else 0:

    A or B             1 <= [A] + [B]
    A and B, inside    [A] + [B] - 1 is at least 1
    e != c             e < c or c + 1 <= e

So whatever counts, projects or evaluates tables does so for every condition, and nothing else has to know of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .index import Affine, Atom, Bound, Table

Alternatives = Sequence[Sequence[Bound]]
"""Some alternative holds whose bounds hold all."""

NEVER = Bound(Affine(), 1, None)


def any_of(alternatives: Alternatives) -> tuple[Bound, ...]:
    """The bounds that hold where those of some alternative do.

    >>> s, t = Affine.dim("s"), Affine.dim("t")
    >>> print(*any_of([[Bound(s, None, 4)], [Bound(t - s, 0, 128), Bound(t, 2)]]))
    (-127 <= s - t < 1 and 2 <= t or s < 4)
    """
    chosen = [tuple(bounds) for bounds in alternatives]
    if len(chosen) == 1:
        return chosen[0]
    steps: dict[Atom, None] = {}
    for bounds in chosen:
        form = _all_form(bounds)
        if not form.terms:
            if form.const >= 1:
                return ()
            continue
        inner = _steps(form) if not form.const else None  # alternatives of one
        steps |= dict.fromkeys(inner or [Table(form, (0, 1))])
    if not steps:
        return (NEVER,)
    return (Bound(Affine.sum_of((step, 1) for step in steps), 1, None),)


def none_of(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    """The bounds that hold where not all of these do.

    >>> i, j = Affine.dim("i"), Affine.dim("j")
    >>> print(*none_of([Bound(i - j, 0, 1)]))
    i - j != 0
    """
    outside: list[list[Bound]] = []
    for bound in bounds:
        outside += [[Bound(bound.expr, None, bound.lo)]] if bound.lo is not None else []
        outside += [[Bound(bound.expr, bound.hi, None)]] if bound.hi is not None else []
    return any_of([list(unwrapped(bound)) for [bound] in outside])


def truth(bounds: Iterable[Bound]) -> Affine:
    """1 where all bounds hold, else 0."""
    form = _all_form(bounds)
    return Table(form, (0, 1)).over(form)


def _literals(bound: Bound) -> list[Affine]:
    """The expressions that are at least 1 exactly where the bound holds."""
    found = [] if bound.lo is None else [bound.expr - bound.lo + 1]
    return [*found, *([] if bound.hi is None else [bound.hi - bound.expr])]


def _all_form(bounds: Iterable[Bound]) -> Affine:
    """An expression that is at least 1 exactly where all bounds hold."""
    forms = dict.fromkeys(form for bound in bounds for part in unwrapped(bound) for form in _literals(part))
    if not forms:
        return Affine((), 1)
    if len(forms) == 1:
        return next(iter(forms))
    steps = [Table(form, (0, 1)).over(form) for form in forms]
    return sum(steps, Affine((), 1 - len(steps)))


def _steps(form: Affine) -> list[Table] | None:
    """The steps that an expression adds up, each once; None where it is anything else."""
    found = [atom for atom, c in form.terms if isinstance(atom, Table) and atom.is_step and c == 1]
    return found if len(found) == len(form.terms) > 1 else None


def unwrapped(bound: Bound) -> tuple[Bound, ...]:
    """The same condition, said of what is inside of its tables where that says it all.

    >>> b = Affine.dim("b")
    >>> print(*unwrapped(Bound(Affine(((Table(b, (3, 5, 2, 2)), 1),)), None, 3)))
    2 <= b
    """
    terms = bound.expr.terms
    if not terms or not all(isinstance(atom, Table) for atom, _ in terms):
        return (bound,)
    if len(terms) == 1:
        return _lone(bound)
    extremes = [_extreme(atom, c) for atom, c in terms if isinstance(atom, Table)]
    least, most = (bound.expr.const + sum(ends[side] for ends in extremes) for side in (0, 1))
    for needed, side in ((bound.hi is not None and bound.hi - 1 == least, 0), (bound.lo == most, 1)):
        if needed:  # every table has to be as far as it goes
            alone = ((Affine(((atom, c),)), ends[side]) for (atom, c), ends in zip(terms, extremes, strict=True))
            return tuple(part for expr, end in alone for part in unwrapped(Bound(expr, end, end + 1)))
    steps = bound.hi is None and bound.lo is not None and bound.lo - bound.expr.const == 1
    if steps and any(c > 1 for _, c in terms) and all(isinstance(a, Table) and a.is_step and c > 0 for a, c in terms):
        return (Bound(Affine(tuple((atom, 1) for atom, _ in terms)), 1, None),)
    return (bound,)


def foregone(bound: Bound) -> bool | None:
    """Whether it holds whatever the indices are (True) or never (False), as the values of its tables tell."""
    extremes = [_extreme(atom, c) for atom, c in bound.expr.terms if isinstance(atom, Table)]
    if len(extremes) < len(bound.expr.terms):
        return None
    least, most = (bound.expr.const + sum(ends[side] for ends in extremes) for side in (0, 1))
    if (bound.lo is None or bound.lo <= least) and (bound.hi is None or most < bound.hi):
        return True
    missed = (bound.lo is not None and most < bound.lo) or (bound.hi is not None and bound.hi <= least)
    return False if missed else None


def _extreme(table: Table, factor: int) -> tuple[int, int]:
    """The least and the greatest value of a multiple of a table."""
    low, high = sorted((min(table.values) * factor, max(table.values) * factor))
    return low, high


def _lone(bound: Bound) -> tuple[Bound, ...]:
    """A condition on one table: the places in it where it holds, if these are in a row."""
    ((table, factor),) = bound.expr.terms
    assert isinstance(table, Table)
    rest = Bound(Affine(), bound.lo, bound.hi)
    held = [rest.admits(factor * value + bound.expr.const) for _, _, value in table.runs]
    if not any(held):
        return (NEVER,)
    first, last = held.index(True), len(held) - held[::-1].index(True)
    if not all(held[first:last]):
        return (bound,)
    lo, hi = table.runs[first][0], table.runs[last - 1][1]
    return () if lo is None and hi is None else unwrapped(_upright(Bound(table.inner, lo, hi)))


def _upright(bound: Bound) -> Bound:
    """The same condition on an expression without a constant, its first factor positive."""
    bare, shift = Affine(bound.expr.terms), bound.expr.const
    lo = None if bound.lo is None else bound.lo - shift
    hi = None if bound.hi is None else bound.hi - shift
    if bare.terms and bare.terms[0][1] < 0:
        return Bound(-bare, None if hi is None else 1 - hi, None if lo is None else 1 - lo)
    return Bound(bare, lo, hi)


# -- text ------------------------------------------------------------------------------------------------------------


def spelled(bound: Bound) -> str:
    """A bound with tables as text: ``(A or B)``, ``e != c``, or the comparison that it is."""
    if bound.hi is None and bound.lo is not None:
        form = bound.expr - bound.lo + 1
        steps = _steps(form)
        if steps is not None and not form.const:
            return _either(steps)
    return bound.plain_text


def _either(steps: Sequence[Table]) -> str:
    below, *above = (step.inner for step in steps)
    if len(above) == 1 and not (below + above[0]).terms and below + above[0] == Affine() and _plain(below):
        expr = below if below.terms[0][1] > 0 else above[0]
        return f"{Affine(expr.terms)} != {-expr.const}"
    return f"({' or '.join(stated(step.inner) for step in steps)})"


def _plain(form: Affine) -> bool:
    return not any(isinstance(atom, Table) for atom, _ in form.terms)


def stated(form: Affine) -> str:
    """The condition that an expression is at least 1, as text."""
    steps = _steps(form)
    if steps is not None and not form.const:
        return _either(steps)
    if steps is not None and form.const == 1 - len(steps):
        return " and ".join(map(str, _sided(step.inner for step in steps)))
    return str(_upright(Bound(form, 1)))


def _sided(forms: Iterable[Affine]) -> list[Bound]:
    """One bound for both sides of an expression."""
    found: dict[Affine, Bound] = {}
    for form in forms:
        bound = _upright(Bound(form, 1))
        before = found.get(bound.expr)
        if before is None:
            found[bound.expr] = bound
        else:
            lo = bound.lo if before.lo is None else before.lo
            found[bound.expr] = Bound(bound.expr, lo, bound.hi if before.hi is None else before.hi)
    return list(found.values())
