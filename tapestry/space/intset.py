"""Finite sets of integers as disjoint arithmetic runs: one axis of a shard, exact at any extent.

A run is a Python ``range`` with a positive step, so its size, bounds and membership are exact integers of any size and
nothing is ever enumerated. Contiguous sets (all steps 1) are kept in canonical form: sorted, disjoint, never adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

WOVEN_LIMIT = 64  # intervals that neighbouring strided runs are turned into, at most


def run_size(run: range) -> int:
    """Number of elements; ``len`` refuses runs longer than a machine word."""
    return max(0, (run.stop - run.start + run.step - 1) // run.step)


def _trim(run: range) -> range:
    """The same elements with ``stop`` one past the last, and step 1 for a single element."""
    size = run_size(run)
    if size <= 1:
        return range(run.start, run.start + size)
    return range(run.start, run.start + (size - 1) * run.step + 1, run.step)


def _meet(a: range, b: range) -> range:
    """Intersection of two runs: the Chinese remainder theorem gives its start, the least common multiple its step."""
    if a.step == 1 and b.step == 1:
        return range(max(a.start, b.start), min(a.stop, b.stop))
    divisor = gcd(a.step, b.step)
    if (b.start - a.start) % divisor:
        return range(0)
    step = a.step // divisor * b.step
    turns = (b.start - a.start) // divisor * pow(a.step // divisor, -1, b.step // divisor) % (b.step // divisor)
    first = a.start + turns * a.step
    low = max(a.start, b.start)
    first += max(0, -(-(low - first) // step)) * step
    return range(first, min(a.stop, b.stop), step)


def _minus(a: range, b: range) -> list[range]:
    """Elements of ``a`` that are not in ``b``, as disjoint runs."""
    common = _trim(_meet(a, b))
    if not run_size(common):
        return [a]
    last = common.stop - 1
    parts = [range(a.start, common.start, a.step), range(last + a.step, a.stop, a.step)]
    if run_size(common) > 1:
        parts += [range(common.start + k * a.step, last, common.step) for k in range(1, common.step // a.step)]
    return [_trim(part) for part in parts if run_size(part)]


def _woven(runs: list[range]) -> list[range]:
    """Neighbouring strided runs as intervals: 0:7:2 and 1:8:2 are 0:8; 0:9:4 and 1:10:4 are 0:2, 4:6 and 8:10."""
    chains: list[list[range]] = []
    for run in sorted(runs, key=lambda run: (run.step, run.start)):
        if chains and _continues(chains[-1], run):
            chains[-1].append(run)
        else:
            chains.append([run])
    return [run for chain in chains for run in _joined_chain(chain)]


def _continues(chain: list[range], run: range) -> bool:
    """The run starts one after the last of the chain and is as long, or, once in a chain, one shorter."""
    first, last = chain[0], chain[-1]
    if run.step == 1 or run.step != last.step or run.start != last.start + 1:
        return False
    return run_size(run) == run_size(last) or run_size(run) == run_size(last) - 1 == run_size(first) - 1


def _joined_chain(chain: list[range]) -> list[range]:
    first, step, size = chain[0], chain[0].step, run_size(chain[0])
    if len(chain) == step:
        return [range(first.start, max(run.stop for run in chain))]
    if len(chain) > 1 and size <= WOVEN_LIMIT and run_size(chain[-1]) == size:
        return [range(start, start + len(chain)) for start in first]
    return chain


def _canonical(runs: Iterable[range]) -> tuple[range, ...]:
    """Sort disjoint runs; merge contiguous neighbours."""
    trimmed = [_trim(run) for run in runs if run_size(run)]
    if len(trimmed) > 1 and any(run.step != 1 for run in trimmed):
        trimmed = _woven(trimmed)
    ordered = sorted(trimmed, key=lambda run: (run.start, run.stop, run.step))
    merged: list[range] = []
    for run in ordered:
        if merged and merged[-1].step == 1 and run.step == 1 and merged[-1].stop == run.start:
            merged[-1] = range(merged[-1].start, run.stop)
        else:
            merged.append(run)
    return tuple(merged)


def _joined(runs: Iterable[range]) -> tuple[range, ...]:
    """The union of contiguous runs, in canonical form."""
    joined: list[range] = []
    for run in sorted((run for run in runs if run), key=lambda run: run.start):
        if joined and run.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, run.stop))
        else:
            joined.append(run)
    return tuple(joined)


def _left(runs: Sequence[range], others: Sequence[range]) -> list[range]:
    """What the others leave of the ones, in whatever order."""
    left = list(runs)
    for other in others:
        left = [part for piece in left for part in _minus(piece, other)]
    return left


def _without(runs: Sequence[range], others: Sequence[range]) -> Iterator[range]:
    """What the others leave of the ones; intervals, both in canonical form."""
    at = 0
    for run in runs:
        start = run.start
        while at < len(others) and others[at].stop <= start:
            at += 1
        next_one = at
        while next_one < len(others) and others[next_one].start < run.stop:
            if others[next_one].start > start:
                yield range(start, others[next_one].start)
            start = max(start, others[next_one].stop)
            next_one += 1
        if start < run.stop:
            yield range(start, run.stop)


def _common(runs: Sequence[range], others: Sequence[range]) -> Iterator[range]:
    """What is in both; intervals, both in canonical form."""
    i = j = 0
    while i < len(runs) and j < len(others):
        low, high = max(runs[i].start, others[j].start), min(runs[i].stop, others[j].stop)
        if low < high:
            yield range(low, high)
        if runs[i].stop <= others[j].stop:
            i += 1
        else:
            j += 1


@dataclass(frozen=True)
class IntSet:
    """A finite set of integers: disjoint runs.

    >>> IntSet.interval(0, 10) - IntSet.interval(3, 5)
    IntSet(0:3|5:10)
    >>> (IntSet.of(range(0, 20, 3)) & IntSet.of(range(0, 20, 2))).runs
    (range(0, 19, 6),)
    """

    runs: tuple[range, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.runs)

    @staticmethod
    def interval(lo: int, hi: int) -> IntSet:
        """The integers lo, ..., hi - 1 (empty when hi <= lo)."""
        return IntSet((range(lo, hi),)) if hi > lo else IntSet()

    @staticmethod
    def of(*runs: range) -> IntSet:
        """The union of any runs, overlapping or not."""
        if all(run.step == 1 for run in runs):
            return IntSet(_joined(runs))
        return IntSet().union(*(IntSet(_canonical([run])) for run in runs))

    @cached_property
    def size(self) -> int:
        return sum(run_size(run) for run in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __contains__(self, value: int) -> bool:
        return any(value in run for run in self.runs)

    def __iter__(self) -> Iterator[int]:
        """The elements in increasing order."""
        if all(a.stop <= b.start for a, b in zip(self.runs, self.runs[1:], strict=False)):
            return (value for run in self.runs for value in run)
        return iter(sorted(value for run in self.runs for value in run))

    @cached_property
    def lo(self) -> int:
        """The least element. ValueError when empty."""
        return min(run.start for run in self.runs)

    @cached_property
    def hi(self) -> int:
        """One past the greatest element. ValueError when empty."""
        return max(run.stop for run in self.runs)

    @property
    def contiguous(self) -> bool:
        """One run of step 1, or empty."""
        return len(self.runs) <= 1 and all(run.step == 1 for run in self.runs)

    def __and__(self, other: IntSet) -> IntSet:
        return _intersect(self, other)

    @cached_property
    def plain(self) -> bool:
        """Intervals alone."""
        return all(run.step == 1 for run in self.runs)

    def __sub__(self, other: IntSet) -> IntSet:
        if self.plain and other.plain:
            return IntSet(tuple(_without(self.runs, other.runs)))
        return IntSet(_canonical(_left(self.runs, other.runs)))

    def union(self, *others: IntSet) -> IntSet:
        """All elements of this set and the others."""
        if self.plain and all(other.plain for other in others):
            return IntSet(_joined(run for some in (self, *others) for run in some.runs))
        runs = list(self.runs)
        for other in others:
            runs += _canonical(_left(other.runs, runs))
        return IntSet(_canonical(runs))

    def __or__(self, other: IntSet) -> IntSet:
        return self.union(other)

    def __le__(self, other: IntSet) -> bool:
        """Subset, by exact counting."""
        return self is other or (self & other).size == self.size

    def shift(self, by: int) -> IntSet:
        """Every element plus ``by``."""
        return IntSet(tuple(range(run.start + by, run.stop + by, run.step) for run in self.runs))

    def cover(self) -> IntSet:
        """The smallest union of intervals that holds each run whole: strided runs lose their gaps."""
        return IntSet().union(*(IntSet.interval(run.start, run.stop) for run in self.runs))

    def position(self, value: int) -> int:
        """How many elements of this set of *intervals* come before ``value``: its index in a compact buffer."""
        return sum(min(max(value - run.start, 0), run.stop - run.start) for run in self.runs)

    def __repr__(self) -> str:
        return f"IntSet({self})"

    def __str__(self) -> str:
        """Runs as ``lo:hi`` or ``lo:hi:step``, joined by ``|``; ``-`` when empty. `parse_intset` reads it back."""
        text = (f"{r.start}:{r.stop}" if r.step == 1 else f"{r.start}:{r.stop}:{r.step}" for r in self.runs)
        return "|".join(text) or "-"


@lru_cache(maxsize=65536)
def _intersect(a: IntSet, b: IntSet) -> IntSet:
    if len(a.runs) == 1 and len(b.runs) == 1:
        run = _trim(_meet(a.runs[0], b.runs[0]))
        return IntSet((run,)) if run_size(run) else IntSet()
    if a.plain and b.plain:
        return IntSet(tuple(_common(a.runs, b.runs)))
    return IntSet(_canonical(_meet(x, y) for x in a.runs for y in b.runs))


def parse_intset(text: str) -> IntSet:
    """Read what ``str(IntSet)`` writes.

    Raises ValueError for text that is not runs, for a step below 1 and for runs that overlap or are empty.

    >>> parse_intset("0:4|8:16:2").size
    8
    """
    if text.strip() == "-":
        return IntSet()
    runs = []
    for part in text.split("|"):
        numbers = [int(number) for number in part.split(":")]
        if len(numbers) not in (2, 3) or numbers[0] >= numbers[1] or (len(numbers) == 3 and numbers[2] < 1):
            raise ValueError(f"{part!r} is not a run lo:hi or lo:hi:step with lo < hi and step >= 1")
        runs.append(range(*numbers))
    result = IntSet.of(*runs)
    if result.size != sum(run_size(run) for run in runs):
        raise ValueError(f"runs of {text!r} overlap")
    return result
