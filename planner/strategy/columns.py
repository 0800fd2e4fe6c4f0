"""How much the ranks of two layouts have in common, all ranks at once: axis by axis, each pair of sets met once.

Layouts of a search differ by which axis is cut how; their axes are few. So nearly all of what is asked about pairs of
layouts is a product of vectors that are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ...space import Grid, IntSet, Region
from ..format.loads import sizes_of_both

Ints = NDArray[np.int64]
Sizes = Any  # elements, per rank: a vector of int64, or of Python's integers where these may be greater

MOST_PAIRS = 1 << 18  # of sets, that are looked at in one table
MOST_CELLS = 62  # of an axis: the bits of an integer


@dataclass(frozen=True, eq=False)
class Column:
    """One axis of the regions of all ranks: the different sets, and per rank which one it has."""

    sets: tuple[IntSet, ...]
    codes: Ints

    @cached_property
    def apart(self) -> bool:
        """No two of the sets have a value in common."""
        return IntSet().union(*self.sets).size == sum(values.size for values in self.sets)

    @cached_property
    def everywhere(self) -> bool:
        """Every rank has some value."""
        return all(self.sets)

    @cached_property
    def sizes(self) -> Ints:
        """Values that each rank has."""
        return np.array([values.size for values in self.sets], dtype=np.int64)[self.codes]

    @cached_property
    def stored(self) -> Ints:
        """Values that a dense buffer has for each rank: gaps within strided runs count."""
        return np.array([values.cover().size for values in self.sets], dtype=np.int64)[self.codes]

    @cached_property
    def spans(self) -> tuple[Ints, Ints] | None:
        """[set, interval] where the intervals of each set begin and end; None where some set has gaps within a run."""
        if any(run.step != 1 for values in self.sets for run in values.runs):
            return None
        most = max((len(values.runs) for values in self.sets), default=0)
        ends = np.zeros((2, len(self.sets), most), dtype=np.int64)
        for k, values in enumerate(self.sets):
            for j, run in enumerate(values.runs):
                ends[:, k, j] = run.start, run.stop
        return ends[0], ends[1]


Columns = tuple[Column, ...]
_living: WeakValueDictionary[tuple[tuple[IntSet, ...], bytes], Column] = WeakValueDictionary()


def columns(shape: Sequence[int], regions: Sequence[Region]) -> Columns | None:
    """The axes of regions that are one grid each, or empty; None for others, and where 64 bits may not do."""
    if not few(shape, len(regions)) or any(len(region.grids) > 1 for region in regions):
        return None
    nothing = (IntSet(),) * len(shape)
    grids = (region.grids[0].axes if region else nothing for region in regions)
    return tuple(map(_column, zip(*grids, strict=True)))


def few(shape: Sequence[int], ranks: int) -> bool:
    """Whether there are axes, and 64 bits count the elements of all ranks."""
    return bool(shape) and prod(shape) * ranks < 1 << 62


@lru_cache(maxsize=4096)
def _column(sets: tuple[IntSet, ...]) -> Column:
    """One object for equal axes."""
    number = {axis: k for k, axis in enumerate(dict.fromkeys(sets))}
    return _known(tuple(number), np.array([number[axis] for axis in sets], dtype=np.int64).tobytes())


def column(sets: Sequence[IntSet], codes: Ints) -> Column:
    """The column in which every rank has the set of its code; one object for equal ones."""
    number: dict[IntSet, int] = {}
    numbers = {code: number.setdefault(sets[code], len(number)) for code in dict.fromkeys(codes.tolist())}
    to = np.zeros(len(sets), dtype=np.int64)
    to[list(numbers)] = list(numbers.values())
    return _known(tuple(number), to[codes].tobytes())


@lru_cache(maxsize=8192)
def _known(sets: tuple[IntSet, ...], codes: bytes) -> Column:
    """``sets``: in the order in which ranks have them. What the cache forgot is found again while somebody has it."""
    return _living.setdefault((sets, codes), Column(sets, np.frombuffer(codes, dtype=np.int64)))


def joined(some: Sequence[Column]) -> tuple[Ints, list[int]]:
    """Numbers that are equal for ranks which have the same sets of all columns, in the order of the first rank of each;
    and these ranks.
    """
    together, count = some[0].codes, len(some[0].sets)
    for axis in some[1:]:
        if count > 1 << 40:
            together = np.unique(together, return_inverse=True)[1]
            count = len(together)
        together, count = together * len(axis.sets) + axis.codes, count * len(axis.sets)
    _, first, codes = np.unique(together, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    return numbers[codes], first[order].tolist()


def different(cut: Columns) -> tuple[list[Region], Ints]:
    """The regions that ranks have, in the order of the first of each, and per rank which one."""
    codes, first = joined(cut)
    return [region_of(cut, rank) for rank in first], codes


def region_of(cut: Columns, rank: int) -> Region:
    """What one rank has."""
    return _region(tuple(axis.sets[axis.codes[rank]] for axis in cut))


@lru_cache(maxsize=65536)
def _region(sets: tuple[IntSet, ...]) -> Region:
    """One object for equal regions: what they are found by need not be compared."""
    return Grid(sets).region()


@lru_cache(maxsize=1024)
def _turned(column: Column, by: int) -> Column:
    """Every rank has what the rank ``by`` before it had."""
    return Column(column.sets, np.roll(column.codes, by))


@dataclass(frozen=True, eq=False)
class Met:
    """What the ranks have of both of two columns: per rank its size, and a number that is equal only for equal sets."""

    pairs: tuple[tuple[IntSet, IntSet], ...]
    codes: Ints
    sizes: Ints
    apart: bool  # different numbers have no value in common

    @cached_property
    def cells(self) -> tuple[Ints, Ints] | None:
        """Per rank which cells of the axis it has, as bits, and the cells' sizes; None where there are too many."""
        met = [a & b for a, b in self.pairs]
        if any(run.step != 1 for values in met for run in values.runs):
            return None
        ends = sorted({end for values in met for run in values.runs for end in (run.start, run.stop)})
        if len(ends) > MOST_CELLS:
            return None
        number = {end: k for k, end in enumerate(ends)}
        bits = [
            sum((1 << number[run.stop]) - (1 << number[run.start]) for run in values.runs) for values in met
        ]  # fmt: skip
        sizes = [high - low for low, high in itertools.pairwise(ends)]
        return np.array(bits, dtype=np.int64)[self.codes], np.array(sizes, dtype=np.int64)


