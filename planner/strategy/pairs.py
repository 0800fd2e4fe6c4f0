"""What pairs of layouts of a tensor have to do with one another, for many pairs at once.

Everything follows from how much each rank has in common: tables of the axes' columns (`columns.py`), multiplied over
[have, need, rank]. What several ranks have together is counted by the cells that they share: where the sets of every
axis are apart, ranks have the same cell or none in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .columns import Column, Columns, Ints, Met, met, sizes_in_common

if TYPE_CHECKING:
    from .layouts import Layout

_AT_ONCE = 2_000_000  # entries of an array


class Pair(NamedTuple):
    """A layout that is there and one that is needed.

    missing   elements that ranks need and do not have, in all; ``busiest``: the most of one rank
    lacking   ranks that miss any; ``alike``: all of these need the same
    inside    every rank needs all that it has
    """

    missing: int
    busiest: int
    lacking: int
    alike: bool
    inside: bool


class Facts(NamedTuple):
    """The fields of `Pair`, [need] each."""

    missing: Ints
    busiest: Ints
    lacking: Ints
    alike: Ints
    inside: Ints

    def pair(self, need: int) -> Pair:
        """Of one of them, in Python's own numbers."""
        return Pair(*(fact.item() if isinstance(fact := table[need], np.generic) else fact for table in self))


@dataclass(frozen=True, eq=False)
class Related:
    """What is known of all pairs of some layouts: the fields of `Pair`, [have, need] each.

    ``numbers``: of the needs.
    """

    numbers: Mapping[Layout, int]
    missing: Ints
    busiest: Ints
    lacking: Ints
    alike: Ints
    inside: Ints

    def of(self, have: int) -> Facts:
        """All pairs of one layout that is there."""
        return Facts(self.missing[have], self.busiest[have], self.lacking[have], self.alike[have], self.inside[have])

    def pair(self, have: int, need: Layout) -> Pair:
        return self.of(have).pair(self.numbers[need])


@dataclass(frozen=True, eq=False)
class Stack:
    """Layouts by their columns: per axis the different columns, and which of them each layout has."""

    axes: tuple[tuple[tuple[Column, ...], Ints], ...]
    sizes: Ints  # [layout, rank]

    @staticmethod
    def of(layouts: Sequence[Columns]) -> Stack:
        axes = []
        for cut in zip(*layouts, strict=True):
            number = {column: k for k, column in enumerate(dict.fromkeys(cut))}
            axes.append((tuple(number), np.array([number[column] for column in cut], dtype=np.int64)))
        sizes = np.ones((len(layouts), len(layouts[0][0].codes)), dtype=np.int64)
        for different, which in axes:
            sizes *= np.array([column.sizes for column in different])[which]
        return Stack(tuple(axes), sizes)

    def some(self, start: int, stop: int) -> Stack:
        """The layouts numbered from start to stop."""
        axes = tuple((different, which[start:stop]) for different, which in self.axes)
        return Stack(axes, self.sizes[start:stop])

    @cached_property
    def regions(self) -> Ints:
        """[layout, rank] a number that is equal for equal regions of one layout."""
        found = np.zeros(self.sizes.shape, dtype=np.int64)
        for different, which in self.axes:
            found = found * max(len(column.sets) for column in different)
            found += np.array([column.codes for column in different])[which]
            found = np.unique(found, return_inverse=True)[1].reshape(found.shape)
        return np.where(self.sizes > 0, found, -1)


def facts(haves: Sequence[Columns], needs: Sequence[Columns]) -> tuple[Ints, ...]:
    """The fields of `Pair`, [have, need] each."""
    blocks = [block.facts() for block in _blocks(haves, needs)]
    return tuple(np.concatenate(fields) for fields in zip(*blocks, strict=True))


def common(haves: Sequence[Columns], needs: Sequence[Columns]) -> Iterator[Ints]:
    """[have, need, rank] elements of both, of some haves after others."""
    for block in _blocks(haves, needs):
        yield block.common


