"""Arithmetic on integer sets: scaled and added sets, clipping, digits of a mixed radix. Exact, or labelled as a hull.

The sum of two runs {s*i : i < n} + {t*j : j < m} is one run but for its ends where they interlock (a Frobenius
argument), and min(n, m) disjoint runs where one is too short to fill the other's gaps. Above `RUN_LIMIT` runs a hull is
returned and said to be one.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from .intset import IntSet, _canonical, run_size

RUN_LIMIT = 4096


def _run(start: int, count: int, step: int) -> range:
    return range(start, start + (count - 1) * step + 1, step if count > 1 else 1)


def scale(values: IntSet, factor: int) -> IntSet:
    """Every element times ``factor`` (any sign; zero gives {0})."""
    if factor == 1:
        return values
    if factor == 0:
        return IntSet.interval(0, 1) if values else values
    return IntSet(_canonical(_scaled(run, factor) for run in values.runs))


def _scaled(run: range, factor: int) -> range:
    size = run_size(run)
    first = run.start if factor > 0 else run.start + (size - 1) * run.step
    return _run(first * factor, size, run.step * abs(factor))


def unscale(values: IntSet, factor: int) -> IntSet:
    """Every element, a multiple of the non-zero ``factor``, divided by it."""
    return IntSet(_canonical(_unscaled(run, factor) for run in values.runs))


def _unscaled(run: range, factor: int) -> range:
    size = run_size(run)
    first = run.start if factor > 0 else run.start + (size - 1) * run.step
    return _run(first // factor, size, run.step // abs(factor))


def flipped(lo: int | None, hi: int | None) -> tuple[int | None, int | None]:
    """The bounds of -v where lo <= v < hi."""
    return (None if hi is None else 1 - hi), (None if lo is None else 1 - lo)


def clip(values: IntSet, lo: int | None, hi: int | None) -> IntSet:
    """The elements v with lo <= v < hi; None leaves a side open."""
    if not values or ((lo is None or lo <= values.lo) and (hi is None or values.hi <= hi)):
        return values
    return values & IntSet.interval(values.lo if lo is None else lo, values.hi if hi is None else hi)


def clip_linear(values: IntSet, factor: int, const: int, lo: int | None, hi: int | None) -> IntSet:
    """The elements v with lo <= factor*v + const < hi, for a non-zero factor.

    >>> clip_linear(IntSet.interval(0, 10), -2, 5, 0, None)
    IntSet(0:3)
    """
    if factor < 0:
        (lo, hi), factor, const = flipped(lo, hi), -factor, -const
    least = None if lo is None else -((const - lo) // factor)
    most = None if hi is None else -((const - hi) // factor)
    return clip(values, least, most)


@lru_cache(maxsize=16384)
def add(a: IntSet, b: IntSet) -> tuple[IntSet, bool]:
    """All sums of an element of ``a`` and one of ``b``, and whether that is exact (else a superset).

    >>> add(IntSet.of(range(0, 20, 5)), IntSet.interval(0, 3))[0].size
    12
    >>> add(IntSet.of(range(0, 13, 3)), IntSet.of(range(0, 9, 2)))
    (IntSet(0:1|2:19|20:21), True)
    """
    if len(a.runs) == 1 and len(b.runs) == 1:
        runs, exact = _add_runs(a.runs[0], b.runs[0])
        return IntSet(_canonical(runs)), exact
    if len(a.runs) * len(b.runs) > RUN_LIMIT:
        return _hull(a, b), False
    exact, runs = True, []
    for x in a.runs:
        for y in b.runs:
            sums, good = _add_runs(x, y)
            runs += sums
            exact = exact and good
    if len(runs) > RUN_LIMIT and any(run.step != 1 for run in runs):
        return _hull(a, b), False
    return IntSet.of(*runs), exact


def _hull(a: IntSet, b: IntSet) -> IntSet:
    return IntSet.interval(a.lo + b.lo, a.hi + b.hi - 1)


def _add_runs(x: range, y: range) -> tuple[list[range], bool]:
    """Disjoint runs of all sums x_i + y_j, and whether they are exact."""
    n, m, start = run_size(x), run_size(y), x.start + y.start
    if n == 0 or m == 0:
        return [], True
    if n == 1 or m == 1:
        return [_run(start, n * m, x.step if m == 1 else y.step)], True
    if x.step > y.step:
        x, y, n, m = y, x, m, n
    unit = gcd(x.step, y.step)
    a, b = x.step // unit, y.step // unit
    if n >= b and m >= a:
        return _interlocked(start, a, b, a * (n - 1) + b * (m - 1), unit)
    # One is shorter than the other's gap: all n * m sums are distinct, so shifted copies of a run are disjoint.
    if min(n, m) > RUN_LIMIT:
        return [_run(start, a * (n - 1) + b * (m - 1) + 1, unit)], False
    if m <= n:
        return [_run(start + j * y.step, n, x.step) for j in range(m)], True
    return [_run(start + i * x.step, m, y.step) for i in range(n)], True


def _interlocked(start: int, a: int, b: int, total: int, unit: int) -> tuple[list[range], bool]:
    """{a*i + b*j} for coprime a <= b, i < n, j < m with n >= b, m >= a: dense but near its ends.

    Sylvester (1882): every v >= (a-1)(b-1) is a*i + b*j with i, j >= 0; by symmetry the same holds from the top.
    """
    gap = (a - 1) * (b - 1)
    if gap == 0:
        return [_run(start, total + 1, unit)], True
    if gap > RUN_LIMIT:
        return [_run(start, total + 1, unit)], False
    low = {a * i + b * j for i in range(b) for j in range(a) if a * i + b * j < gap}
    ends = low | {total - v for v in low}
    runs = [_run(start + v * unit, 1, 1) for v in ends if not gap <= v <= total - gap]
    if total - gap >= gap:
        runs.append(_run(start + gap * unit, total - 2 * gap + 1, unit))
    return runs, True


def digits(values: IntSet, base: int) -> list[tuple[IntSet, IntSet]]:
    """``values`` as a disjoint union of products (quotients, remainders) of the division by ``base``.

    >>> digits(IntSet.interval(6, 12), 4)
    [(IntSet(1:2), IntSet(2:4)), (IntSet(2:3), IntSet(0:4))]
    """
    found: dict[IntSet, list[range]] = {}
    for run in values.runs:
        for quotients, remainders in _run_digits(run, base):
            found.setdefault(IntSet(_canonical([remainders])), []).append(quotients)
    return [(IntSet(_canonical(quotients)), remainders) for remainders, quotients in found.items()]


def _run_digits(run: range, base: int) -> list[tuple[range, range]]:
    step, size = run.step, run_size(run)
    unit = gcd(step, base)
    if unit == step:  # interval of z = (v - v0) / step, divided by base / step
        first, offset = divmod(run.start, step)
        inner = base // step
        pieces = _interval_digits(first, first + size, inner)
        return [(q, _run(m.start * step + offset, run_size(m), step)) for q, m in pieces]
    period = base // unit  # after so many elements the remainder repeats
    pieces = []
    for k in range(min(period, size)):
        quotient, remainder = divmod(run.start + k * step, base)
        count = (size - k + period - 1) // period
        pieces.append((_run(quotient, count, step // unit), range(remainder, remainder + 1)))
    return pieces


def _interval_digits(lo: int, hi: int, base: int) -> list[tuple[range, range]]:
    """First, middle and last rows of lo <= v < hi written in rows of ``base``."""
    first, last = lo // base, (hi - 1) // base
    if first == last:
        return [(range(first, first + 1), range(lo - first * base, hi - first * base))]
    pieces = []
    if lo % base:
        pieces.append((range(first, first + 1), range(lo % base, base)))
        first += 1
    end = last + 1 if hi % base == 0 else last
    if end > first:
        pieces.append((range(first, end), range(base)))
    if hi % base:
        pieces.append((range(last, last + 1), range(hi % base)))
    return pieces


def piece_count(values: IntSet, base: int) -> int:
    """An upper bound on ``len(digits(values, base))`` that costs nothing."""
    return sum(3 if base % run.step == 0 else min(base // gcd(run.step, base), run_size(run)) for run in values.runs)