@lru_cache(maxsize=8192)
def met(a: Column, b: Column) -> Met:
    """What two columns have in common."""
    pairs, codes = np.unique(a.codes * len(b.sets) + b.codes, return_inverse=True)
    of_a, of_b = np.divmod(pairs, len(b.sets))
    both = tuple((a.sets[i], b.sets[j]) for i, j in zip(of_a.tolist(), of_b.tolist(), strict=True))
    if a.spans is None or b.spans is None:
        sizes = np.array([(mine & theirs).size for mine, theirs in both], dtype=np.int64)
    else:
        (a_lo, a_hi), (b_lo, b_hi) = a.spans, b.spans
        low = np.maximum(a_lo[of_a][:, :, None], b_lo[of_b][:, None, :])
        high = np.minimum(a_hi[of_a][:, :, None], b_hi[of_b][:, None, :])
        sizes = np.maximum(high - low, 0).sum(axis=(1, 2))
    return Met(both, codes, sizes[codes], a.apart and b.apart)


def of_those_there(cut: Columns, there: Ints) -> Columns:
    """Nothing on any axis for the other ranks."""
    if there.all():
        return cut
    return tuple(column([*axis.sets, IntSet()], np.where(there, axis.codes, len(axis.sets))) for axis in cut)


def product_of_sizes(axes: Sequence[Column]) -> Ints:
    """Elements of each rank."""
    found: Ints = np.prod([axis.sizes for axis in axes], axis=0)
    return found


def overlap(mine: Column, some: Ints, theirs: Column, others: Ints) -> Ints:
    """How many values sets of two columns have in common, by the numbers of the sets."""
    assert mine.spans is not None
    assert theirs.spans is not None
    (low, high), (other_low, other_high) = mine.spans, theirs.spans
    found = np.zeros(np.broadcast_shapes(some.shape, others.shape), dtype=np.int64)
    for k in range(low.shape[1]):
        for j in range(other_low.shape[1]):
            both = np.minimum(high[some, k], other_high[others, j])
            both = both - np.maximum(low[some, k], other_low[others, j])
            found += np.maximum(both, 0, out=both)
    return found


def sizes_in_common(some: Sequence[Column], others: Sequence[Column]) -> Ints:
    """[column, other column, rank] how many values each rank has of both."""
    plain = all(column.spans is not None for column in (*some, *others))
    if plain and sum(len(a.sets) for a in some) * sum(len(b.sets) for b in others) > MOST_PAIRS:
        return np.array([[overlap(a, a.codes, b, b.codes) for b in others] for a in some])
    (sets, numbers), (other_sets, other_numbers) = _sets_of(some), _sets_of(others)
    table: Ints = sizes_of_both(sets, other_sets)[numbers[:, None], other_numbers[None]]
    return table


def _sets_of(some: Sequence[Column]) -> tuple[tuple[IntSet, ...], Ints]:
    """The different sets of some columns, and [column, rank] which one each has."""
    number = {values: k for k, values in enumerate(dict.fromkeys(values for column in some for values in column.sets))}
    each = (np.array([number[values] for values in column.sets], dtype=np.int64)[column.codes] for column in some)
    return tuple(number), np.stack(list(each))


def common(a: Columns, b: Columns) -> Sizes:
    """Per rank how many elements its two regions have in common."""
    found = met(a[0], b[0]).sizes
    for mine, theirs in zip(a[1:], b[1:], strict=True):
        found = found * met(mine, theirs).sizes
    return found


def beside(have: Columns, need: Columns, numbers: Ints) -> Sizes | None:
    """Per rank how many elements that it needs it has itself or one of the ranks before and after it; None where the
    sets of what is there overlap on some axis. ``numbers``: per rank, equal where regions of ``have`` are."""
    if not all(axis.apart for axis in have):
        return None
    before, after = np.roll(numbers, 1), np.roll(numbers, -1)
    earlier = (before != numbers) & (np.arange(len(numbers)) > 0)
    later = (after != numbers) & (np.arange(len(numbers)) < len(numbers) - 1)
    later &= ~earlier | (after != before)
    found = common(have, need)
    for by, counts in ((1, earlier), (-1, later)):
        found = found + np.where(counts, common(tuple(_turned(axis, by) for axis in have), need), 0)
    return found


def covered(axes: Columns, ranks: Sequence[int]) -> int | None:
    """Elements that these ranks have together, each once; None where their sets on some axis overlap."""
    if not all(axis.apart for axis in axes):
        return None
    mine = np.array(ranks, dtype=np.int64)
    key, sizes = np.zeros(len(mine), dtype=np.int64), np.ones(len(mine), dtype=np.int64)
    for axis in axes:
        key = np.unique(key * len(axis.sets) + axis.codes[mine], return_inverse=True)[1]
        sizes = sizes * axis.sizes[mine]
    return int(sizes[np.unique(key, return_index=True)[1]].sum())