def _blocks(haves: Sequence[Columns], needs: Sequence[Columns]) -> Iterator[_Block]:
    have, need = Stack.of(haves), Stack.of(needs)
    step = max(1, _AT_ONCE // need.sizes.size)
    for start in range(0, len(haves), step):
        yield _Block(have.some(start, start + step), need)


def kept(have: Columns, need: Columns) -> int | None:
    """Elements that some rank has and needs, each once; None where that cannot be told by columns."""
    return _Block(Stack.of([have]), Stack.of([need])).kept[0][0]


class _Block:
    """All pairs of two stacks."""

    def __init__(self, have: Stack, need: Stack) -> None:
        self.have, self.need = have, need

    @cached_property
    def met(self) -> list[list[list[Met]]]:
        """Per axis what every column of the one has in common with every one of the other."""
        axes = zip(self.have.axes, self.need.axes, strict=True)
        return [[[met(a, b) for b in theirs] for a in mine] for (mine, _), (theirs, _) in axes]

    def _spread(self, axis: int, table: Ints) -> Ints:
        """[have, need, ...] from [different columns, different columns, ...] of an axis."""
        found: Ints = table[self.have.axes[axis][1][:, None], self.need.axes[axis][1][None, :]]
        return found

    @cached_property
    def common(self) -> Ints:
        """[have, need, rank] elements of both."""
        found = np.ones((1, 1, 1), dtype=np.int64)
        for axis, ((mine, _), (theirs, _)) in enumerate(zip(self.have.axes, self.need.axes, strict=True)):
            found = found * self._spread(axis, sizes_in_common(mine, theirs))
        return found

    def facts(self) -> tuple[Ints, ...]:
        """The fields of `Pair`, [have, need] each."""
        missing = self.need.sizes[None] - self.common
        lacks = missing > 0
        regions = np.broadcast_to(self.need.regions[None], lacks.shape)
        first = np.take_along_axis(regions, lacks.argmax(axis=2)[..., None], axis=2)
        alike = (~lacks | (regions == first)).all(axis=2)
        inside = (self.common == self.have.sizes[:, None]).all(axis=2)
        return missing.sum(axis=2), missing.max(axis=2), lacks.sum(axis=2), alike, inside

    @cached_property
    def kept(self) -> list[list[int | None]]:
        """[have, need] elements that some rank has in both, each once."""
        apart = [np.array([[m.apart for m in row] for row in table]) for table in self.met]
        tangled = [~self._spread(axis, table) for axis, table in enumerate(apart)]
        count = np.array(tangled).sum(axis=0)
        found: list[list[int | None]] = [[None] * count.shape[1] for _ in range(count.shape[0])]
        self._count(np.argwhere(count == 0), None, found)
        for axis, mask in enumerate(tangled):
            self._by_cells(axis, np.argwhere(mask & (count == 1)), found)
        return found

    def _by_cells(self, axis: int, where: Ints, found: list[list[int | None]]) -> None:
        """Pairs of layouts whose sets overlap on one axis: those with the same two columns there together."""
        mine, theirs = self.have.axes[axis][1][where[:, 0]], self.need.axes[axis][1][where[:, 1]]
        for a in np.unique(mine).tolist():
            for b in np.unique(theirs[mine == a]).tolist():
                self._count(where[(mine == a) & (theirs == b)], (axis, self.met[axis][a][b]), found)

    def _count(self, where: Ints, tangled: tuple[int, Met] | None, found: list[list[int | None]]) -> None:
        """Ranks that have the same cells of all other axes are one; of the tangled axis they have cells together."""
        cells = None if tangled is None else tangled[1].cells
        if not len(where) or (tangled is not None and cells is None):
            return
        ranks = self.have.sizes.shape[1]
        key = np.repeat(np.arange(len(where)), ranks).reshape(len(where), ranks)
        sizes = np.ones((len(where), ranks), dtype=np.int64)
        for axis, table in enumerate(self.met):
            if tangled is None or axis != tangled[0]:
                at = (self.have.axes[axis][1][where[:, 0]], self.need.axes[axis][1][where[:, 1]])
                codes, own = (
                    np.array([[getattr(m, name) for m in row] for row in table]) for name in ("codes", "sizes")
                )
                key = _joined(key, codes[at])
                sizes = sizes * own[at]
        order = np.argsort(key, axis=None, kind="stable")
        begins = np.flatnonzero(np.diff(key.reshape(-1)[order], prepend=-1))
        sizes = sizes.reshape(-1)[order[begins]]
        if cells is not None:
            bits = np.bitwise_or.reduceat(np.tile(cells[0], len(where))[order], begins)
            sizes = sizes * (((bits[:, None] >> np.arange(len(cells[1]))) & 1) @ cells[1])
        total = np.zeros(len(where), dtype=np.int64)
        np.add.at(total, order[begins] // ranks, sizes)
        for (i, j), size in zip(where.tolist(), total.tolist(), strict=True):
            found[i][j] = size


def _joined(key: Ints, codes: Ints) -> Ints:
    """Numbers that are equal where both are."""
    if int(key.max(initial=0)) >= 1 << 40:
        key = np.unique(key, return_inverse=True)[1].reshape(key.shape)
    joined: Ints = key * (1 + codes.max(initial=0)) + codes
    return joined
